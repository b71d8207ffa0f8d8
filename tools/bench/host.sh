#!/bin/sh
# Measures what a lease costs on this host, beside flock, SQLite and Redis, in one run.
# Usage: tools/bench/host.sh [options of bench_host, --help tells them]
# Installs what is missing (Debian), builds Release, starts a Redis of its own and ends it.
# BENCH_HOST=PROGRAM: measure with that one; nothing is installed or built.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)

have() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

install_missing() {
    missing=
    for package in build-essential cmake ninja-build pkg-config libzmq3-dev libczmq-dev \
        libmsgpack-dev libjansson-dev libcurl4-openssl-dev libncurses-dev libcmocka-dev \
        libmicrohttpd-dev libsqlite3-dev libhiredis-dev redis-server; do
        have "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
    echo "installing$missing" >&2
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >&2
}

if [ -z "${BENCH_HOST:-}" ]; then
    install_missing
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
