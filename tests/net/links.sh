#!/bin/bash
# A link that is cut and healed, one that is deaf one way, one that flaps: stale is shown after three beats and
# counted as unknown; views are equal within three beats after it healed; no lease is lost by it.
. "$(dirname "$0")/lib.sh"

cut_for=${full:+30}
cut_for=${cut_for:-7}
beats=3000
add_host z4
add_host m5
add_host lap
agent z4 --provider z4=static:8,own=yes
agent m5 --provider m5=static:8,own=yes --peer "tcp://${address[z4]}"
agent lap --peer "tcp://${address[z4]}"

joined()
{
    owned "$1" z4 z4 && owned "$1" m5 m5
}

for host in z4 m5 lap; do
    within 10 joined "$host"
done
hold lap far z4 --ttl 120
hold m5 other z4 --ttl 120
token=$(cat "$work/far.token")

all_equal()
{
    equal_views z4 z4 m5 lap && equal_views m5 z4 m5 lap
}

is_stale()
{
    sees "$1" "$2" '.state == "stale" and .available == null and .heard_ms >= 2900'
}

# shown_stale HOST PROVIDER: three beats after it was last heard, give or take one
shown_stale()
{
    within 6 is_stale "$1" "$2" || return
    took_ms=$(($(now_ms) - cut_ms))
    echo "  $1 shows $2 as stale after $took_ms ms"
    [ $took_ms -ge 1800 ] && [ $took_ms -le 4300 ] || broken "$1 showed $2 as stale after $took_ms ms"
}

# healed WHAT: equal within three beats, and half a second for looking
healed()
{
    within 15 all_equal || return
    echo "  views are equal $took_ms ms after $1"
    [ $took_ms -le $((beats + 500)) ] || broken "views equal only $took_ms ms after $1"
    for host in z4 m5 lap; do
        within 1 joined "$host" || broken "$host has not joined again"
    done
    [ "$(look lap z4 '.leases[] | select(.label == "far").token')" = "$token" ] || broken "far was lost"
}

# Something that the others cannot have heard of yet
changed()
{
    changes=$((${changes:-0} + 1))
    hold z4 "change$changes" z4 --ttl 120
}

within 5 all_equal
echo "the laptop's link is cut for $cut_for s"
cut_ms=$(now_ms)
sever lap
shown_stale lap z4
within 6 is_stale lap m5
changed
pause $((cut_for - 4))
is_stale lap z4 >"$work/answer" || broken "no longer stale while it is cut"
sees m5 z4 '.state == "live" and (.leases | length == 3)' >"$work/answer" || broken "m5 is in doubt of z4"
heal lap
healed "the link"

echo "the same by the interface itself"
cut_ms=$(now_ms)
ip -n $switch link set port-z4 down
shown_stale lap z4
shown_stale m5 z4
changed
sees lap m5 '.state == "live"' >"$work/answer" || broken "the laptop is in doubt of m5"
ip -n $switch link set port-z4 up
healed "the interface"

echo "one way only: the laptop does not hear z4, which hears it"
deafen lap z4
within 8 is_stale lap z4
echo "  stale after $took_ms ms"
changed
pause 2
undeafen lap z4
healed "it hears again"

echo "the other way: z4 does not hear the laptop, which hears it"
deafen z4 lap
pause 4
undeafen z4 lap
healed "it is heard again"

echo "flapping"
for i in 1 2 3 4 5 6 7 8; do
    sever lap
    pause 0.6
    heal lap
    pause 0.4
done
changed
healed "the last flap"

for name in far other change1 change2 change3 change4; do
    finish $name || broken "$name ended with $?: $(cat "$work/$name.err")"
    [ ! -s "$work/$name.err" ] || broken "$name was told: $(cat "$work/$name.err")"
done
within 5 sees lap z4 '.leases == [] and .available == 8'
within 5 all_equal
verdict
