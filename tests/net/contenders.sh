#!/bin/bash
# Three hosts, each with eight contenders, one server with one slot: nobody who was told go ever queues at
# the server, whoever was told no has fallen back, and every slot is given back.
#
# contenders.sh BIN [cut]: with `cut` nothing that agents publish gets through, only what they are asked
. "$(dirname "$0")/lib.sh"

seconds=${full:+300}
seconds=${seconds:-${2:+15}}
seconds=${seconds:-30}
names=(z4 m5 lap)
for host in "${names[@]}"; do
    add_host "$host"
done

# Where it is dialled no more, nothing is heard: by the rules of routing, since packets are lost in silence.
no_announcements()
{
    local host
    for host in "${names[@]}"; do
        ip -n "$switch-$host" rule add ipproto tcp dport 5772 blackhole || skip "no rules by port here"
    done
}

[ "${2:-}" != cut ] || no_announcements
server z4 --slots 1 --tps 100
agent z4 --provider "z4=llama.cpp+$(url z4)"
agent m5 --peer "tcp://${address[z4]}"
agent lap --peer "tcp://${address[z4]}"
within 10 sees z4 z4 '.capacity.health == "ok"'
for host in m5 lap; do
    if [ "${2:-}" = cut ]; then
        within 10 on "$host" lease run --require owner z4 -- true
    else
        within 10 owned "$host" z4 z4
    fi
done

# contender HOST N: until the time is over, a placement and then a think of up to 0.4 s; each outcome a line
contender()
{
    local end=$(($(now_ms) + seconds * 1000)) options=() code
    RANDOM=$((seed + $2))
    while [ "$(now_ms)" -lt $end ]; do
        # every third stands in the queue
        options=()
        [ $((RANDOM % 3)) != 0 ] || options=(--wait 1)
        code=0
        on "$1" lease run "${options[@]}" --require owner z4 -- \
            curl -sf --max-time 30 -o "$work/$1/body-$2" \
            -d "{\"prompt\":\"hello\",\"n_predict\":$((5 + RANDOM % 20))}" "$(url z4)/completion" \
            2>>"$work/$1/contender-$2.err" || code=$?
        echo "$code" >>"$work/$1/outcome-$2"
        pause "0.$((RANDOM % 4))$((RANDOM % 10))"
    done
}

seed=${SEED:-$RANDOM}
echo "seed $seed, $seconds s"
on z4 curl -sf -o "$work/answer" "$(url z4)/_reset"
contenders=()
for host in "${names[@]}"; do
    for n in 1 2 3 4 5 6 7 8; do
        contender "$host" $n &
        contenders+=($!)
    done
done
wait "${contenders[@]}"

went=$(cat "$work"/*/outcome-* | grep -cx 0)
fell_back=$(cat "$work"/*/outcome-* | grep -cx 75)
silent=$(cat "$work"/*/outcome-* | grep -cx 69) # the owner did not answer in time: no go below it
others=$(cat "$work"/*/outcome-* | grep -cvx -e 0 -e 75 -e 69)
tasks=$(stats z4 .tasks)
queued=$(stats z4 .queued)
echo "went $went, fell back $fell_back, owner not heard $silent, others $others; the server: tasks $tasks, had to queue $queued"
[ "$queued" = 0 ] || broken "$queued had to queue"
[ "$others" = 0 ] || broken "exits $(cat "$work"/*/outcome-* | sort | uniq -c | tr "\n" ";"): $(cat "$work"/*/contender-*.err | sort | uniq -c | sort -rn | tail -n 8)"
[ "$tasks" = "$went" ] || broken "$went went, but the server had $tasks"
[ "$went" -ge $((seconds / 2)) ] || broken "only $went went in $seconds s"
[ "$fell_back" -gt 0 ] || broken "nobody fell back: no contention"
for host in "${names[@]}"; do
    [ -z "$(cat "$work/$host"/outcome-* | grep -x 0)" ] && broken "$host never got a slot"
    within 5 sees "$host" z4 '.available == 1 and .leases == [] and .waiting == 0 and .work == []'
done
verdict
