#!/bin/bash
# An owner with 256 slots, all of them leased with labels as long as they may be, and then one with 1,024: its state
# travels in parts, the views are equal, and no connection is dropped.
. "$(dirname "$0")/lib.sh"

add_host z4
add_host m5
add_host lap
agent z4 --provider some=static:256,own=yes --provider lots=static:1024,own=yes
agent m5 --peer "tcp://${address[z4]}"
agent lap --peer "tcp://${address[z4]}"
for host in m5 lap; do
    within 10 owned "$host" some z4
    within 10 owned "$host" lots z4
done

# connections HOST: its established ones with others, by their ports of both ends
connections()
{
    on "$1" ss -Htn state established | awk '{ print $3, $4 }' | grep 577 | sort
}

# take_all PROVIDER SLOTS: a quarter from each of the others, the rest from the owner's own host
takes=()
take_all()
{
    local provider=$1 slots=$2 host n begun
    takes=()
    begun=$(now_ms)
    for host in z4 m5 lap; do
        n=$((slots / 4))
        [ $host != z4 ] || n=$((slots / 2))
        start $host many "$provider" $n "$work/$provider-$host" 2>>"$work/$host/log" &
        takes+=($!)
        disown
    done
    for host in z4 m5 lap; do
        within 60 test -e "$work/$provider-$host"
    done
    echo "$provider: $slots leases taken in $(($(now_ms) - begun)) ms"
}

is_full()
{
    sees "$1" "$2" "(.leases | length == $3) and .dispatched == $3 and .available == 0 and
        all(.leases[]; (.label | length) == 127 and .token != null and .reach == \"fleet\")"
}

give_back()
{
    kill "${takes[@]}"
    for host in z4 m5 lap; do
        within 20 sees $host "$1" ".leases == [] and .available == $2"
    done
    echo "$1: seen free everywhere after $took_ms ms"
    within 5 equal_views "$1" z4 m5 lap
}

for case in "some 256" "lots 1024"; do
    read -r provider slots <<<"$case"
    take_all "$provider" "$slots"
    for host in z4 m5 lap; do
        within 10 is_full $host "$provider" "$slots"
    done
    within 5 equal_views "$provider" z4 m5 lap
    echo "$provider: equal views after another $took_ms ms, of $(wc -c <"$work/view-lap") bytes each"
    # one more is refused with the owner's state, which is more than one part
    code=0
    on lap lease run --require owner "$provider" -- true 2>"$work/said" || code=$?
    [ $code = 75 ] || broken "one more: exit $code: $(cat "$work/said")"
    connections m5 >"$work/connections"
    # through a few beats of a full book, one that joins included
    throughout 2 is_full m5 "$provider" "$slots"
    if [ "$provider" = lots ]; then
        add_host late
        agent late --peer "tcp://${address[m5]}"
        within 10 is_full late lots 1024
        echo "$provider: one that joins sees all of it after $took_ms ms"
    fi
    lost=$(connections m5 | comm -23 "$work/connections" -)
    [ -z "$lost" ] || broken "connections were lost: $lost"
    [ -s "$work/connections" ] || broken "no connections found"
    give_back "$provider" "$slots"
done
verdict
