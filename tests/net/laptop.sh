#!/bin/bash
# A laptop off the network, three providers named: the answer comes within 1.5 s in all, and is never a go to
# a server that is not reached.
. "$(dirname "$0")/lib.sh"

owners=(z4 m5 k2)
for host in "${owners[@]}" lap; do
    add_host "$host"
done
urls=()
for host in "${owners[@]}"; do
    server "$host"
    agent "$host" --provider "$host=$(url "$host")" --peer "tcp://${address[z4]}"
    urls+=(--provider "$host=$(url "$host")")
done

# answers_no CODES HOW OPTION...: in time, and the command is not run
answers_no()
{
    local codes=$1 how=$2 code=0 begun took
    shift 2
    rm -f "$work/ran"
    begun=$(now_ms)
    on lap lease run "$@" z4,m5,k2 -- touch "$work/ran" 2>"$work/said" || code=$?
    took=$(($(now_ms) - begun))
    echo "$how: exit $code after $took ms: $(cat "$work/said")"
    # 0.3 s for the programs to start on a busy machine
    [ $took -le 1800 ] || broken "$how: $took ms"
    [[ " $codes " = *" $code "* ]] || broken "$how: exit $code"
    [ ! -e "$work/ran" ] || broken "$how: the command was run"
    [ "$(wc -l <"$work/said")" = 1 ] || broken "$how: not one line"
}

# all_ways HOW: as an agent, and as a bare client
all_ways()
{
    answers_no "75 69" "$1, agent, asked first" --timeout 1.5
    answers_no "75 69" "$1, agent, asked again"
    answers_no "75 69" "$1, agent, in the queue" --wait 0.1 --timeout 1.3
    answers_no "75 69" "$1, agent, owner wanted" --require owner
    answers_no "75 69" "$1, only peers" --dir "$work/lap/none" --peer "tcp://${address[z4]}"
    answers_no "75 69" "$1, only addresses" --dir "$work/lap/none" "${urls[@]}"
}

mkdir -m 700 "$work/lap/none"
agent lap --peer "tcp://${address[z4]}"
for provider in "${owners[@]}"; do
    within 10 owned lap "$provider" "$provider"
done
on lap lease run z4,m5,k2 -- true || broken "no go while all is well: $?"

sever lap
all_ways "packets are lost"
heal lap
within 10 owned lap z4 z4
ip -n "$switch-lap" link set eth0 down
all_ways "no link"
ip -n "$switch-lap" link set eth0 up
for provider in "${owners[@]}"; do
    within 10 owned lap "$provider" "$provider"
done
echo "back after $took_ms ms"
on lap lease run --require owner z4,m5,k2 -- true || broken "no go when it is back: $?"
verdict
