# The hosts of demo.sh: network namespaces where root allows, else addresses of loopback. To be sourced;
# wants $work and hosts=(NAME...).

declare -A address agent
net=lhdemo$$
namespaces=no
server_port=8080 agent_port=5771
started=() # process ids to be ended

# Nothing is left: no process, no namespace, no file.
finish()
{
    trap - EXIT INT TERM HUP
    local host
    [ ${#started[@]} = 0 ] || kill -KILL "${started[@]}" 2>/dev/null || :
    local running
    running=$(jobs -p)
    # shellcheck disable=SC2086
    [ -z "$running" ] || kill -KILL $running 2>/dev/null || :
    wait 2>/dev/null || :
    if [ $namespaces = yes ]; then
        for host in "${hosts[@]}"; do ip netns del "$net-$host" 2>/dev/null || :; done
        ip netns del "$net" 2>/dev/null || :
    fi
    rm -rf "$work"
}

# in_net NAMESPACE COMMAND...: there. Not `ip -n`, which wants mounts of its own and gets none in a chroot.
in_net()
{
    nsenter "--net=/run/netns/$1" -- "${@:2}"
}

# The network of the hosts; where none is to be had, as in many a container, it is said why.
make_network()
{
    local why
    if why=$(ip netns add "$net" 2>&1 && in_net "$net" ip link add bridge type bridge 2>&1 &&
        in_net "$net" ip link set bridge up 2>&1); then
        namespaces=yes
    else
        ip netns del "$net" 2>/dev/null || :
        echo "demo: no network namespaces are to be had here: ${why%%$'\n'*}"
    fi
}

make_hosts()
{
    local host n=0
    unset "${!LEASE_@}" STATE_DIRECTORY http_proxy
    if [ "$(id -u)" = 0 ] && command -v ip >/dev/null; then make_network; fi
    if [ $namespaces = no ]; then # the usual ports may be in use here, by an agent or another demonstration
        server_port=$((10000 + $$ % 7000 * 3))
        agent_port=$((server_port + 1)) # and the one after it
    fi
    for host in "${hosts[@]}"; do
        n=$((n + 1))
        mkdir -p "$work/$host/home"
        mkdir -m 700 "$work/$host/run"
        address[$host]=127.0.0.$((n + 1))
        [ $namespaces = no ] || make_namespace "$host" "10.77.0.$n"
    done
}

make_namespace()
{
    address[$1]=$2
    ip netns add "$net-$1"
    in_net "$net" ip link add "port-$1" type veth peer name eth0 netns "$net-$1"
    in_net "$net" ip link set "port-$1" master bridge up
    in_net "$net-$1" ip address add "$2/24" dev eth0
    in_net "$net-$1" ip link set eth0 up
    in_net "$net-$1" ip link set lo up
}

means()
{
    [ $namespaces = yes ] && echo "each a network namespace" || echo "each an address of loopback"
}

url()
{
    echo "http://${address[$1]}:$server_port"
}

# endpoint HOST: of its agent
endpoint()
{
    echo "tcp://${address[$1]}:$agent_port"
}

# The words in front of a command of that host: its files, its network.
entering()
{
    enter=(env "LEASE_DIR=$work/$1/run" "HOME=$work/$1/home" "XDG_CONFIG_HOME=$work/$1/config"
        "XDG_STATE_HOME=$work/$1/state")
    [ $namespaces = no ] || enter+=(nsenter "--net=/run/netns/$net-$1" --)
}

# on HOST COMMAND...: there
on()
{
    local enter host=$1
    shift
    entering "$host"
    "${enter[@]}" "$@"
}

# in_background HOST COMMAND...: the same; $! is the command itself
in_background()
{
    local enter host=$1
    shift
    entering "$host"
    "${enter[@]}" "$@" >>"$work/$host/log" 2>&1 &
    started+=($!)
    disown # it is ended without a word
}

start_agent()
{
    in_background "$1" lease-agent --name "$1" --config "$work/$1/leasehold.conf" \
        --listen "$(endpoint "$1")" --advertise "$(endpoint "$1")" --insecure
    agent[$1]=$!
    soon speaks "$1"
}

speaks()
{
    on "$1" lease status --json | has "\"pid\":${agent[$1]},"
}

can_pull()
{
    [ $namespaces = yes ]
}

# pull HOST, plug HOST: its cable
pull()
{
    in_net "$net" ip link set "port-$1" nomaster
}

plug()
{
    in_net "$net" ip link set "port-$1" master bridge
}

# has REGEX: whether it is in standard input, all of which is read, so that no writer is cut off
has()
{
    [[ $(cat) =~ $1 ]]
}

not()
{
    ! "$@"
}

# in_time SECONDS COMMAND...: until it is true
in_time()
{
    local tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "demo: never came true: $*" >&2; tail -n 20 "$work"/*/log >&2; exit 70; }
        sleep 0.05
    done
}

soon()
{
    in_time 15 "$@"
}
