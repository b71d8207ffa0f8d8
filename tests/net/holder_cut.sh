#!/bin/bash
# The link of a holder is cut in the middle of a generation: its child lives on, the lease lapses at the owner, the
# work is an orphan with the holder's name; after healing it has a new lease.
. "$(dirname "$0")/lib.sh"

ttl=3 generation=16 cut_for=8
[ -z "$full" ] || ttl=30 generation=180 cut_for=60
add_host z4
add_host lap
server z4 --slots 2 --tps 20
agent z4 --provider "z4=llama.cpp+$(url z4)"
agent lap --peer "tcp://${address[z4]}"
within 10 owned lap z4 z4
within 10 sees z4 z4 '.capacity.health == "ok"'

start lap lease run --ttl $ttl --label generation --require owner z4 -- \
    curl -sf -o "$work/body" -d "{\"prompt\":\"hello\",\"n_predict\":$((20 * generation))}" \
    "$(url z4)/completion" 2>"$work/err" &
run=$!
begun=$(now_ms)
within 10 sees z4 z4 '.capacity.in_flight == 1 and .strangers == 0 and
    (.leases | map(.state + .label + .host) == ["dispatchedgenerationlap"])'
within 5 equal_views z4 z4 lap
id=$(look z4 z4 '.leases[0].id')
token=$(look z4 z4 '.leases[0].token')
child=$(pgrep -P "$run" curl)

sever lap
cut_ms=$(now_ms)
within $((ttl + 5)) sees z4 z4 '.leases == [] and .orphans == 1 and
    any(.work[]; .kind == "orphan" and .was.host == "lap" and .was.label == "generation")'
echo "an orphan with its name $(($(now_ms) - cut_ms)) ms after the cut, ttl $ttl s"
[ "$(($(now_ms) - cut_ms))" -ge $((ttl * 1000 * 2 / 3 - 500)) ] || broken "that was too soon"
sees z4 z4 '.available == 1 and .strangers == 0' >/dev/null || broken "the orphan is not counted once"
on z4 lease log z4 >"$work/log"
grep -q "expired.*$id" "$work/log" || broken "the log does not tell of it: $(cat "$work/log")"
pause "$(((cut_ms + cut_for * 1000 - $(now_ms)) / 1000)).5"
kill -0 "$child" || broken "the child is dead"
kill -0 "$run" || broken "lease run is dead"
[ "$(stats z4 .abandoned)" = 0 ] || broken "its request was given up"

heal lap
within 15 sees z4 z4 '.orphans == 0 and (.leases | length == 1) and .leases[0].label == "generation"'
echo "a new lease $took_ms ms after healing"
[ "$(look z4 z4 '.leases[0].id')" != "$id" ] || broken "the old lease has come back"
[ "$(look z4 z4 '.leases[0].token')" -gt "$token" ] || broken "its token is not newer"
sees z4 z4 '.available == 1 and .dispatched == 1 and .strangers == 0' >/dev/null || broken "counted twice"
within 5 equal_views z4 z4 lap

wait "$run" || broken "exit $?: $(cat "$work/err")"
echo "the generation ended after $((($(now_ms) - begun) / 1000)) s; said: $(cat "$work/err")"
grep -q '"content"' "$work/body" || broken "no answer arrived"
[ "$(stats z4 '"\(.tasks) \(.queued) \(.completed)"')" = "1 0 1" ] || broken "the server: $(stats z4 .)"
for host in z4 lap; do
    within 5 sees "$host" z4 '.available == 2 and .leases == [] and .orphans == 0 and .work == []'
done
verdict
