#!/bin/bash
# A second agent with the same name, and two owners of one provider: both report it, so does doctor, so does the view;
# one of the owners is asked by all, and neither flaps.
. "$(dirname "$0")/lib.sh"

for host in a1 b2 lap twin; do
    add_host "$host"
done
agent a1 --provider x=static:2,own=yes
agent b2 --provider x=static:2,own=yes --peer "tcp://${address[a1]}"
agent lap --peer "tcp://${address[a1]}"

# steady HOST: what it says of x that stays as it is while nothing happens
steady()
{
    look "$1" x '.owner + " " + .state + " " + (.epoch | tostring)'
}

echo "two owners"
for host in a1 b2 lap; do
    within 10 sees "$host" x '.owner == "a1" and .state == "conflict"'
done
for host in a1 b2 lap; do
    on "$host" lease doctor >"$work/$host/doctor" && broken "doctor finds nothing on $host"
    grep -q "^WRONG *x: several hosts own it; a1" "$work/$host/doctor" || broken "doctor of $host: $(cat "$work/$host/doctor")"
done
# Both slots are given once, whoever is asked from wherever.
hold lap one x
hold b2 two x
code=0
on a1 lease run --require owner x -- true 2>"$work/said" || code=$?
[ $code = 75 ] || broken "a third go for two slots: $code, $(cat "$work/said")"
for host in a1 b2 lap; do
    within 5 sees "$host" x '.leases | map(.label) | sort == ["one", "two"]'
    steady "$host" >"$work/$host/before"
done
not_flapping()
{
    local host
    for host in a1 b2 lap; do
        [ "$(steady "$host")" = "$(cat "$work/$host/before")" ] || return 1
    done
}
throughout 4 not_flapping

echo "one of them goes"
end_agent a1 TERM
for host in b2 lap; do
    within 10 sees "$host" x '.owner == "b2" and .state == "live"'
done
echo "  the other one is asked after $took_ms ms"
for name in one two; do
    kill -0 "${holder[$name]}" || broken "$name ended: $(cat "$work/$name.err")"
done
within 15 sees lap x '.leases | map(.label) | sort == ["one", "two"]'
within 5 equal_views x b2 lap
for name in one two; do
    finish $name || broken "$name ended with $?: $(cat "$work/$name.err")"
done
within 5 sees lap x '.leases == [] and .available == 2'

echo "the same name twice"
agent twin --name b2 --peer "tcp://${address[b2]}"
told_of_twins()
{
    on "$1" lease doctor >"$work/$1/doctor" && return 1
    grep -q "^WRONG *b2: two hosts have this name" "$work/$1/doctor"
}
for host in b2 twin lap; do
    within 10 told_of_twins "$host"
done
both_known()
{
    on lap lease peers --json |
        jq -e '[.peers[] | select(.name == "b2" and .state == "live")] | map(.id) | unique | length == 2'
}
within 10 both_known
throughout 3 both_known
throughout 2 sees lap x '.owner == "b2" and .state == "live"'
on twin lease run --require owner x -- true || broken "the twin gets no go: $?"
on lap lease run --require owner x -- true || broken "the laptop gets no go: $?"
verdict
