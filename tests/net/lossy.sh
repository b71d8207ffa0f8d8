#!/bin/bash
# Messages between agents are lost (one in five of what is published, one in twenty of what is asked and answered),
# delayed by up to 60 ms and so reordered: what is seen converges all the same while that lasts, no slot is given
# twice, and none is lost.
. "$(dirname "$0")/lib.sh"

python=${2:-python3}
"$python" -c 'import zmq' 2>/dev/null || skip "no python with zmq"
loss=0.2 delay_ms=60 slots=2
seed=${SEED:-$RANDOM}
echo "seed $seed"

declare -A proxy
# behind HOST FLAG...: an agent on loopback, which others reach through the proxy only
behind()
{
    local host=$1
    shift
    add_host "$host"
    start "$host" "$python" "$here/lossy_proxy.py" "${address[$host]}" 127.0.0.1 $loss $delay_ms \
        $((seed + ${#hosts[@]})) >"$work/$host/proxy" 2>&1 &
    proxy[$host]=$!
    disown
    start "$host" lease-agent --name "$host" --listen tcp://127.0.0.1 \
        --advertise "tcp://${address[$host]}" "$@" >>"$work/$host/log" 2>&1 &
    agent_pid[$host]=$!
    disown
    within 10 speaks "$host"
}

behind z4 --provider z4=static:$slots,own=yes
behind m5 --provider m5=static:$slots,own=yes --peer "tcp://${address[z4]}"
behind lap --peer "tcp://${address[z4]}"
joined()
{
    owned "$1" z4 z4 && owned "$1" m5 m5
}
for host in z4 m5 lap; do
    within 20 joined "$host"
done

echo "placements at both, from all"
declare -A placement
for case in "one z4 z4" "two m5 z4" "three lap z4" "four lap m5" "five z4 m5"; do
    read -r name host provider <<<"$case"
    start "$host" embedded "$work/$name.log" "$provider" client 2>>"$work/$host/log" &
    placement[$name]=$!
    disown
done
pause 6
for name in "${!placement[@]}"; do
    kill -TERM "${placement[$name]}"
    within 20 not kill -0 "${placement[$name]}"
done

# count PROVIDER NAME...: no token twice, never more at once than slots, where the owner said go
count()
{
    local provider=$1 name logs=()
    shift
    for name; do
        logs+=("$work/$name.log")
    done
    sort -n "${logs[@]}" | awk -v provider="$provider" -v most=$slots '
        $2 == "go" && $5 == "owner" {
            gos++; of[$3]++
            if (seen[$4]++) { print "token " $4 " twice"; bad = 1 }
            running[$3] = 1; n = 0
            for (p in running) n++
            if (n > at_once) at_once = n
        }
        $2 == "go" && $5 != "owner" { others++ }
        $2 == "end" { delete running[$3] }
        $2 == "no" { nos++ }
        END {
            printf "%s: %d gos of the owner, %d on less, %d times none, at most %d at once of %d\n",
                provider, gos, others, nos, at_once, most
            exit bad || at_once > most || gos < 5
        }' || broken "$provider: gos were lost or doubled"
}
count z4 one two three
count m5 four five

for provider in z4 m5; do
    within 15 sees z4 $provider '.leases == [] and .available == 2' # also of what was left running
    echo "$provider: nothing is left of it after $took_ms ms"
done
echo "changes, each to be seen by all while the loss goes on"
longest=0
for i in 1 2 3 4 5 6; do
    for host in lap m5; do
        start $host lease run --label "c$i" --ttl 30 --timeout 4 --wait 15 z4 -- sh -c \
            'while [ ! -e "$0" ]; do sleep 0.05; done' "$work/end-$i" 2>>"$work/$host/log" &
    done
    seen_by_all()
    {
        sees z4 z4 '.leases | length == 2' && equal_views z4 z4 m5 lap
    }
    within 25 seen_by_all && [ $took_ms -gt $longest ] && longest=$took_ms
    : >"$work/end-$i"
    gone_from_all()
    {
        sees z4 z4 '.leases == []' && equal_views z4 z4 m5 lap
    }
    within 15 gone_from_all && [ $took_ms -gt $longest ] && longest=$took_ms
done
echo "the longest took $longest ms"

echo "nothing is lost any more"
kill -USR1 "${proxy[@]}"
for provider in z4 m5; do
    within 10 equal_views $provider z4 m5 lap
    within 5 sees lap $provider '.state == "live" and .leases == [] and .available == 2 and .waiting == 0'
done
kill -TERM "${proxy[@]}"
for host in z4 m5 lap; do
    within 5 grep -q lost "$work/$host/proxy"
    echo "$host: $(cat "$work/$host/proxy")"
done
[ "$(sed 's/.*lost //' "$work"/*/proxy | awk '{ n += $1 } END { print n }')" -gt 40 ] ||
    broken "the proxies lost next to nothing"
verdict
