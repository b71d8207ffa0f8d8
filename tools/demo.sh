#!/bin/bash
# Shows what Leasehold is for: eight processes, one LLM server with one slot, first with leases and
# then without. The server is a stand-in without a model; it counts who had to queue.
#
# Everything lives in a temporary directory and ends with this script. Exit code 1 where a request
# that held a lease had to queue all the same.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
processes=8
tokens=40 # of each answer, at 50 a second

tools/setup.sh build
build=$root/build-demo
echo "demo: building in build-demo"
log=$(cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release 2>&1 &&
    ninja -C "$build" lease_program lease_agent_program slotserver 2>&1) || { echo "$log"; exit 70; }
PATH=$build/bin:$PATH

# ---- a host of its own: directory, configuration, server, agent ---------------------------------

server=
work=$(mktemp -d /tmp/lease-demo-XXXXXX)
finish()
{
    trap - EXIT INT TERM HUP
    local running
    # the server at once, so that whoever waits for its answer ends too
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || :
    running=$(jobs -p)
    # shellcheck disable=SC2086
    [ -z "$running" ] || kill $running 2>/dev/null || :
    wait
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

unset "${!LEASE_@}" STATE_DIRECTORY http_proxy
mkdir -m 700 "$work/run"
export LEASE_DIR=$work/run XDG_CONFIG_HOME=$work/config XDG_STATE_HOME=$work/state

# soon COMMAND...: until it is true, for 10 s at most
soon()
{
    local tries=200
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "demo: never came true: $*" >&2; cat "$work"/*.log >&2; exit 70; }
        sleep 0.05
    done
}

slotserver --slots 1 --tps 50 --port-file "$work/port" >"$work/server.log" 2>&1 &
server=$!
disown # it is ended without a word
soon test -s "$work/port"
url=http://127.0.0.1:$(cat "$work/port")
mkdir -p "$XDG_CONFIG_HOME/leasehold"
echo "provider z4 = llama.cpp+$url" >"$XDG_CONFIG_HOME/leasehold/leasehold.conf"
lease-agent >"$work/agent.log" 2>&1 &
fleet_has()
{
    lease fleet --json | grep -q "$1"
}
soon fleet_has '"health":"ok"'

# ---- the placements -----------------------------------------------------------------------------

request=(curl -sS --fail --max-time 60 -o /dev/null -d "{\"prompt\":\"hello\",\"n_predict\":$tokens}"
    "$url/completion")

with_a_lease()
{
    lease run z4 -- "${request[@]}"
}

without()
{
    "${request[@]}"
}

# placement HOW OUTCOME: one process; where no slot is to be had it inherits its parent's server
placement()
{
    local code=0
    "$1" 2>>"$work/placements.log" || code=$?
    case $code in
    0) echo dispatched >"$2" ;;
    75) echo fell-back >"$2" ;;
    *) echo "failed $code" >"$2" ;;
    esac
}

# all_of_them HOW: eight, one each 0.3 s; leaves the server's counters in HOW.stats
all_of_them()
{
    local i pids=()
    curl -sS -o /dev/null "$url/_reset"
    for ((i = 1; i <= processes; i++)); do
        placement "$1" "$work/$1.$i" &
        pids+=($!)
        [ $i != 2 ] || [ "$1" = without ] || show_fleet
        sleep 0.3
    done
    wait "${pids[@]}"
    curl -sS "$url/_stats" >"$work/$1.stats"
}

show_fleet()
{
    soon fleet_has '"state":"dispatched"'
    printf '\n$ lease fleet\n'
    lease fleet
    printf '\n$ lease ls\n'
    lease ls
    echo
}

# counted HOW WORD: how many placements ended so
counted()
{
    cat "$work/$1".[0-9]* | grep -c "^$2" || :
}

# server HOW KEY: what the server counted
counter()
{
    sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" "$work/$1.stats"
}

seconds()
{
    awk -v ms="$1" 'BEGIN { printf "%.1f s", ms / 1000 }'
}

echo "demo: $processes processes, one server with one slot; each that gets no slot falls back"
all_of_them with_a_lease
echo "demo: the same without Leasehold"
all_of_them without

# ---- the outcome --------------------------------------------------------------------------------

row()
{
    printf '%-28s %16s %16s\n' "$@"
}

echo
row '' 'with Leasehold' 'without'
for word in dispatched fell-back failed; do
    row "${word/-/ }" "$(counted with_a_lease $word)" "$(counted without $word)"
done
row 'queued at the server' "$(counter with_a_lease queued)" "$(counter without queued)"
row 'longest wait in its queue' "$(seconds "$(counter with_a_lease queue_wait_longest_ms)")" \
    "$(seconds "$(counter without queue_wait_longest_ms)")"
echo
[ "$(counted with_a_lease failed)" = 0 ] && [ "$(counted without failed)" = 0 ] || {
    cat "$work/placements.log"
    exit 1
}
[ "$(counter with_a_lease queued)" = 0 ] || { echo "demo: a leased request had to queue"; exit 1; }
