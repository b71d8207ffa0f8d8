#!/bin/bash
# Everything that guards the project: check.sh [STAGE...]
#
# Installs what is missing, then runs each stage in its own build-check-* folder and goes on where
# one fails. The last line is `N passed, N failed, N skipped`: tests of every stage, builds, and
# what else was looked at. Exit code 0 where nothing failed.
set -u
cd "$(dirname "$0")/.." || exit 70
export LC_ALL=C CTEST_OUTPUT_ON_FAILURE=
unset "${!LEASE_@}"
jobs=$(nproc)
passed=0 failed=0 skipped=0
stages=(format gcc asan clang tsan demo)

say()
{
    printf '%s\n' "$*"
}

# one WHAT COMMAND...: one thing to look at; its output is shown where it fails
one()
{
    local what=$1 log
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/lease-check-XXXXXX")
    if "$@" >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        rm -f "$log"
        return 0
    fi
    failed=$((failed + 1))
    say "FAILED: $what"
    grep -v '^\[[0-9]*/[0-9]*\] ' "$log" | tail -n 60
    rm -f "$log"
    return 1
}

# configure FOLDER OPTION...: Debug, for its asserts, but optimised where a stage does not say otherwise
configure()
{
    local folder=$1
    shift
    one "$folder: configure" cmake -S . -B "$folder" -G Ninja -DLEASEHOLD_WERROR=ON \
        -DCMAKE_BUILD_TYPE=Debug "$@"
}

# build FOLDER OPTION...: configures, and makes all there is
build()
{
    configure "$@" && one "$1: build" ninja -C "$1" -j "$jobs"
}

# number NAME FILE: an attribute of ctest's report
number()
{
    sed -n "s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1
}

# show_failures FOLDER LOG: which, and the end of what each printed
show_failures()
{
    local index name
    sed -n 's/^[[:space:]]*\([0-9]*\) - \(.*\) (\(Failed\|Timeout\|SEGFAULT\|Subprocess.*\|Not Run\|.*Exception.*\))$/\1 \2/p' \
        "$2" | while read -r index name; do
        say "FAILED: $1: $name"
        grep "^$index: " "$2" | tail -n 40
    done
}

# show_skipped LOG: which tests as a whole, and what each said why
show_skipped()
{
    local index name why
    sed -n 's/^ *[0-9]*\/[0-9]* Test *#\([0-9]*\): \([^ ]*\) .*Skipped.*/\1 \2/p' "$1" | while read -r index name; do
        why=$(sed -n "s/^$index: skipped: //p" "$1" | head -n 1)
        say "skipped: $name${why:+: $why}"
    done
}

# tests FOLDER OPTION...: ctest, which counts half cores (tests/CMakeLists.txt); skipped are whole tests
# (exit code 77) and single cases of cmocka
tests()
{
    local folder=$1 report=$PWD/$1/report.xml log=$PWD/$1/tests.log rc all bad not cases
    shift
    rm -f "$report"
    ctest --test-dir "$folder" -j $((2 * jobs)) -V --output-junit "$report" "$@" >"$log" 2>&1 </dev/null
    rc=$?
    all=$(number tests "$report") bad=$(number failures "$report") not=$(number skipped "$report")
    if [ -z "$all" ] || [ "$all" = 0 ]; then
        say "FAILED: $folder: no tests were run"
        tail -n 20 "$log"
        failed=$((failed + 1))
        return 1
    fi
    [ $rc = 0 ] || [ "$bad" != 0 ] || bad=1
    cases=$(grep -oE '^[0-9]+: \[ *SKIPPED *\] [a-z0-9_]+$' "$log" | sort -u)
    [ -z "$cases" ] || say "skipped: $(awk '{ print $NF }' <<<"$cases" | paste -sd' ')"
    show_skipped "$log"
    passed=$((passed + all - bad - not)) failed=$((failed + bad))
    skipped=$((skipped + not + $(grep -c . <<<"$cases")))
    [ "$bad" = 0 ] || show_failures "$folder" "$log"
    [ "$bad" = 0 ]
}

# ---- stages -----------------------------------------------------------------------------------

stage_format()
{
    one "clang-format-14 (tools/format.sh mends it)" tools/format.sh --check
}

# Release with asserts: the one in which everything runs.
stage_gcc()
{
    build build-check-gcc -DCMAKE_C_COMPILER=gcc '-DCMAKE_C_FLAGS_DEBUG=-O2 -g1' &&
        tests build-check-gcc
}

stage_asan()
{
    build build-check-asan -DCMAKE_C_COMPILER=gcc '-DCMAKE_C_FLAGS_DEBUG=-O1 -g1' \
        -DLEASEHOLD_SANITIZER=address+undefined &&
        tests build-check-asan -LE '^(slow|plain)$'
}

# The other compiler's warnings, and each fuzzer for some seconds.
stage_clang()
{
    build build-check-clang -DCMAKE_C_COMPILER=clang-14 '-DCMAKE_C_FLAGS_DEBUG=-O1 -g1' \
        -DLEASEHOLD_SANITIZER=fuzzer &&
        tests build-check-clang -R '^(fuzz|house)/'
}

# Where threads meet; what has one thread only says nothing here, and is not made either.
threaded=(client host_lock host_wait http probe service slotserver slotserver_modes slotserver_work)
stage_tsan()
{
    configure build-check-tsan -DCMAKE_C_COMPILER=gcc '-DCMAKE_C_FLAGS_DEBUG=-O1 -g1' \
        -DLEASEHOLD_SANITIZER=thread &&
        one "build-check-tsan: build" ninja -C build-check-tsan -j "$jobs" host_threads \
            "${threaded[@]/#/test_}" &&
        tests build-check-tsan -R "^unit/($(IFS='|' && echo "${threaded[*]}"))\$|^host/threads\$"
}

stage_demo()
{
    one "tools/demo.sh" tools/demo.sh
}

# ---- all of it --------------------------------------------------------------------------------

[ $# = 0 ] || stages=("$@")
for stage in "${stages[@]}"; do
    declare -F "stage_$stage" >/dev/null || { echo "check: no stage '$stage'" >&2; exit 64; }
done
began=$SECONDS
tools/setup.sh check || failed=$((failed + 1))
say "packages: $((SECONDS - began)) s"
for stage in "${stages[@]}"; do
    before=($passed $failed $skipped $SECONDS)
    "stage_$stage"
    say "$stage: $((passed - before[0])) passed, $((failed - before[1])) failed," \
        "$((skipped - before[2])) skipped, $((SECONDS - before[3])) s"
done
say "all: $((SECONDS - began)) s"
say "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
