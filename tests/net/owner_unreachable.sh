#!/bin/bash
# Claims are heard, the owner is not to be reached: a verdict stands on a reading where the server's address is
# known, else on what this host knows; it says so, and comes within --timeout. The owner learns of it afterwards.
. "$(dirname "$0")/lib.sh"

for host in z4 gpu m5 lap; do
    add_host "$host"
done
server gpu --slots 1 --tps 20
# z4 speaks for a server of another machine, and for one that nobody has the address of
agent z4 --provider "read=llama.cpp+$(url gpu),own=yes" --provider blind=static:2,own=yes
for host in m5 lap; do
    agent "$host" --peer "tcp://${address[z4]}"
done
for host in m5 lap; do
    within 10 owned "$host" read z4
    within 10 owned "$host" blind z4
    within 10 sees "$host" read '.capacity.health == "ok"'
done
knows_all()
{
    on "$1" lease peers --json | jq -e '[.peers[] | select(.state == "live")] | length == 2'
}
within 10 knows_all m5
within 10 knows_all lap

# ask HOST PROVIDER TIMEOUT: acquires and verifies; code, verdict, basis and lease are what came of it
ask()
{
    local host=$1 provider=$2 timeout=$3 begun took
    verdict='' basis='' code=0
    begun=$(now_ms)
    lease=$(on "$host" lease acquire --timeout "$timeout" --label "$host" --ttl 60 "$provider" 2>"$work/said") ||
        code=$?
    took=$(($(now_ms) - begun))
    if [ $code = 0 ]; then
        begun=$(now_ms)
        on "$host" lease verify --json --timeout "$timeout" "$lease" >"$work/verdict" 2>"$work/said" || code=$?
        took=$(($(now_ms) - begun))
        verdict=$(jq -r .verdict "$work/verdict")
        basis=$(jq -r .basis "$work/verdict")
    fi
    echo "  $provider from $host, --timeout $timeout: exit $code, ${verdict:-refused}, basis ${basis:--}," \
        "$took ms: $(tail -n 1 "$work/said")"
    [ $took -le "$(echo "$timeout" | awk '{ print int($1 * 1000 + 400) }')" ] ||
        broken "$provider from $host took $took ms"
}

echo "the owner is reached"
ask lap read 1.5
[ "$code/$verdict/$basis" = 0/go/owner ] || broken "not a go of the owner's"
on lap lease release "$lease"

echo "the owner is not reached"
sever z4
ask lap read 1.5
[ "$code/$verdict/$basis" = 0/go/reading ] || broken "not a go by a reading"
mine=$lease
sees lap read "any(.leases[]; .id == \"$mine\" and .reach != \"fleet\" and .token == null)" >/dev/null ||
    broken "claims too much: $(look lap read .leases)"
within 3 sees m5 read "any(.leases[]; .id == \"$mine\" and .host == \"lap\" and .reach != \"fleet\")"
echo "  m5 has heard of it after $took_ms ms"
ask m5 read 0.8
[ $code = 75 ] || broken "a second go for the only slot"

# Two claims are all of what nobody can read.
ask lap blind 1.5
[ "$code/$verdict/$basis" = 0/go/host ] || broken "not a go by what the host knows"
one=$lease
ask lap blind 0.6
[ "$code/$verdict/$basis" = 0/go/host ] || broken "not a go by what the host knows"
two=$lease
within 3 sees m5 blind '.leases | map(select(.host == "lap")) | length == 2'
ask m5 blind 1.5
[ $code = 75 ] || broken "a third go for two slots, both claimed"
code=0
on m5 lease run --require owner blind -- true 2>"$work/said" || code=$?
[ $code = 69 ] || [ $code = 75 ] || broken "exit $code where the owner is wanted: $(cat "$work/said")"
on lap lease release "$two" || broken "no release: $?"
within 3 sees m5 blind '.leases | map(select(.host == "lap")) | length == 1'
code=0
on m5 lease run --timeout 1 blind -- true 2>"$work/said" || code=$?
[ $code = 0 ] || broken "exit $code with a slot free: $(cat "$work/said")"
grep -q '^lease: warning: .*host' "$work/said" || broken "no warning of the basis: $(cat "$work/said")"
[ "$(wc -l <"$work/said")" = 1 ] || broken "not one line: $(cat "$work/said")"

echo "the server is not reached either"
sever gpu
ask m5 read 1
[ $code = 75 ] && [ "$verdict" != go ] || broken "a go for a server that nobody reaches"
heal gpu

echo "the owner is back"
heal z4
for host in m5 lap; do
    within 10 owned "$host" read z4
done
within 10 sees z4 read "any(.leases[]; .id == \"$mine\" and .host == \"lap\" and .token != null)"
echo "  it has the lease after $took_ms ms"
within 5 sees z4 blind ".leases | map(.id) == [\"$one\"]"
for provider in read blind; do
    within 5 equal_views $provider z4 m5 lap
done
for lease in "$mine" "$one"; do
    on lap lease release "$lease" || broken "no release of $lease: $?"
done
for provider in read blind; do
    within 5 sees z4 $provider '.leases == [] and .waiting == 0'
    within 5 equal_views $provider z4 m5 lap
done
verdict
