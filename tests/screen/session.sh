#!/bin/bash
# A real session: leasetop in tmux, over an agent that is killed and comes back.
#
#   session.sh BIN     the folder of leasetop, lease, lease-agent and slotserver
#
# Nothing sleeps to wait for something: `until_shown` looks again and again. 77: no tmux.
set -u
bin=$(realpath "${1:?folder of the programs}")
command -v tmux >/dev/null || { echo "no tmux"; exit 77; }
work=$(mktemp -d /tmp/leasetop-session-XXXXXX)
unset "${!LEASE_@}" NO_COLOR
export LEASE_DIR=$work/dir HOME=$work XDG_CONFIG_HOME='' LC_ALL=C.UTF-8
mkdir -m 700 "$LEASE_DIR"
failures=0
started=()

mux()
{
    tmux -f /dev/null -S "$work/tmux" "$@"
}

clean_up()
{
    mux kill-server 2>/dev/null
    kill -KILL "${started[@]}" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

broken()
{
    echo "FAILED: $*"
    failures=$((failures + 1))
}

screen()
{
    mux capture-pane -p
}

# until_shown TEXT [SECONDS]: it stands on the screen
until_shown()
{
    local end=$(($(date +%s%N) + ${2:-20} * 1000000000))
    until screen | grep -qF -- "$1"; do
        [ "$(date +%s%N)" -lt "$end" ] || { broken "no '$1':"; screen; return 1; }
        sleep 0.02
    done
}

until_gone()
{
    local end=$((SECONDS + 20))
    while screen | grep -qF -- "$1"; do
        [ $SECONDS -lt $end ] || { broken "still '$1':"; screen; return 1; }
        sleep 0.02
    done
}

start_agent()
{
    "$bin/lease-agent" --dir "$LEASE_DIR" --provider "z4=http://127.0.0.1:$port" \
        --provider tally=static:2,own=yes >"$work/agent.out" 2>&1 &
    agent=$!
    started+=("$agent")
}

# ---- the stage ------------------------------------------------------------------------------------------

"$bin/slotserver" --slots 4 --tps 5 --port-file "$work/port" >"$work/server.out" 2>&1 &
started+=($!)
until [ -s "$work/port" ]; do sleep 0.01; done
port=$(cat "$work/port")
start_agent
until "$bin/leasetop" -b -n 1 -F state:free >"$work/out" 2>&1; do sleep 0.05; done
"$bin/lease" acquire --ttl 60 --label $'evil\033[31m\033]0;gone\007' z4 >"$work/id" 2>&1 || broken "acquire"
# real work, so that no ghost is seen
cat >"$work/generate" <<END
exec 3<>/dev/tcp/127.0.0.1/$port
body='{"prompt":"hello","n_predict":20000}'
printf 'POST /completion HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %s\\r\\n\\r\\n%s' \\
    "\${#body}" "\$body" >&3
exec cat <&3
END
"$bin/lease" run --ttl 60 --label worker z4 -- bash "$work/generate" >/dev/null 2>"$work/run.err" &
started+=($!)

# ---- batch ----------------------------------------------------------------------------------------------

# batch CODE ARGUMENT...
batch()
{
    local want=$1 got
    shift
    "$bin/leasetop" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$want" ] || broken "exit $got instead of $want: $* ($(cat "$work/err"))"
}

batch 0 -b -n 1 -F state:free
batch 75 -b -n 1 -F state:orphan
batch 64 -F nosuch:field
grep -q '^leasetop: -F: no field' "$work/err" || broken "no line about the field"
batch 64 -F state:bogus
grep -q '^leasetop: -F: no state .bogus., one of .*free' "$work/err" || broken "no line about the state"
batch 64 --nonsense
batch 64 -d 0.01
batch 0
[ "$(grep -c '^leasetop' "$work/out")" = 1 ] || broken "a pipe gets one frame"
batch 0 -j -n 3 -d 0.2
[ "$(wc -l <"$work/out")" = 3 ] || broken "three frames are three lines"
batch 0 -b -n 1
! LC_ALL=C grep -q '[[:cntrl:]]' "$work/out" || broken "control characters: $(cat -v "$work/out")"
"$bin/leasetop" -b -n 1 >&- 2>"$work/err"
[ $? = 70 ] || broken "closed output: $(cat "$work/err")"
many=(--dir "$work/many") # a frame that is longer than a buffer
mkdir -m 700 "$work/many"
for i in {1..40}; do many+=(--provider "many-$i=static:2"); done
for mode in -b -j; do
    timeout 20 "$bin/leasetop" $mode -d 0.2 "${many[@]}" >/dev/full 2>"$work/err"
    [ $? = 70 ] || broken "full output with $mode: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" = 1 ] || broken "one line about a full output: $(cat "$work/err")"
done
"$bin/leasetop" -b -d 0.2 | head -1 >"$work/out"
[ "${PIPESTATUS[0]}" = 0 ] || broken "a reader that leaves is no error"

# ---- terminals that are none ------------------------------------------------------------------------------

# in_terminal TERM COMMAND: its output in a terminal of its own
in_terminal()
{
    timeout 20 script -qec "TERM=$1 $2" /dev/null </dev/null 2>&1 | tr -d '\r'
}
if command -v script >/dev/null; then
    in_terminal nonesuch "$bin/leasetop < /dev/tty" >"$work/out"
    grep -qF "unknown terminal 'nonesuch'; try TERM=xterm or leasetop -b" "$work/out" ||
        broken "unknown terminal: $(cat "$work/out")"
    in_terminal dumb "$bin/leasetop < /dev/tty" >"$work/out"
    grep -q "terminal 'dumb' cannot place its cursor" "$work/out" || broken "dumb: $(cat "$work/out")"
    in_terminal xterm "$bin/leasetop < /dev/null" >"$work/out"
    grep -q "no keys can be read" "$work/out" || broken "no input: $(cat "$work/out")"
