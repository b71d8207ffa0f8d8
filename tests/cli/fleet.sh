#!/bin/bash
# What people see of a fleet, with real agents on 127.0.0.1 at ports that are free: fleet.sh LEASE [CASE...]
#
# Each agent has a name and a runtime directory of its own, which makes it a host of its own: z4 with one
# slot, m5 with two, that nobody is asked about.
. "$(dirname "$0")/words.sh"

agent_program=$(dirname "$lease")/lease-agent

# ---- vocabulary -------------------------------------------------------------------------------

# host NAME [FLAG...]: an agent of that name in the directory $work/host/NAME, its lines in NAME.log
host()
{
    local name=$1
    shift
    mkdir -p -m 700 "$work/$case_name/$name"
    "$agent_program" --name "$name" --dir "$work/$case_name/$name" "$@" 2>"$name.log" &
    pids[$name]=$!
    until_true grep -q 'speaks for' "$name.log"
}
declare -A pids

# on NAME COMMAND [ARG...]: the command line on that host
on()
{
    local name=$1 command=$2
    shift 2
    "$lease" "$command" --dir "$work/$case_name/$name" "$@"
}

# endpoint NAME: where it listens
endpoint()
{
    on "$1" status --json | grep -o '"listen":"[^"]*"' | cut -d'"' -f4
}

end_hosts()
{
    local name
    for name in "${!pids[@]}"; do
        kill -CONT "${pids[$name]}" 2>/dev/null
        if kill "${pids[$name]}" 2>/dev/null; then
            wait "${pids[$name]}" 2>/dev/null || broken "$name did not end well: $(tail -c 600 "$name.log")"
        fi
        unset "pids[$name]"
    done
}

# told NAME COMMAND TEXT: what it prints there has the text
told()
{
    on "$1" $2 2>&1 | grep -qE -- "$3"
}

# soon CODE COMMAND...: as expect, but a peer may be slow to answer on a machine that has much to do
soon()
{
    until_true exits "$@"
}

exits()
{
    local want=$1
    shift
    "$@" >out 2>err
    [ $? = "$want" ]
}

# z4 and m5, which know each other; the latter alone was told of the former
two_hosts()
{
    host z4 --provider z4=static:1,own=yes --listen tcp://127.0.0.1:0
    until_true endpoint_is_there z4
    host m5 --provider m5=static:2,own=yes --listen tcp://127.0.0.1:0 --peer "$(endpoint z4)"
    until_true told z4 peers '^m5 .* live '
    until_true told m5 peers '^z4 .* live '
    until_true told m5 fleet '^z4 +ok +1 +1 .* fleet +z4 +live'
    until_true told z4 fleet '^m5 +ok +2 +2 .* fleet +m5 +live'
}

endpoint_is_there()
{
    [ -n "$(endpoint "$1")" ]
}

free_udp_port()
{
    perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); bind(S, sockaddr_in(0, INADDR_ANY));
                      print((sockaddr_in(getsockname(S)))[0])'
}

# ---- looking ----------------------------------------------------------------------------------

case_two_hosts_see_each_other()
{
    two_hosts
    expect 0 on m5 peers --json
    says out '"name":"z4"'
    says out '"same_name":false'
    says out '"state":"live"'
    expect 0 on m5 status
    says out "listen     $(endpoint m5)"
    says out 'peers      1, 1 of them live'
    expect 0 on m5 status --json
    says out '"outbound_only":false'
    expect 0 on m5 doctor
    says out 'ok     listen: '
    says out 'ok     z4: '
    on m5 run z4 -- sh -c "$lease ls --dir '$work/$case_name/z4'; echo \$LEASE_REACH" >out 2>err
    says out ' dispatched '
    says out ' m5 '
    grep -qx fleet out || broken "not known in the fleet: $(cat out)"
    silent err
    end_hosts
}

