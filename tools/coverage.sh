#!/bin/bash
# Which lines and branches of broker/ and proto/ the tests run: coverage.sh [FOLDER [FILTER]]
#
# Builds with --coverage in FOLDER (build-coverage), without optimisation so that lines are lines, runs
# the tests whose names match FILTER (those of unit/ and host/) and prints a table; FOLDER/coverage.html
# shows each line. What a killed process ran is not counted: it had no time to write it down.
# Branches of assert() are left out: their other side is not to be reached.
# tests/COVERAGE.md has the reason for what remains; coverage_check.py fails where it lacks one, unless a
# FILTER left tests out.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build-coverage}
filter=${2:-^(unit|host)/}
command -v gcovr >/dev/null || {
    echo "coverage: no gcovr here: tools/setup.sh check installs it" >&2
    exit 69
}
mkdir -p "$folder"
cc -O1 -c tests/lib/leave_counts.c -o "$folder/leave_counts.o"
cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
    '-DCMAKE_C_FLAGS_DEBUG=-O0 -g --coverage' \
    "-DCMAKE_EXE_LINKER_FLAGS_DEBUG=-Wl,--wrap=_exit $(realpath "$folder/leave_counts.o")" >/dev/null
ninja -C "$folder" >/dev/null
find "$folder" -name '*.gcda' -delete
rc=0
ctest --test-dir "$folder" -j "$(nproc)" -R "$filter" >"$folder/tests.log" 2>&1 </dev/null || rc=$?
grep -E '% tests passed|\((Failed|Timeout)\)$' "$folder/tests.log" || true
gcovr --root . --filter broker/ --filter proto/ --exclude-branches-by-pattern '.*assert\(.*' \
    --gcov-ignore-parse-errors -j "$(nproc)" \
    --txt "$folder/coverage.txt" --html-details "$folder/coverage.html" \
    --json "$folder/coverage.json" --print-summary "$folder" 2>"$folder/gcovr.log" || {
    cat "$folder/gcovr.log" >&2
    exit 70
}
cat "$folder/coverage.txt"
[ $# -gt 1 ] || tools/coverage_check.py "$folder/coverage.json" tests/COVERAGE.md || rc=1
[ $rc = 0 ]