fi

# ---- the session ----------------------------------------------------------------------------------------

type_line()
{
    mux send-keys -l "$1" && mux send-keys Enter
}

mux new-session -d -x 80 -y 24 "exec bash --norc --noprofile -i"
type_line "stty -a >$work/before; PS1='> '; clear"
until [ -s "$work/before" ]; do sleep 0.01; done
type_line "$bin/leasetop"
until_shown LIVE
until_shown 'D dispatched worker@'
until_shown 'l leased     evil?['
until_shown 'free now : z4 2 of 4'
screen | grep -q 'z4 Dl\.\.' || broken "the strip: $(screen)"

mux send-keys / && until_shown 'filter: '
mux send-keys state:free Enter && until_shown 'hidden)' && until_gone 'D dispatched worker'
mux send-keys Escape && until_shown 'D dispatched worker@'
mux send-keys '?' && until_shown 'No key changes anything' && mux send-keys x
mux send-keys h && until_shown 'LAST MINUTES' && mux send-keys h && until_shown HOLDER
mux send-keys p && until_shown PAUSED && mux send-keys p && until_gone PAUSED
mux send-keys s && until_shown 'sort by:' && mux send-keys p && until_shown 'sort provider'
mux send-keys j && until_shown 'order kept' && mux send-keys Escape

# a resize is no key: neither in the filter nor on the help page
mux send-keys / && until_shown 'filter: ' && mux resize-window -x 120 -y 30 && until_shown 'REACH'
mux send-keys Left state:free && until_shown 'filter: state:free' && mux send-keys Escape
until_gone 'filter: state'
mux send-keys '?' && until_shown 'No key changes' && mux resize-window -x 100 -y 30
mux send-keys x && until_gone 'No key changes' && until_shown HOLDER
mux resize-window -x 120 -y 30 && until_shown 'REACH'
mux resize-window -x 40 -y 10 && until_gone REACH && until_shown LIVE
mux resize-window -x 20 -y 3 && until_shown '2. 1l 1D'
mux resize-window -x 1 -y 1
mux resize-window -x 300 -y 100 && until_shown EPOCH
mux resize-window -x 80 -y 24 && until_gone EPOCH && until_shown HOLDER

before=$(date +%s%N)
kill -KILL "$agent" && wait "$agent" 2>/dev/null
until_shown 'AGENT LOST' 3 && echo "lost after $((($(date +%s%N) - before) / 1000000)) ms"
until_shown 'was 2 . free' && until_shown 'only fresh readings count' && until_shown 'z4 Dl??'
screen | grep -q 'by the book' || broken "leases by the book: $(screen)"
screen | grep -q 'free now : none\|free now : tally' || broken "free without an agent: $(screen)"
mux send-keys h && until_shown 'LAST MINUTES' && mux send-keys h && until_shown HOLDER
start_agent
until_shown LIVE && until_gone 'AGENT LOST' && until_shown 'free now : z4 2 of 4'

mux send-keys C-z && until_shown Stopped && type_line fg && until_shown HOLDER
mux send-keys q && until_gone HOLDER
type_line "echo ended with \$?; stty -a >$work/after" && until_shown 'ended with 0'
until [ -s "$work/after" ]; do sleep 0.01; done
cmp -s "$work/before" "$work/after" || broken "stty: $(diff "$work/before" "$work/after")"

# ended by a signal, and without colour
type_line "clear; NO_COLOR=1 $bin/leasetop" && until_shown LIVE
mux capture-pane -e -p | grep -q $'\033\\[[0-9;]*3[0-7]m' && broken "colour in spite of NO_COLOR"
kill -TERM "$(pgrep -P "$(mux display-message -p '#{pane_pid}')")" && until_gone HOLDER
rm "$work/after"
type_line "stty -a >$work/after" && until [ -s "$work/after" ]; do sleep 0.01; done
cmp -s "$work/before" "$work/after" || broken "stty after TERM: $(diff "$work/before" "$work/after")"

# ended by a fault of its own: the screen, the cursor, the mouse and the line are as before. Not in the
# shell itself, which would mend the line.
type_line "clear; sh -c '$bin/leasetop -m; stty -a >$work/fault'" && until_shown LIVE
[ "$(mux display-message -p '#{alternate_on} #{cursor_flag} #{mouse_any_flag}')" = '1 0 1' ] ||
    broken "no screen was taken"
kill -ABRT "$(pgrep -x leasetop -s "$(mux display-message -p '#{pane_pid}')")"
until [ -s "$work/fault" ]; do sleep 0.01; done
until_gone HOLDER
[ "$(mux display-message -p '#{alternate_on} #{cursor_flag} #{mouse_any_flag}')" = '0 1 0' ] ||
    broken "the screen was not given back by an abort"
cmp -s "$work/before" "$work/fault" || broken "stty after an abort: $(diff "$work/before" "$work/fault")"

# the terminal closes: nobody spins on
mux new-window "exec $bin/leasetop"
until_shown HOLDER
pid=$(mux display-message -p '#{pane_pid}')
mux kill-window
end=$((SECONDS + 10))
while kill -0 "$pid" 2>/dev/null; do
    [ $SECONDS -lt $end ] || { broken "still there after its terminal closed"; break; }
    sleep 0.02
done

[ $failures = 0 ] && echo "all well" || echo "$failures failures"
[ $failures = 0 ]