case_watch_shows_other_hosts()
{
    two_hosts
    "$lease" watch --dir "$work/$case_name/m5" z4 >watched 2>err & # not `on`: its shell would be killed
    local watcher=$!
    until_true grep -q '"event":"snapshot"' watched
    on z4 run z4 -- sh -c "until grep -q '\"event\":\"change\".*\"dispatched\":1' watched; do sleep 0.02; done"
    kill $watcher
    wait $watcher 2>/dev/null
    end_hosts
}

case_a_silent_host_is_stale_and_unknown()
{
    two_hosts
    kill -STOP "${pids[z4]}"
    until_true told m5 peers '^z4 .* silent '
    until_true told m5 fleet '^z4 +unknown +1 +- .* stale [0-9]'
    expect 1 on m5 doctor
    says out 'WRONG  z4: z4 owns it and was not heard for'
    says out 'does not answer as a lease-agent'
    kill -CONT "${pids[z4]}"
    until_true told m5 fleet '^z4 +ok +1 +1 .* live'
    end_hosts
}

case_forget()
{
    two_hosts
    expect 69 on m5 forget nobody
    one_line
    says err 'no such peer'
    mkdir -m 700 alone
    expect 69 on alone forget z4
    one_line
    says err 'no lease-agent'
    kill "${pids[z4]}"
    wait "${pids[z4]}" 2>/dev/null
    expect 0 on m5 forget z4
    silent out
    silent err
    until_true told m5 peers '^- .* never heard' # its endpoint is of the command line and stays
    expect 69 on m5 forget z4
    end_hosts
}

# ---- a host that has nothing but --peer ---------------------------------------------------------

case_run_from_a_host_with_only_a_peer()
{
    two_hosts
    mkdir -m 700 third
    local peer
    peer=$(endpoint z4)
    until_true told third "fleet --peer $peer" '^m5 '
    until_true told third "peers --peer $peer" '^m5 .* live '
    until_true told third "peers --peer $peer" '^z4 .* live '
    soon 0 on third run m5,z4 --peer "$peer" --label here -- sh -c 'echo "$LEASE_PROVIDER $LEASE_REACH"'
    grep -qx 'm5 fleet' out || broken "placed elsewhere: $(cat out)"
    silent err
    soon 3 on third run z4 --peer "$peer" -- sh -c 'exit 3'
    soon 0 on third acquire z4 --peer "$peer"
    local id
    id=$(cat out)
    told z4 'ls z4' "^$id +leased" || broken "its owner does not know it"
    expect 75 on m5 run z4 -- true
    one_line
    soon 0 on third run z4,m5 --peer "$peer" -- sh -c 'echo "$LEASE_PROVIDER"'
    grep -qx m5 out || broken "no fallback: $(cat out)"
    soon 0 on third verify "$id" --peer "$peer" --require owner --json
    says out '"basis":"owner"'
    expect 0 on third release "$id" --peer "$peer"
    until_true on m5 run z4 -- true # as soon as it has heard of the release
    mkdir -m 700 fourth
    expect 69 on fourth run z4 -- true
    one_line
    end_hosts
}

case_no_peer_answers()
{
    mkdir -m 700 third
    local nobody=tcp://127.0.0.1:1
    expect 0 on third fleet --peer "$nobody"
    says out 'no peer told of one'
    expect 0 on third peers --peer "$nobody"
    says out 'no peer answers'
    expect 69 on third run z4 --peer "$nobody" -- true
    one_line
    says err 'nor told by a peer that answers'
    expect 0 on third run z4 --peer "$nobody" --provider z4=static:1,own=yes -- true
    silent err
    echo 'peer = nonsense' >third.conf
    expect 64 on third fleet --config third.conf
    one_line
}

case_peers_of_the_configuration()
{
    two_hosts
    mkdir -m 700 third
    echo "peer = $(endpoint z4)" >third.conf
    soon 0 on third run m5 --config third.conf -- sh -c 'echo "$LEASE_REACH"'
    says out fleet
    mkdir -p "$HOME/.config/leasehold"
    cp third.conf "$HOME/.config/leasehold/leasehold.conf"
    soon 0 on third run m5 -- sh -c 'echo "$LEASE_REACH"'
    says out fleet
    end_hosts
}

