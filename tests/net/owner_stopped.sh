#!/bin/bash
# The owner's agent is stopped for a while and goes on: it distrusts itself first. What ran out meanwhile is gone
# for good, what did not run out lives on, and the epoch has grown before it answers anybody.
. "$(dirname "$0")/lib.sh"

stopped=${full:+30}
stopped=${stopped:-6}
add_host z4
add_host m5
add_host lap
agent z4 --provider z4=static:4,own=yes
agent m5 --peer "tcp://${address[z4]}"
agent lap --peer "tcp://${address[z4]}"
within 10 owned m5 z4 z4
within 10 owned lap z4 z4

hold m5 long z4 --ttl 120
hold lap short z4 --ttl 2
# of no process, and renewed by nobody: it could not be renewed either
bare=$(on m5 lease acquire --ttl 2 --label bare z4) || broken "no lease to be had"
within 5 sees lap z4 '.leases | length == 3'
within 5 equal_views z4 z4 m5 lap
long=$(cat "$work/long.id")
short=$(cat "$work/short.id")
token=$(sort -n "$work"/*.token | tail -n 1)
epoch=$(look z4 z4 .epoch)

kill -STOP "${agent_pid[z4]}"
within 5 sees m5 z4 '.state == "stale" and .available == null'
echo "stale after $took_ms ms"
on z4 lease doctor >"$work/doctor" && broken "doctor finds nothing"
grep -q "${agent_pid[z4]}" "$work/doctor" || broken "doctor does not name the process: $(cat "$work/doctor")"
pause $((stopped - took_ms / 1000 - 1))
kill -CONT "${agent_pid[z4]}"

# Whoever asks in the very moment is answered by one that has raised its epoch.
first=$(on lap lease run --require owner z4 -- printenv LEASE_TOKEN) || broken "no go after it went on: $?"
[ $((first >> 20)) -gt "$epoch" ] || broken "token $first is of epoch $((first >> 20)), after $epoch"

# The first thing that anybody hears of it
within 5 owned m5 z4 z4
echo "heard again after $took_ms ms"
[ "$(look m5 z4 .epoch)" -gt "$epoch" ] || broken "the epoch did not grow: $epoch"
for host in z4 m5 lap; do
    within 5 sees "$host" z4 "any(.leases[]; .id == \"$long\") and
        all(.leases[]; .id != \"$short\" and .id != \"$bare\")"
done
on m5 lease renew "$bare" 2>"$work/said"
[ $? = 74 ] || broken "renewed, after its end: $(cat "$work/said")"

# The work that ran on has a lease anew, under a token of the new epoch.
within 10 sees z4 z4 '.leases | map(.label) | sort == ["long", "short"]'
look z4 z4 '.leases[] | select(.label == "short").token' >"$work/new.token"
[ "$(cat "$work/new.token")" -gt "$token" ] || broken "token $(cat "$work/new.token") after $token"
not_again()
{
    ! ids_at "$1" z4 | grep -q -e "$short" -e "$bare"
}
for host in z4 m5 lap; do
    throughout 1 not_again "$host"
done
for name in long short; do
    finish $name || broken "$name ended with $?: $(cat "$work/$name.err")"
done
for host in z4 m5 lap; do
    within 5 sees "$host" z4 '.leases == [] and .available == 4'
done
verdict
