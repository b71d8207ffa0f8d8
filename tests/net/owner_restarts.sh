#!/bin/bash
# The owner's agent is killed and started again: with its books kept the leases are as they were; when the
# host had rebooted (no books) all are gone. Tokens grow in both, and nothing late brings a lease back.
. "$(dirname "$0")/lib.sh"

add_host z4
add_host m5
add_host lap
agent z4 --provider z4=static:4,own=yes
agent m5 --peer "tcp://${address[z4]}"
agent lap --peer "tcp://${address[z4]}"

all_hear_the_owner()
{
    local host
    for host in m5 lap; do
        within 10 owned "$host" z4 z4
    done
    within 5 equal_views z4 z4 m5 lap
}

number()
{
    look z4 z4 "$1"
}

newest_token()
{
    sort -n "$work"/*.token | tail -n 1
}

all_hear_the_owner
hold m5 one z4
hold lap two z4
hold z4 three z4
within 5 equal_views z4 z4 m5 lap
ids_at z4 z4 >"$work/before"
epoch=$(number .epoch)
[ "$(wc -l <"$work/before")" = 3 ] || broken "not three leases: $(cat "$work/before")"

echo "killed, its books kept"
end_agent z4 KILL
within 5 sees m5 z4 '.state == "stale" and .available == null'
echo "stale after $took_ms ms"
agent z4 --provider z4=static:4,own=yes --peer "tcp://${address[m5]}"
all_hear_the_owner
ids_at z4 z4 >"$work/after"
cmp -s "$work/before" "$work/after" || broken "not as they were: $(diff "$work/before" "$work/after")"
newest=$(newest_token)
hold m5 four z4
[ "$(cat "$work/four.token")" -gt "$newest" ] || broken "token $(cat "$work/four.token") after $newest"
for name in one two three four; do
    finish $name || broken "$name ended with $?: $(cat "$work/$name.err")"
done
within 5 sees lap z4 '.leases == [] and .available == 4'

echo "the host reboots: no books, no agent; what is kept is the state directory"
hold m5 five z4
hold lap six z4
within 5 equal_views z4 z4 m5 lap
epoch=$(number .epoch)
newest=$(newest_token)
old=$(cat "$work/five.id" "$work/six.id")
sever z4
end_agent z4 KILL
rm -rf "$work/z4/run"
mkdir -m 700 "$work/z4/run"
# one of them ends meanwhile, its release cannot be told
finish six || broken "six ended with $?: $(cat "$work/six.err")"
agent z4 --provider z4=static:4,own=yes --peer "tcp://${address[m5]}" --peer "tcp://${address[lap]}"
[ "$(number '.leases | length')" = 0 ] || broken "the owner remembers: $(ids_at z4 z4)"
heal z4
all_hear_the_owner
echo "epoch $epoch, then $(number .epoch)"
[ "$(number .epoch)" -gt "$epoch" ] || broken "epoch $(number .epoch) after $epoch"

none_of_the_old()
{
    local host
    for host in z4 m5 lap; do
        ! ids_at "$host" z4 | grep -qF "$old" || return 1
    done
}

# What renews, claims and releases comes late now. The work that ran on takes a lease of its own.
within 15 none_of_the_old
within 15 sees z4 z4 '.leases | map(.label) == ["five"]'
echo "the work has a lease anew after $took_ms ms"
throughout 3 none_of_the_old
hold lap seven z4
[ "$(cat "$work/seven.token")" -gt "$newest" ] || broken "token $(cat "$work/seven.token") after $newest"
finish five || broken "five ended with $?: $(cat "$work/five.err")"
finish seven || broken "seven ended with $?: $(cat "$work/seven.err")"
within 5 sees m5 z4 '.leases == [] and .available == 4'
within 5 equal_views z4 z4 m5 lap
verdict