case_hangup_reads_peers_anew()
{
    host z4 --provider z4=static:1,own=yes --listen tcp://127.0.0.1:0
    until_true endpoint_is_there z4
    echo 'listen = tcp://127.0.0.1:0' >m5.conf
    host m5 --provider m5=static:2,own=yes --config m5.conf
    expect 0 on m5 peers
    says out 'no peers'
    echo "peer = $(endpoint z4)" >>m5.conf
    kill -HUP "${pids[m5]}"
    until_true told m5 peers '^z4 .* live '
    echo 'peer = nonsense' >>m5.conf
    kill -HUP "${pids[m5]}"
    until_true grep -q 'goes on with the configuration as it was' m5.log
    until_true told m5 peers '^z4 .* live '
    end_hosts
}

# ---- the daemon's flags -----------------------------------------------------------------------

case_flags_that_are_wrong()
{
    local flags
    while read -r flags; do
        mkdir -p -m 700 a
        "$agent_program" --dir a $flags >out 2>err
        [ $? = 64 ] || broken "not wrong usage: $flags"
        [ "$(grep -vc warning: err)" = 1 ] && grep -q '^lease-agent: [^A-Z]' err ||
            broken "not one line: $(cat err)"
    done <<'END'
--listen nonsense
--listen tcp://0.0.0.0
--listen tcp://192.0.2.1:5771
--listen tcp://some.example
--publish nonsense
--publish relay=nonsense
--peer m5
--peer tcp://m5,name=
--peer tcp://m5,nome=m5
--advertise tcp://some.example
--beacon=0
--beacon=x
--relay
--relay --listen tcp://0.0.0.0:5771
--relay --listen tcp://127.0.0.1:0 --publish tcp://127.0.0.1:0
--http 127.0.0.1:1
END
}

case_a_host_that_only_asks_says_so()
{
    host z4 --provider z4=static:1,own=yes --listen tcp://127.0.0.1:0
    until_true endpoint_is_there z4
    host m5 --peer "$(endpoint z4)"
    says m5.log 'without listen this host only asks'
    until_true told m5 status 'nowhere: this host only asks'
    until_true told m5 fleet '^z4 .* live'
    expect 1 on m5 doctor
    says out 'WRONG  listen: nowhere'
    expect 0 on m5 run z4 -- true
    end_hosts
}

case_beacons_find_the_others()
{
    local port
    port=$(free_udp_port)
    host z4 --provider z4=static:1,own=yes --listen tcp://127.0.0.1:0 --beacon="$port"
    host m5 --provider m5=static:1,own=yes --listen tcp://127.0.0.1:0 --beacon="$port"
    host ear --beacon="$port"
    until_true told m5 peers '^z4 .* live '
    until_true told z4 peers '^m5 .* live '
    until_true told ear peers '^m5 .* live '
    until_true told ear peers '^z4 .* live '
    [ "$(on z4 peers --json | grep -o '"name"' | wc -l)" -le 2 ] || broken "one of them twice"
    end_hosts
}

case_a_busy_beacon_port_is_no_failure()
{
    perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); bind(S, sockaddr_in(0, INADDR_ANY)); $| = 1;
                      print((sockaddr_in(getsockname(S)))[0], "\n"); sleep' >port &
    local busy=$!
    until_true grep -q . port
    host z4 --provider z4=static:1,own=yes --listen tcp://127.0.0.1:0 --beacon="$(cat port)"
    until_true grep -q "no beacons: UDP port $(cat port)" z4.log
    kill $busy
    wait $busy 2>/dev/null
    until_true grep -q "beacons on UDP port $(cat port) from now on" z4.log
    expect 0 on z4 run z4 -- true
    end_hosts
}

case_relay()
{
    "$agent_program" --relay --listen tcp://127.0.0.1:0 2>relay.log &
    pids[relay]=$!
    until_true grep -q 'relays what is published to tcp://127.0.0.1:[0-9]*, heard at tcp://' relay.log
    kill "${pids[relay]}"
    wait "${pids[relay]}"
    [ $? = 0 ] || broken "not ended well"
    unset 'pids[relay]'
    host z4 --listen tcp://127.0.0.1:0
    until_true endpoint_is_there z4
    expect 69 "$agent_program" --relay --listen "$(endpoint z4)"
    says err 'in use'
    end_hosts
}

