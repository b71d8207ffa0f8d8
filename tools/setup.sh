#!/bin/bash
# Installs the Debian packages that are missing: setup.sh [build|check|bench]
#
#   build  what building and the demonstration need (the default)
#   check  that, and what tools/check.sh looks with
#   bench  that of build, and what tools/bench/host.sh compares with
#
# Where nothing is missing it does nothing: no network, no root.
set -euo pipefail

build=(gcc libc6-dev cmake ninja-build pkg-config curl
    libmsgpack-dev libzmq3-dev libczmq-dev libcurl4-openssl-dev libjansson-dev
    libcmocka-dev libmicrohttpd-dev libncurses-dev iproute2)
check=(clang-14 libclang-rt-14-dev clang-format-14 gcc-mingw-w64-x86-64
    libsqlite3-dev libhiredis-dev spin tmux python3 python3-zmq python3-msgpack
    gcovr valgrind jq)
bench=(libsqlite3-dev libhiredis-dev redis-server)

case ${1:-build} in
build) wanted=("${build[@]}") ;;
check) wanted=("${build[@]}" "${check[@]}") ;;
bench) wanted=("${build[@]}" "${bench[@]}") ;;
*)
    echo "usage: setup.sh [build|check|bench]" >&2
    exit 64
    ;;
esac

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then
    echo "setup: all ${#wanted[@]} packages are there"
    exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "setup: no sudo here; as root: apt-get install ${missing[*]}" >&2
        exit 69
    }
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q || echo "setup: the lists of packages are not to be had anew" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
