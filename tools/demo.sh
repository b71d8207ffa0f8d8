#!/bin/bash
# Shows what Leasehold is for, on a fleet: hosts z4 and m5 with an LLM server of one slot each, and a
# laptop. Eight processes on the three of them dispatch, first with leases and then without; then an agent
# is killed, and a cable pulled, in the middle of somebody's work. The servers are stand-ins without a model;
# they count who had to queue.
#
# Where root allows, each host is a network namespace, else an address of loopback, and then no cable can be
# pulled. Everything lives in a temporary directory and ends with this script. Exit code 1 where a request that
# held a lease had to queue all the same, or the fleet did not come to itself again.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tokens=40 # of each answer, at 50 a second
hosts=(z4 m5 laptop)

tools/setup.sh build
build=$root/build-demo
echo "demo: building in build-demo"
log=$(cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release 2>&1 &&
    ninja -C "$build" lease_program lease_agent_program slotserver 2>&1) || { echo "$log"; exit 70; }
PATH=$build/bin:$PATH
work=$(mktemp -d /tmp/lease-demo-XXXXXX)
# shellcheck source=tools/demo_hosts.sh
. tools/demo_hosts.sh
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# ---- the fleet ------------------------------------------------------------------------------------

make_hosts
for host in z4 m5; do
    in_background "$host" slotserver --host "${address[$host]}" --port "$server_port" --slots 1 --tps 50
    soon on "$host" curl -sf -o "$work/nothing" "$(url "$host")/_stats"
done
# one configuration for all: whose address a URL names, that host owns the provider; but all addresses of
# loopback are everybody's own, so that there it is said whose each is
for host in "${hosts[@]}"; do
    for provider in z4 m5; do
        owner=
        [ $namespaces = yes ] || owner=,own=$([ $host = $provider ] && echo yes || echo no),url=$(url $provider)
        echo "provider $provider = llama.cpp+$(url $provider)$owner"
    done >"$work/$host/leasehold.conf"
    echo "peer = $(endpoint z4)" >>"$work/$host/leasehold.conf"
    start_agent "$host"
done

# sees HOST PROVIDER: it is known there, its owner is heard, and its server has answered
sees()
{
    on "$1" lease fleet --json | has \
        "\"provider\":\"$2\",\"owner\":\"$2\"[^{]*\"state\":\"live\"[^{]*\\{[^{]*(\\{[^{]*)?\"health\":\"ok\""
}

all_see()
{
    local host
    for host in "${hosts[@]}"; do
        sees "$host" z4 && sees "$host" m5 || return 1
    done
}
soon all_see
echo "demo: z4, m5 and a laptop, $(means)"

# ---- eight processes ------------------------------------------------------------------------------

# What a placement does with what it was given.
ask='curl -sS --fail --max-time 60 -o /dev/null -d "{\"prompt\":\"hello\",\"n_predict\":'$tokens'}" \
    "$LEASE_URL/completion"'

with_leases()
{
    on "$1" lease run z4,m5 -- sh -c "$ask"
}

without()
{
    on "$1" env "LEASE_URL=$(url z4)" sh -c "$ask"
}

# placement HOST HOW OUTCOME: one process; where no slot is to be had it inherits its parent's server
placement()
{
    local code=0
    "$2" "$1" 2>>"$work/placements.log" || code=$?
    case $code in
    0) echo dispatched >"$3" ;;
    75) echo fell-back >"$3" ;;
    *) echo "failed $code" >"$3" ;;
    esac
}

# all_of_them HOW: eight, one each 0.3 s, from all hosts; leaves the servers' counters in HOW.HOST.stats
all_of_them()
{
    local i pids=() host
    for host in z4 m5; do on "$host" curl -sS -o "$work/nothing" "$(url $host)/_reset"; done
    for ((i = 0; i < 8; i++)); do
        placement "${hosts[i % 3]}" "$1" "$work/$1.$i" &
        pids+=($!)
        [ $i != 2 ] || [ "$1" = without ] || show laptop
        sleep 0.3
    done
    wait "${pids[@]}"
    for host in z4 m5; do on "$host" curl -sS "$(url $host)/_stats" >"$work/$1.$host.stats"; done
}

