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
echo "$victim $(awk '{ print $1 }' /proc/uptime)" >"$work/killed"
kill -KILL "$victim"
taken_over "the speaker is killed" "$victim"
embedded emb five near

before=$speaker
agent emb --provider near=static:$slots,own=yes --provider "read=llama.cpp+$(url emb)" \
    --peer "tcp://${address[z4]}"
taken_over "a daemon starts" "$before"
[ "$speaker" = "${agent_pid[emb]}" ] || broken "it is not the daemon"

daemon=${agent_pid[emb]}
kill -KILL "$daemon"
taken_over "the daemon is killed" "$daemon"
before=$speaker
agent emb --provider near=static:$slots,own=yes --provider "read=llama.cpp+$(url emb)" \
    --peer "tcp://${address[z4]}"
taken_over "and started again" "$before"
[ "$speaker" = "${agent_pid[emb]}" ] || broken "it is not the daemon"
within 5 owned z4 read emb

echo "the speaker is stopped"
kill -STOP "${agent_pid[emb]}"
within 6 sees z4 near '.state == "stale"'
verdict_of()
{
    local code=0
    on "$1" lease run read -- true 2>"$work/said" || code=$?
    echo "  from $1: exit $code: $(cat "$work/said")"
    [ $code = 0 ] || broken "no go from $1 while the speaker is stopped"
}
verdict_of z4
grep -q 'stands on reading' "$work/said" || broken "basis is not the reading: $(cat "$work/said")"
verdict_of emb
local_gos=$(grep -c ' go ' "$work/two.log")
pause 1
[ "$(grep -c ' go ' "$work/two.log")" -gt "$local_gos" ] || broken "the clients of its host stand still"
on emb lease doctor >"$work/doctor" && broken "doctor finds nothing"
grep -q "${agent_pid[emb]}" "$work/doctor" || broken "doctor does not name the process: $(cat "$work/doctor")"
kill -CONT "${agent_pid[emb]}"
within 5 owned z4 near emb
goes_on

for name in two three four five remote1 remote2; do
    kill -TERM "${placement[$name]}"
    within 10 not kill -0 "${placement[$name]}"
done

# ---- counting ----------------------------------------------------------------------------------

# count PROVIDER SLOTS NAME...: no token twice, never more at once than there are slots, where the owner said go
count()
{
    local provider=$1 most=$2 name logs=()
    shift 2
    for name; do
        logs+=("$work/$name.log")
    done
    sort -n "${logs[@]}" | awk -v provider="$provider" -v most="$most" -v killed="$(cat "$work/killed")" '
        BEGIN { split(killed, k, " ") }
        # what ran in the killed one has ended with it
        $1 / 1e9 > k[2] && $3 == k[1] { next }
        $1 / 1e9 > k[2] { delete running[k[1]] }
        $2 == "go" {
            gos++; basis[$5]++
            if ($5 != "owner" && $1 / 1e9 > k[2]) late++
            if ($4 != 0 && seen[$4]++) { print "token " $4 " twice"; bad = 1 }
            # by the owner, local or asked: the others are no promise
            if ($5 == "owner") { running[$3] = 1; for (p in running) n++; if (n > at_once) at_once = n; n = 0 }
        }
        $2 == "end" { delete running[$3] }
        $2 == "no" { nos++ }
        END {
            printf "%s: %d gos (", provider, gos
            for (b in basis) printf "%s %d ", b, basis[b]
            printf "), %d times none, at most %d at once of %d\n", nos, at_once, most
            # the owner of far was there all the time, if perhaps slow on a busy machine
            exit bad || at_once > most || gos < 200 || (provider == "far" && late * 20 > gos)
        }' || broken "$provider: gos were lost or doubled"
}
count near $slots one two five remote1
count far $slots three four remote2
for provider in near far; do
    within 10 sees z4 $provider '.leases == [] and .waiting == 0 and .orphans == 0 and .available == '$slots
done
within 5 equal_views near z4 emb
verdict
