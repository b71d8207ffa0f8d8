#!/bin/bash
# The unit tests under valgrind: valgrind.sh [FOLDER [PATTERN...]]
#
# Builds in FOLDER (build-valgrind) and runs the program of each tests/unit/test_*.c whose name matches one
# of the PATTERNs (all) under memcheck: bytes read that nobody wrote, memory out of bounds, memory that
# is lost. What it says of a test is in FOLDER/NAME.valgrind. The last line is `N clean, N with errors`.
#
# Some cases fail because all is 30 times as slow, or because valgrind makes a fork of each vfork. They
# are named, and what such a case leaves behind is not counted as lost: whether it passes is ctest's to
# say. A test that is not done in LEASEHOLD_VALGRIND_S (600) seconds is clean as far as it came.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build-valgrind}
shift $(($# > 0))
[ $# -gt 0 ] || set -- ''
command -v valgrind >/dev/null || {
    echo "valgrind: not here: tools/setup.sh check installs it" >&2
    exit 69
}
cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Debug '-DCMAKE_C_FLAGS_DEBUG=-O1 -g' >/dev/null
ninja -C "$folder" >/dev/null

# memcheck LEAKS LOG PROGRAM
memcheck()
{
    timeout -k 10 "${LEASEHOLD_VALGRIND_S:-600}" valgrind --leak-check="$1" \
        --errors-for-leak-kinds=definite,indirect,possible --child-silent-after-fork=yes \
        --log-file="$2" "$3"
}

look()
{
    local folder=$1 name=$2 rc=0 log=$1/$2.valgrind cases=''
    memcheck full "$log" "$folder/bin/$name" >"$folder/$name.out" 2>&1 </dev/null || rc=$?
    if [ $rc = 124 ]; then
        cases='the rest for want of time'
    elif [ $rc != 0 ] && [ $rc != 77 ]; then
        cases=$(sed -n 's/^\[  FAILED  \] \([a-z][a-z_0-9]*\)$/\1/p' "$folder/$name.out" | sort -u | paste -sd' ')
        [ -n "$cases" ] || cases="exit code $rc"
        memcheck no "$log" "$folder/bin/$name" >/dev/null 2>&1 </dev/null || true
    fi
    if grep -q 'ERROR SUMMARY: 0 errors' "$log"; then
        echo "clean $name${cases:+, failed: $cases}"
    else
        echo "errors $name: $log"
    fi
}
export -f memcheck
export -f look

list=()
for source in tests/unit/test_*.c; do
    name=$(basename "$source" .c)
    for pattern in "$@"; do
        [[ $name == *$pattern* ]] && [ -x "$folder/bin/$name" ] && list+=("$name") && break
    done
done
printf '%s\n' "${list[@]}" | xargs -P "$(nproc)" -I{} bash -c 'look "$0" {}' "$folder" |
    tee "$folder/valgrind.txt" | grep -v '^clean [a-z_0-9]*$' || true
clean=$(grep -c '^clean' "$folder/valgrind.txt" || true)
errors=$(grep -c '^errors' "$folder/valgrind.txt" || true)
echo "$clean clean, $errors with errors"
[ "$errors" = 0 ]
