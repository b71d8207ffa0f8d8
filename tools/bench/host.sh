#!/bin/sh
# Measures what a lease costs on this host, beside flock, SQLite and Redis, in one run.
# Usage: tools/bench/host.sh [options of bench_host, --help tells them]
# Installs what is missing (Debian), builds Release, starts a Redis of its own and ends it.
# BENCH_HOST=PROGRAM: measure with that one; nothing is installed or built.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)

if [ -z "${BENCH_HOST:-}" ]; then
    "$root/tools/setup.sh" bench >&2
    build=${BENCH_BUILD:-$root/build-release}
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
    ninja -C "$build" bench_host lease_program lease_agent_program >&2
    BENCH_HOST=$build/bin/bench_host
fi

# On a unix socket in a directory of its own, nothing on disk, ended with us.
scratch=$(mktemp -d)
redis=
finish() {
    [ -z "$redis" ] || { kill "$redis" 2>/dev/null || :; wait "$redis" 2>/dev/null || :; }
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if command -v redis-server >/dev/null; then
    redis-server --port 0 --unixsocket "$scratch/redis.sock" --unixsocketperm 700 --save '' \
        --appendonly no --dir "$scratch" >"$scratch/redis.log" 2>&1 &
    redis=$!
    tries=100
    until [ -S "$scratch/redis.sock" ] || [ $tries = 0 ]; do
        tries=$((tries - 1))
        sleep 0.05
    done
fi
if [ -S "$scratch/redis.sock" ]; then
    "$BENCH_HOST" --redis "$scratch/redis.sock" "$@"
else
    echo "host.sh: no redis-server here, it is left out" >&2
    "$BENCH_HOST" "$@"
fi
