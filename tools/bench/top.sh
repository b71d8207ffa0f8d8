#!/bin/bash
# What leasetop costs for real: as many providers as an agent may have, with leases, in a terminal.
#
#   top.sh BIN [PROVIDERS [LEASES_EACH [SECONDS]]]
set -eu
bin=$(realpath "${1:?folder of the programs}")
providers=${2:-64} leases=${3:-12} seconds=${4:-10}
work=$(mktemp -d /tmp/leasetop-bench-XXXXXX)
unset "${!LEASE_@}"
export LEASE_DIR=$work/dir HOME=$work XDG_CONFIG_HOME='' LC_ALL=C.UTF-8
mkdir -m 700 "$LEASE_DIR"
agent=
trap '[ -z "$agent" ] || kill "$agent"; tmux -S "$work/tmux" kill-server 2>/dev/null; wait; rm -rf "$work"' EXIT
declared=()
for ((i = 0; i < providers; i++)); do declared+=(--provider "p$i=static:32,own=yes"); done
"$bin/lease-agent" "${declared[@]}" >"$work/agent.out" 2>&1 &
agent=$!
until "$bin/lease" status | grep -q alive; do sleep 0.05; done
for ((i = 0; i < providers; i++)); do
    for ((k = 0; k < leases; k++)); do
        "$bin/lease" acquire --ttl 60 --label "user-$k" "p$i" >/dev/null &
    done
    wait $(jobs -p | grep -vx "$agent") || true
done
for i in 1 2 3; do /usr/bin/time -f "batch frame: %e s, %U user, %S system" "$bin/leasetop" -b -n 1 >/dev/null; done
count=$("$bin/leasetop" -j -n 1 | grep -o '"leased":[0-9]*' | tail -1)
mux() { tmux -f /dev/null -S "$work/tmux" "$@"; }
mux new-session -d -x 120 -y 50 cat
least=
for i in 1 2 3 4 5; do # the machine may be busy with something else: the least counts
    mux new-window -n "top$i" "date +%s%N >$work/start; exec $bin/leasetop"
    until mux capture-pane -p -t "top$i" | grep -q '^leasetop.*LIVE'; do :; done
    took=$((($(date +%s%N) - $(cat "$work/start")) / 1000000))
    [ -n "$least" ] && [ "$least" -le "$took" ] || least=$took
    pid=$(mux display-message -p -t "top$i" '#{pane_pid}')
    [ "$i" = 5 ] || mux kill-window -t "top$i"
done
ticks() { awk '{print $14 + $15}' "/proc/$pid/stat"; }
before=$(ticks)
sleep "$seconds"
after=$(ticks)
echo "$providers providers, $count: first screen after $least ms," \
    "$(awk -v t=$((after - before)) -v s="$seconds" 'BEGIN {printf "%.2f", t / s}') % of a core" \
    "(one tick of 10 ms in $seconds s is $(awk -v s="$seconds" 'BEGIN {printf "%.2f", 1 / s}') %)"
