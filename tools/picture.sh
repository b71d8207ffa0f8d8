#!/bin/bash
# Draws tools/leasetop.svg anew: leasetop in a real terminal (tmux), over servers of ours that stand
# in for llama-server, with leases, a stranger and a server that went down.
#
#   tools/picture.sh [BIN [FILE.svg]]      BIN: the folder of the programs, build/bin by default
set -eu
here=$(dirname "$(realpath "$0")")
bin=$(realpath "${1:-$here/../build/bin}")
svg=$(realpath -m "${2:-$here/leasetop.svg}")
work=$(mktemp -d /tmp/leasetop-picture-XXXXXX)
unset "${!LEASE_@}" NO_COLOR
export LEASE_DIR=$work/dir HOME=$work XDG_CONFIG_HOME='' LC_ALL=C.UTF-8
mkdir -m 700 "$LEASE_DIR"
started=()
mux() { tmux -f /dev/null -S "$work/tmux" "$@"; }
clean_up()
{
    mux kill-server 2>/dev/null
    kill -KILL "${started[@]}" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

# until_true SECONDS COMMAND...
until_true()
{
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "never true: $*" >&2; exit 1; }
        sleep 0.05
    done
}

# serve NAME SLOTS
serve()
{
    "$bin/slotserver" --slots "$2" --tps 5 --port-file "$work/$1.port" >/dev/null 2>&1 &
    started+=($!)
    pids[$1]=$!
    until_true 10 test -s "$work/$1.port"
    declared+=(--provider "$1=http://127.0.0.1:$(cat "$work/$1.port")")
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
# leased NAME LABEL: dispatched, with its work
leased()
{
    in_background "$bin/lease" run --ttl 300 --label "$2" "$1" -- \
        bash "$work/generate" "$(cat "$work/$1.port")" >/dev/null 2>&1
}
shows() { "$bin/leasetop" -b -n 1 -F "$1"; }

declare -A pids
declared=()
serve z4 4
serve m5 2
serve studio 1
serve old-mac 2
in_background "$bin/lease-agent" "${declared[@]}" >/dev/null 2>&1
until_true 10 shows 'provider:old-mac state:free'
leased z4 alice/train-7
leased z4 subagent/12
leased studio nightly-eval
in_background generate m5
until_true 20 shows 'provider:m5 state:stranger'
until_true 20 shows 'provider:studio state:dispatched'

mux new-session -d -x 96 -y 22 "$bin/leasetop"
until_true 10 bash -c "tmux -S $work/tmux capture-pane -p | grep -q LIVE"
kill "${pids[old-mac]}"
sleep 14 # a history worth seeing
"$bin/lease" acquire --ttl 60 --label ci/build-2 z4 >/dev/null
"$bin/lease" acquire --ttl 8 --label chat m5 >/dev/null
until_true 20 bash -c "tmux -S $work/tmux capture-pane -p | grep -q 'l leased *chat'"
until_true 20 bash -c "tmux -S $work/tmux capture-pane -p | grep -q 'down: '"
mux capture-pane -e -p | awk -f "$here/picture.awk" >"$work/svg"
grep -q '</svg>' "$work/svg" && cp "$work/svg" "$svg" && echo "$svg"
