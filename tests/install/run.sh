#!/bin/bash
# Installs a build into a folder of its own and uses it as another project would: run.sh BUILD CMAKE CC...
set -eu

build=$1 cmake=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/lease-install-XXXXXX")
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log"

# ---- the README's example, by pkg-config --------------------------------------------------------

awk '/^```c$/ && !seen { inside = seen = 1; next } /^```$/ { inside = 0 } inside' \
    "$root/README.md" >"$work/example.c"
grep -q 'leasehold/lease.h' "$work/example.c"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name leasehold.pc)")
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs leasehold)
libdir=$(pkg-config --variable=libdir leasehold)
# shellcheck disable=SC2086
"$@" -std=c11 -Wall -Wextra -Werror -o "$work/example" "$work/example.c" $flags
mkdir -m 700 "$work/dir"
export LEASE_DIR=$work/dir HOME=$work XDG_CONFIG_HOME= LD_LIBRARY_PATH=$libdir
"$work/example" | tee "$work/out"
grep -q 'dispatched' "$work/out"

# the header is for C++ too, where there is a compiler for it
if command -v c++ >/dev/null; then
    echo '#include <leasehold/lease.h>' >"$work/header.cc"
    # shellcheck disable=SC2086
    c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only "$work/header.cc" $flags
fi

# ---- the same by find_package -------------------------------------------------------------------

cat >"$work/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(stranger C)
find_package(Leasehold 0.1 REQUIRED)
add_executable(example example.c)
target_link_libraries(example PRIVATE Leasehold::lease)
EOF
"$cmake" -G Ninja -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$1" \
    -DCMAKE_C_FLAGS="${*:2}" >"$work/cmake.log"
"$cmake" --build "$work/build" >>"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }

# ---- nothing is offered but what the header declares --------------------------------------------

nm -D --defined-only "$libdir/liblease.so" | awk '$2 ~ /[TDBVW]/ { sub(/@.*/, "", $3); print $3 }' |
    grep -v '^_' | sort >"$work/offered"
grep -o 'lease_[a-z_]*(' "$prefix/include/leasehold/lease.h" | tr -d '(' | sort -u >"$work/declared"
extra=$(comm -23 "$work/offered" "$work/declared")
[ -z "$extra" ] || { echo "offered, but not in lease.h:" $extra; exit 1; }
[ "$(wc -l <"$work/offered")" -gt 15 ] || { echo "too little is offered"; exit 1; }
echo "offered: $(wc -l <"$work/offered") functions"
