#!/bin/bash
# Draws tools/leasetop.svg anew: leasetop in a real terminal (tmux) on a laptop that has no server, over
# three hosts with servers of ours that stand in for llama-server. Hosts are addresses of loopback, each
# with a directory and an agent of its own. There are leases, a stranger, and a host whose agent died.
#
#   tools/picture.sh [BIN [FILE.svg]]      BIN: the folder of the programs, build/bin by default
set -eu
here=$(dirname "$(realpath "$0")")
bin=$(realpath "${1:-$here/../build/bin}")
svg=$(realpath -m "${2:-$here/leasetop.svg}")
work=$(mktemp -d /tmp/leasetop-picture-XXXXXX)
unset "${!LEASE_@}" NO_COLOR
export HOME=$work XDG_CONFIG_HOME='' LC_ALL=C.UTF-8
started=()
mux() { tmux -f /dev/null -S "$work/tmux" "$@"; }
clean_up()
{
    mux kill-server 2>/dev/null || :
    kill -KILL "${started[@]}" 2>/dev/null || :
    wait 2>/dev/null || :
    rm -rf "$work"
}
trap clean_up EXIT

# until_true SECONDS COMMAND...
until_true()
{
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "never true: $*" >&2; cat "$work"/*/log >&2; exit 1; }
        sleep 0.05
    done
}

# on HOST COMMAND...: with that host's directory
on()
{
    LEASE_DIR=$work/$1/dir "${@:2}"
}

# serve NAME SLOTS: a server of the host of that name, on loopback
serve()
{
    "$bin/slotserver" --slots "$2" --tps 5 --port-file "$work/$1.port" >/dev/null 2>&1 &
    started+=($!)
    until_true 10 test -s "$work/$1.port"
}

# speak HOST NUMBER FLAG...: its agent, at 127.0.0.NUMBER
speak()
{
    mkdir -p -m 700 "$work/$1/dir"
    (export LEASE_DIR=$work/$1/dir
    exec "$bin/lease-agent" --name "$1" --listen "tcp://127.0.0.$2" --advertise "tcp://127.0.0.$2" "${@:3}") >"$work/$1/log" 2>&1 &
    started+=($!)
    agents[$1]=$!
}

# A request of 20,000 tokens, which no agent was told of unless a lease run stands before it.
cat >"$work/generate" <<'END'
exec 3<>"/dev/tcp/127.0.0.1/$1"
body='{"prompt":"hello","n_predict":20000}'
printf 'POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n%s' "${#body}" "$body" >&3
exec cat <&3
END
generate() { bash "$work/generate" "$(cat "$work/$1.port")" >/dev/null 2>&1; }
in_background() { "$@" & started+=($!); }
# leased HOST NAME LABEL: placed from that host, dispatched, with its work
leased()
{
    in_background on "$1" "$bin/lease" run --ttl 300 --label "$3" "$2" -- \
        bash "$work/generate" "$(cat "$work/$2.port")" >/dev/null 2>&1
}
shows() { on laptop "$bin/leasetop" -b -n 1 -F "$1"; }
screen_says() { mux capture-pane -p | grep -q "$1"; }

declare -A agents
n=1
for host in z4:4 m5:2 studio:1; do
    n=$((n + 1))
    serve "${host%:*}" "${host#*:}"
    speak "${host%:*}" $n --provider "${host%:*}=http://127.0.0.1:$(cat "$work/${host%:*}.port"),own=yes" --peer tcp://127.0.0.2
done
speak laptop 5 --peer tcp://127.0.0.2
until_true 20 shows 'provider:m5 state:free'
until_true 20 shows 'provider:studio state:free'
leased laptop z4 alice/train-7
leased m5 z4 subagent/12
leased laptop studio nightly-eval
in_background generate m5
until_true 20 shows 'provider:m5 state:stranger'
until_true 20 shows 'provider:studio state:dispatched'

LEASE_DIR=$work/laptop/dir mux new-session -d -x 96 -y 22 "$bin/leasetop"
until_true 10 screen_says LIVE
sleep 14 # a history worth seeing
kill -KILL "${agents[studio]}"
until_true 20 shows 'provider:studio state:unknown'
on laptop "$bin/lease" acquire --ttl 60 --label ci/build-2 z4 >/dev/null
on m5 "$bin/lease" acquire --ttl 8 --label chat m5 >/dev/null
until_true 20 screen_says 'l leased *chat'
until_true 20 screen_says 'was D'
mux capture-pane -e -p | awk -f "$here/picture.awk" >"$work/svg"
grep -q '</svg>' "$work/svg" && cp "$work/svg" "$svg" && echo "$svg"
