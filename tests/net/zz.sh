#!/bin/bash
# Who speaks changes under four embedded agents and their traffic, from here and from another host: the speaker is
# killed, a daemon starts, it is killed and started again, it is stopped. Somebody else speaks within a second, no
# provider is left without an owner, no go is lost, and none is given twice.
. "$(dirname "$0")/lib.sh"

slots=3
add_host z4
add_host emb
server emb --slots 2
agent z4 --provider far=static:$slots,own=yes --peer "tcp://${address[emb]}"

# embedded HOST NAME PROVIDER [OPTION...]
declare -A placement
embedded()
{
    local host=$1 name=$2
    shift 2
    start "$host" embedded "$work/$name.log" "$@" 2>>"$work/$host/log" &
    placement[$name]=$!
    disown
}

speaker_of()
{
    on "$1" lease status --json | jq -r 'select(.speaker.alive) | .speaker.pid'
}

# The first one brings the configuration, the others take what it has left.
first=("listen:tcp://${address[emb]}" "peer:tcp://${address[z4]}" "near=static:$slots,own=yes"
    "read=llama.cpp+$(url emb)")
embedded emb one near "${first[@]}"
embedded_speaks()
{
    [ "$(speaker_of emb)" = "${placement[one]}" ]
}
within 10 embedded_speaks
within 10 owned z4 near emb
embedded emb two near
embedded emb three far
embedded emb four far
# from the other host, which asks whoever speaks
embedded z4 remote1 near client
embedded z4 remote2 far client
for name in one two three four remote1 remote2; do
    # those that asked before the speaker had heard of the owner go by what their host knows
    within 10 grep -q ' go .* owner' "$work/$name.log"
done
pause 1

# somebody_else OLD: speaks for emb, and answers the other host
somebody_else()
{
    speaker=$(speaker_of emb)
    [ -n "$speaker" ] && [ "$speaker" != "$1" ]
}

goes_on()
{
    local was
    was=$(grep -c ' go .* owner' "$work/remote1.log")
    within 5 more_gos "$was"
}

more_gos()
{
    [ "$(grep -c ' go .* owner' "$work/remote1.log")" -gt $(($1 + 3)) ]
}

# taken_over HOW OLD: within a second, and a bit for looking
taken_over()
{
    within 5 somebody_else "$2"
    echo "$1: process $speaker speaks after $took_ms ms"
    [ $took_ms -le 1500 ] || broken "$1: only after $took_ms ms"
    goes_on
    echo "  the other host's goes by the owner go on after $took_ms ms"
    [ $took_ms -le 3000 ] || broken "$1: the other host is answered only after $took_ms ms"
    within 5 owned z4 near emb
}

victim=${placement[one]}
kill -KILL "$victim"
echo "$victim $(awk '{ print $1 }' /proc/uptime)" >"$work/killed"
taken_over "the speaker is killed" "$victim"
embedded emb five near

before=$speaker
grep ". go" $work/three.log | tail -n 1
agent emb --provider near=static:$slots,own=yes --provider "read=llama.cpp+$(url emb)" \
    --peer "tcp://${address[z4]}"
taken_over "a daemon starts" "$before"
[ "$speaker" = "${agent_pid[emb]}" ] || broken "it is not the daemon"

daemon=${agent_pid[emb]}
kill -KILL "$daemon"
taken_over "the daemon is killed" "$daemon"
before=$speaker
grep ". go" $work/three.log | tail -n 1
agent emb --provider near=static:$slots,own=yes --provider "read=llama.cpp+$(url emb)" \
    --peer "tcp://${address[z4]}"
taken_over "and started again" "$before"
[ "$speaker" = "${agent_pid[emb]}" ] || broken "it is not the daemon"
within 5 owned z4 read emb

pause 1
tail -n 2 $work/three.log
cat > $work/g <<'X'
set pagination off
break remote_owner
continue
print provider->name
print *provider->agent->remote
print *provider->agent->remote->file
print provider->owned
print provider->mirrored
print provider->has_spec
print provider->agent->remote->file->routes[0]
print provider->agent->remote->file->routes[1]
print provider->agent->remote->file->routes[2]
finish
X
gdb -p ${placement[three]} -batch -x $work/g 2>&1 | grep -A3000 "hit Breakpoint" | cut -c1-700
jq -c .routes $work/emb/run/fleet.json
verdict
