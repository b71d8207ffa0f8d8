# The stage of the tests with a network: hosts that are network namespaces on a bridge, each with a runtime
# directory, a home and an agent of its own. To be sourced; wants the folder of the programs as $1.
#
# Nothing sleeps to wait for something: `within` looks again until a deadline, and says how long it took. A
# namespace costs root and iproute2: without them the test says so and exits 77.
set -u

bin=$(realpath "${1:?folder of the programs}")
case_name=$(basename "$0" .sh)
here=$(dirname "$(realpath "$0")")
failures=0
full=${FULL:-} # the long form of what is short in CI

skip()
{
    echo "skipped: $*"
    exit 77
}

[ "$(id -u)" = 0 ] || skip "network namespaces want root"
for program in ip nsenter unshare jq curl; do
    command -v $program >/dev/null || skip "no $program here"
done
switch=lh$$
ip netns add $switch 2>/dev/null || skip "no network namespace is to be had"

work=$(mktemp -d "/tmp/lease-net-XXXXXX")
declare -A address agent_pid server_pid
hosts=()
unset "${!LEASE_@}" STATE_DIRECTORY XDG_RUNTIME_DIR http_proxy https_proxy all_proxy

# Whatever runs in the namespaces ends with the test, stopped or not; nothing else is touched.
leave()
{
    trap - EXIT INT TERM HUP
    local host pids
    for host in "${hosts[@]}" ; do
        pids=$(ip netns pids "$switch-$host" 2>/dev/null)
        # shellcheck disable=SC2086
        [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
    done
    wait 2>/dev/null
    for host in "${hosts[@]}"; do
        umount "$work/$host/uts"
        ip netns del "$switch-$host"
    done
    ip netns del $switch
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- saying -----------------------------------------------------------------------------------

broken()
{
    echo "FAILED $case_name: $*"
    failures=$((failures + 1))
}

# The end of each test.
verdict()
{
    local host
    if [ $failures -gt 0 ]; then
        for host in "${hosts[@]}"; do
            [ ! -s "$work/$host/log" ] || { echo "---- agent of $host"; tail -n 30 "$work/$host/log"; }
        done
        [ -z "${KEEP:-}" ] || { echo "waiting, work is $work; press enter"; read -r _; }
        exit 1
    fi
    echo "$case_name: as it must be"
    exit 0
}

now_ms()
{
    echo $((${EPOCHREALTIME/./} / 1000))
}

# within SECONDS COMMAND...: looks until it is true; took_ms is how long that was
within()
{
    local begun end
    begun=$(now_ms)
    end=$((begun + $1 * 1000))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ "$(now_ms)" -ge $end ]; then
            took_ms=-1
            broken "in $(((end - begun) / 1000)) s never true: $*"
            return 1
        fi
        read -rt 0.02 <>"$work/nothing"
    done
    took_ms=$(($(now_ms) - begun))
}

# throughout SECONDS COMMAND...: is true at each look
throughout()
{
    local end=$(($(now_ms) + $1 * 1000))
    shift
    while [ "$(now_ms)" -lt $end ]; do
        "$@" >/dev/null 2>&1 || { broken "not true throughout: $*"; return 1; }
        read -rt 0.05 <>"$work/nothing"
    done
}

# pause SECONDS: time that has to pass, where that is what is tested
pause()
{
    read -rt "$1" <>"$work/nothing"
    true
}
mkfifo "$work/nothing"

not()
{
    ! "$@"
}

# ---- hosts and links --------------------------------------------------------------------------

ip -n $switch link add bridge type bridge
ip -n $switch link set bridge up

# add_host NAME: 10.77.0.N on the bridge, loopback of its own
add_host()
{
    local host=$1 n=$((${#hosts[@]} + 1))
    hosts+=("$host")
    address[$host]=10.77.0.$n
    ip netns add "$switch-$host"
    ip -n $switch link add "port-$host" type veth peer name eth0 netns "$switch-$host"
    ip -n $switch link set "port-$host" master bridge up
    ip -n "$switch-$host" address add "10.77.0.$n/24" dev eth0
    ip -n "$switch-$host" link set eth0 up
    ip -n "$switch-$host" link set lo up
    mkdir -p "$work/$host/home"
    mkdir -m 700 "$work/$host/run"
    : >"$work/$host/uts"
    unshare "--uts=$work/$host/uts" hostname "$host"
}

# The words in front of a command of that host: its files, its network, its name.
entering()
{
    enter=(env "LEASE_DIR=$work/$1/run" "HOME=$work/$1/home" "XDG_CONFIG_HOME=$work/$1/config"
        "XDG_STATE_HOME=$work/$1/state" "PATH=$bin:$PATH"
        nsenter "--net=/run/netns/$switch-$1" "--uts=$work/$1/uts" --)
}

# on HOST COMMAND...: there
on()
{
    local enter host=$1
    shift
    entering "$host"
    "${enter[@]}" "$@"
}

# start HOST COMMAND...: the same in place of this shell, for the background: $! is the command itself
start()
{
    entering "$1"
    shift
    exec "${enter[@]}" "$@"
}

# sever HOST, heal HOST: frames are lost at the bridge, which neither end notices
sever()
{
    ip -n $switch link set "port-$1" nomaster
}

heal()
{
    ip -n $switch link set "port-$1" master bridge
}

# deafen HOST FROM: what FROM sends does not reach HOST; the other way all is well
deafen()
{
    ip -n "$switch-$2" neigh replace "${address[$1]}" lladdr 02:00:00:00:00:99 dev eth0 nud permanent
}

undeafen()
{
    ip -n "$switch-$2" neigh del "${address[$1]}" dev eth0
}

# ---- agents and servers -----------------------------------------------------------------------

# agent HOST FLAG...: starts its daemon, and waits until it speaks
agent()
{
    local host=$1
    shift
    start "$host" lease-agent --name "$host" --listen "tcp://${address[$host]}" --insecure "$@" \
        >>"$work/$host/log" 2>&1 &
    agent_pid[$host]=$!
    disown
    within 10 speaks "$host"
}

speaks()
{
    on "$1" lease status --json | jq -e --argjson pid "${agent_pid[$1]}" '.speaker.pid == $pid'
}

# end_agent HOST SIGNAL: and waits until it is gone
end_agent()
{
    kill "-$2" "${agent_pid[$1]}"
    within 10 not kill -0 "${agent_pid[$1]}"
}

# server HOST [OPTION...]: a llama-server of that host, at port 8080
server()
{
    local host=$1
    shift
    start "$host" slotserver --host "${address[$host]}" --port 8080 "$@" >"$work/$host/server.log" 2>&1 &
    server_pid[$host]=$!
    disown
    within 10 on "$host" curl -sf -o "$work/answer" "$(url "$host")/_stats"
}

url()
{
    echo "http://${address[$1]}:8080"
}

# stats HOST JQ: of the counters of its server
stats()
{
    on "$1" curl -sf "$(url "$1")/_stats" | jq -r "$2"
}

# ---- views ------------------------------------------------------------------------------------

# look HOST PROVIDER JQ: of how the provider is seen there
look()
{
    on "$1" lease fleet --json 2>>"$work/$1/errors" |
        jq -r --arg p "$2" '.providers[] | select(.provider == $p) | '"$3"
}

# sees HOST PROVIDER JQ: whether that is true there
sees()
{
    on "$1" lease fleet --json 2>>"$work/$1/errors" |
        jq -e --arg p "$2" '.providers[] | select(.provider == $p) | '"$3"
}

# What differs from host to host, and from one moment to the next, left out.
lasting='del(.heard_ms, .capacity.age_ms)
    | .work |= map(del(.for_ms))
    | .leases |= (map(del(.age_secs, .dispatched_secs, .left_ms, .idle_secs)) | sort_by(.id))'

# equal_views PROVIDER HOST...
equal_views()
{
    local provider=$1 first=$2 host
    shift
    for host; do
        look "$host" "$provider" "$lasting" >"$work/view-$host"
        [ -s "$work/view-$host" ] && cmp -s "$work/view-$first" "$work/view-$host" || return 1
    done
}

# owned HOST PROVIDER OWNER: so it is seen there, and that owner is heard
owned()
{
    sees "$1" "$2" ".owner == \"$3\" and .state == \"live\"" >/dev/null
}

# ids_at HOST PROVIDER: a line a lease that is seen there: id, state, token
ids_at()
{
    look "$1" "$2" '.leases | map(.id + " " + .state + " " + (.token | tostring)) | sort | .[]'
}

# ---- work -------------------------------------------------------------------------------------

declare -A holder

# hold HOST NAME PROVIDER [OPTION...]: `lease run`, labelled NAME, of work that ends when it is told to. The
# lease's id and token are in the files NAME.id and NAME.token of $work
hold()
{
    local host=$1 name=$2 provider=$3
    shift 3
    # shellcheck disable=SC2016
    start "$host" lease run --label "$name" --require owner "$@" "$provider" -- sh -c '
        echo "$LEASE_TOKEN" >"$0.token"; echo "$LEASE_ID" >"$0.new"; mv "$0.new" "$0.id"
        while [ ! -e "$0.end" ]; do sleep 0.05; done' "$work/$name" 2>"$work/$name.err" &
    holder[$name]=$!
    within 10 test -e "$work/$name.id"
}

# finish NAME: its work ends; how it went is in $?
finish()
{
    : >"$work/$1.end"
    wait "${holder[$1]}"
}
