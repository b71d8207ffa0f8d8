#!/bin/bash
# One configuration naming all six providers, on six hosts: each provider has one owner, and nobody else
# asks its server.
. "$(dirname "$0")/lib.sh"

names=(z1 z2 z3 z4 z5 z6)
for host in "${names[@]}"; do
    add_host "$host"
    server "$host" --slots 2
done

# The same file everywhere, peers and all.
for host in "${names[@]}"; do
    echo "provider $host = $(url "$host")"
    echo "peer = tcp://${address[$host]}"
done >"$work/fleet.conf"
for host in "${names[@]}"; do
    mkdir -p "$work/$host/config/leasehold"
    cp "$work/fleet.conf" "$work/$host/config/leasehold/leasehold.conf"
    agent "$host"
done

all_are_owned_at()
{
    on "$1" lease fleet --json | jq -e '[.providers[]
        | select(.owner == .provider and .state == "live" and .capacity.health == "ok"
                 and .available == 2)] | length == 6'
}

all_know_all()
{
    on "$1" lease peers --json | jq -e --arg self "$1" \
        '[.peers[] | select(.state == "live" and .name != $self).name] | unique | length == 5'
}

begun=$(now_ms)
for host in "${names[@]}"; do
    within 15 all_are_owned_at "$host"
    within 15 all_know_all "$host"
done
echo "six hosts know six owners after $(($(now_ms) - begun)) ms"

# A placement everywhere at every provider, and long enough for each agent's round of readings.
for host in "${names[@]}"; do
    for provider in "${names[@]}"; do
        on "$host" lease run --require owner "$provider" -- true ||
            broken "$host: no go at $provider: $? $(look "$provider" "$provider" '.capacity | tostring')"
    done
done
pause 6
for host in "${names[@]}"; do
    askers=$(stats "$host" '.askers | keys | join(" ")')
    [ "$askers" = "${address[$host]}" ] || broken "the server of $host was asked by $askers"
    readings=$(stats "$host" '.askers | add')
    [ "$readings" -ge 2 ] || broken "the server of $host was hardly read: $readings"
done
for host in "${names[@]}"; do
    within 10 all_are_owned_at "$host" || on "$host" lease fleet
    grep -i conflict "$work/$host/log" && broken "$host speaks of a conflict"
done
verdict