# ---- what is wrong ----------------------------------------------------------------------------

case_doctor_names_what_is_in_the_way()
{
    two_hosts
    local taken
    taken=$(endpoint z4)
    host c3 --provider z4=static:3,own=yes --listen "$taken" --peer "$(endpoint m5)"
    until_true grep -q "cannot listen at $taken (in use), tried again; until then it only asks others" c3.log
    until_true told m5 peers '^z4 .* live '
    expect 1 on c3 doctor
    says out "WRONG  listen: cannot listen at $taken (in use)"
    says out "end process ${pids[z4]} (lease-agent)"
    end_hosts
}

case_doctor_finds_twins_and_two_owners()
{
    two_hosts
    host twin --name z4 --provider z4=static:3,own=yes --listen tcp://127.0.0.1:0 --peer "$(endpoint m5)"
    until_true told m5 peers 'another host has this name'
    until_true told m5 fleet '^z4 .* conflict'
    expect 1 on m5 doctor
    says out 'WRONG  z4: two hosts have this name'
    says out 'WRONG  z4: several hosts own it'
    until_true told z4 doctor 'WRONG  z4: two hosts have this name'
    expect 0 on m5 status
    says out 'conflicts  1 provider'
    end_hosts
}

case_doctor_looks_at_peers()
{
    two_hosts
    mkdir -m 700 third
    local nobody
    nobody=tcp://127.0.0.1:$(perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0);
        bind(S, sockaddr_in(0, INADDR_LOOPBACK)); print((sockaddr_in(getsockname(S)))[0])')
    expect 0 on third doctor --peer "$(endpoint z4)"
    expect 1 on third doctor --peer "$(endpoint z4),name=other" --peer "$nobody"
    says out "is z4 and not other"
    says out "$nobody: the host is there, and nobody listens"
    expect 1 on third doctor --json --peer tcp://name.invalid
    says out 'no address is known for that name'
    end_hosts
}

# Its peers are the agent's alone to know: no file and no flag tells the doctor of them
case_doctor_of_a_host_that_only_has_peers()
{
    two_hosts
    host c3 --listen tcp://127.0.0.1:0 --peer "$(endpoint m5)"
    until_true told c3 fleet '^z4 +ok +1 +1 .* live'
    until_true told c3 fleet '^m5 +ok +2 +2 .* live'
    expect 0 on c3 doctor
    says out 'ok     providers: none of this host, those of its peers'
    says out 'ok     z4: z4 owns it, heard '
    says out 'ok     m5: m5 owns it, heard '
    expect 0 on m5 doctor
    says out 'ok     z4: z4 owns it, heard '
    ! grep -q 'm5 owns it' out || broken "named as another host's: $(cat out)"
    end_hosts
}

case_doctor_knows_what_others_do_not_reach()
{
    host z4 --provider z4=http://127.0.0.1:9 --listen tcp://127.0.0.1:0 --peer tcp://name.invalid
    until_true endpoint_is_there z4
    expect 1 on z4 doctor
    says out 'WRONG  listen: on loopback only, though there are peers on other hosts'
    says out 'add ,url=http://ADDRESS:9'
    end_hosts
}

case_doctor_knows_of_two_directories()
{
    mkdir -m 700 -p "$work/$case_name/run/leasehold"
    XDG_RUNTIME_DIR=$work/$case_name/run LEASE_DIR= "$agent_program" --provider $x 2>agent.log &
    pids[elsewhere]=$!
    until_true grep -q 'speaks for' agent.log
    if grep -q "$work" agent.log; then
        XDG_RUNTIME_DIR=$work/$case_name/run expect 1 "$lease" doctor --provider $x
        says out 'WRONG  directory: an agent is alive in'
    fi
    end_hosts
}

all_cases "$@"
