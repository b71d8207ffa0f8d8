#!/bin/sh
# Measures what it costs to ask an owner on another host, beside bare libzmq, Redis over TCP and an etcd
# transaction, in one run; and how crowds of agents join, hear of changes and idle.
# Usage: tools/bench/fleet.sh [options of bench_fleet, --help tells them]
# Installs what is missing (Debian), builds Release, starts a Redis and an etcd of its own and ends them.
# BENCH_FLEET=PROGRAM: measure with that one; nothing is installed or built.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)

if [ -z "${BENCH_FLEET:-}" ]; then
    "$root/tools/setup.sh" bench >&2
    build=${BENCH_BUILD:-$root/build-release}
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
    ninja -C "$build" bench_fleet lease_agent_program >&2
    BENCH_FLEET=$build/bin/bench_fleet
fi

# At loopback ports above those that are given out by themselves, in a directory of their own.
scratch=$(mktemp -d)
redis=
etcd=
finish() {
    [ -z "$redis" ] || { kill "$redis" 2>/dev/null || :; wait "$redis" 2>/dev/null || :; }
    [ -z "$etcd" ] || { kill "$etcd" 2>/dev/null || :; wait "$etcd" 2>/dev/null || :; }
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# await COMMAND...: until it works, for five seconds.
await() {
    tries=100
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}

port=$((61100 + $$ % 1000 * 4))
if command -v redis-server >/dev/null; then
    redis-server --bind 127.0.0.1 --port $port --save '' --appendonly no --dir "$scratch" \
        >"$scratch/redis.log" 2>&1 &
    redis=$!
fi
# Nothing is flushed to a disk either where the scratch is memory: this is etcd at its fastest.
if command -v etcd >/dev/null; then
    data=$scratch/etcd
    [ ! -w /dev/shm ] || data=$(mktemp -d /dev/shm/etcd-XXXXXX)
    client=$((port + 1)) peer=$((port + 2))
    etcd --data-dir "$data" --listen-client-urls "http://127.0.0.1:$client" \
        --advertise-client-urls "http://127.0.0.1:$client" \
        --listen-peer-urls "http://127.0.0.1:$peer" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "default=http://127.0.0.1:$peer" --log-level error \
        >"$scratch/etcd.log" 2>&1 &
    etcd=$!
    trap 'finish; rm -rf "$data"' EXIT
fi

if [ -n "$redis" ] && await redis-cli -h 127.0.0.1 -p $port ping; then
    set -- --redis "127.0.0.1:$port" "$@"
else
    echo "fleet.sh: no redis-server here, it is left out" >&2
fi
if [ -n "$etcd" ] && await curl -sf --noproxy '*' "http://127.0.0.1:$client/health"; then
    set -- --etcd "127.0.0.1:$client" "$@"
else
    echo "fleet.sh: no etcd here (Debian: etcd-server), it is left out" >&2
fi
"$BENCH_FLEET" "$@"
