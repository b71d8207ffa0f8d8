#!/bin/sh
# Compiles the lock for Windows and links its test; runs it under Wine where that is installed.
# Usage: tools/mingw.sh [BUILD-DIR]. Exit 77: no cross compiler here.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build-mingw}
cc=x86_64-w64-mingw32-gcc
command -v $cc >/dev/null || { echo "mingw.sh: no $cc: apt install gcc-mingw-w64-x86-64" >&2; exit 77; }
mkdir -p "$out"
$cc -std=c11 -O2 -static -I"$root" -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes \
    -Wmissing-prototypes -Werror -o "$out/host_lock_windows.exe" \
    "$root/broker/error.c" "$root/broker/host_clock.c" "$root/broker/host_lock.c" "$root/broker/host_lock_windows.c" \
    "$root/tests/unit/windows_host_lock.c" -lpthread
echo "built $out/host_lock_windows.exe"
wine=$(command -v wine64 || command -v wine || true)
if [ -z "$wine" ]; then
    echo "mingw.sh: no wine here, so it was only compiled" >&2
    exit 0
fi
cd "$out"
WINEDEBUG=${WINEDEBUG:--all} exec "$wine" ./host_lock_windows.exe