show()
{
    soon busy "$1"
    printf '\n%s$ lease fleet\n' "$1"
    on "$1" lease fleet
    printf '\n%s$ lease ls\n' "$1"
    on "$1" lease ls
    echo
}

busy()
{
    on "$1" lease fleet --json | has '"state":"dispatched"'
}

# counted HOW WORD: how many placements ended so
counted()
{
    cat "$work/$1".[0-9] | grep -c "^$2" || :
}

# counter HOW KEY add|most: what the servers counted
counter()
{
    cat "$work/$1".*.stats | grep -o "\"$2\":[0-9]*" | awk -F: -v how="$3" \
        '{ sum += $2; if ($2 > most) most = $2 } END { print how == "add" ? sum : most + 0 }'
}

seconds()
{
    awk -v ms="$1" 'BEGIN { printf "%.1f s", ms / 1000 }'
}

row()
{
    printf '%-28s %16s %16s\n' "$@"
}

echo "demo: 8 processes on 3 hosts, 2 servers with one slot each; who gets no slot falls back"
all_of_them with_leases
echo "demo: the same without Leasehold: each sees z4 idle, and sends"
all_of_them without
echo
row '' 'with Leasehold' 'without'
for word in dispatched fell-back failed; do
    row "${word/-/ }" "$(counted with_leases $word)" "$(counted without $word)"
done
row 'queued at a server' "$(counter with_leases queued add)" "$(counter without queued add)"
row 'longest wait in its queue' "$(seconds "$(counter with_leases queue_wait_longest_ms most)")" \
    "$(seconds "$(counter without queue_wait_longest_ms most)")"
echo
[ "$(counted with_leases failed)" = 0 ] && [ "$(counted without failed)" = 0 ] || {
    cat "$work/placements.log"
    exit 1
}
[ "$(counter with_leases queued add)" = 0 ] || { echo "demo: a leased request had to queue"; exit 1; }

# ---- an agent is killed, a cable pulled -----------------------------------------------------------

# far_work SECONDS [OPTION...]: the laptop works at z4 for so long
far_work()
{
    local n=$(($1 * 50)) # tokens
    shift
    in_background laptop lease run --wait 20 --label translation "$@" z4 -- sh -c "${ask/$tokens/$n}"
    soon sees_lease z4 translation
}

sees_lease()
{
    on "$1" lease ls z4 --json | has "\"state\":\"dispatched\"[^}]*\"label\":\"$2\""
}

told()
{
    on "$1" lease fleet --json | has "$2"
}

echo "demo: the laptop works at z4; z4's agent is killed with -9, and started again"
far_work 4
kill -KILL "${agent[z4]}"
in_time 5 not kill -0 "${agent[z4]}"
start_agent z4
sees_lease z4 translation || { echo "demo: z4 forgot the lease"; exit 1; }
echo "  z4 knows the lease: $(on z4 lease ls z4 | tail -n 1)"
in_time 20 not sees_lease z4 translation
echo "  and it was given back when the work was done"

if can_pull; then
    echo "demo: the laptop works at z4, and its cable is pulled"
    far_work 20 --ttl 2
    pull laptop
    in_time 20 told z4 '"kind":"orphan"'
    echo "  z4: its lease ran out, the work goes on and has a name:" \
        "$(on z4 lease fleet --json | grep -o '"kind":"orphan".*"label":"[a-z]*"' | sed 's/.*"label"/"label"/')"
    in_time 20 told laptop '"state":"(stale|lost)"'
    echo "  the laptop counts z4 and m5 as unknown"
    plug laptop
    in_time 20 sees_lease z4 translation
    echo "  plugged in again, the work has a new lease: $(on z4 lease ls z4 | tail -n 1)"
    in_time 40 not sees_lease z4 translation
    in_time 10 all_see
    echo "  and all is as it was"
fi
echo "demo: done"
