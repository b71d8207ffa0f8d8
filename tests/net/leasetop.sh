#!/bin/bash
# leasetop on a host without a server: a lease held, one dispatched, a stranger, and an owner whose agent is killed. It
# says so in words, glyph and colour, at two sizes of a real terminal, and its sums add up.
. "$(dirname "$0")/lib.sh"
command -v tmux >/dev/null || skip "no tmux here"
declare -A server_pid

for host in z4 m5 studio lap; do
    add_host "$host"
done
server z4 --slots 4 --tps 5
server m5 --slots 2 --tps 5
server studio --slots 1 --tps 5
agent z4 --provider "z4=$(url z4)"
for host in m5 studio; do
    agent $host --provider "$host=$(url $host)" --peer "tcp://${address[z4]}"
done
agent lap --peer "tcp://${address[z4]}"
for provider in z4 m5 studio; do
    within 10 owned lap $provider $provider
done
within 10 owned m5 studio studio

# generate FROM SERVER [COMMAND...]: a request that takes an hour, behind COMMAND
generate()
{
    local from=$1 at=$2
    shift 2
    start "$from" "$@" curl -s -d '{"prompt":"hello","n_predict":20000}' "$(url "$at")/completion" \
        >"$work/answer" 2>&1 &
    disown
}
generate lap z4 lease run --ttl 300 --label alice/train-7 z4 --
generate m5 studio lease run --ttl 300 --label subagent/12 studio --
generate m5 m5
within 20 sees lap m5 '.strangers == 1'
within 20 sees lap z4 '.dispatched == 1 and .strangers == 0'
within 20 sees lap studio '.dispatched == 1 and .strangers == 0'
on lap lease acquire --ttl 60 --label ci/build-2 z4 >"$work/acquired" || broken "no lease: $?"
kill -KILL "${agent_pid[studio]}"

mux()
{
    tmux -f /dev/null -S "$work/tmux" "$@"
}
entering lap
mux new-session -d -x 80 -y 24 "env LC_ALL=C.UTF-8 TERM=screen-256color ${enter[*]} leasetop"

# shows PATTERN: on the terminal's screen
shows()
{
    mux capture-pane -p | grep -Eq "$1"
}

# coloured WORD: not in the colour of everything else
coloured()
{
    mux capture-pane -e -p | grep -q $'\e\\[[0-9;]*m[^\e]*'"$1"
}

says_all()
{
    shows '^slots 7 : 3 \. free  1 l leased  1 D dispatched  1 ! stranger  1 \? unknown' &&
        shows 'm5@m5 .*! stranger  *without a lease' &&
        shows 'studio@studio .*\? unknown  *was D suba.*12@m5' &&
        shows 'z4@z4 .*l leased  *ci/build-2@lap' &&
        shows 'z4@z4 .*D dispatched  *alice/train-7@lap' &&
        shows 'hosts 4 \(studio silent' &&
        coloured '! stranger' && coloured '? unknown' && coloured 'l leased'
}
for size in "80 24" "120 30"; do
    mux resize-window -x "${size% *}" -y "${size#* }"
    within 10 says_all || mux capture-pane -p
done
mux send-keys q
within 5 not mux has-session
verdict
