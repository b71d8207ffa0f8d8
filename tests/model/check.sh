#!/bin/bash
# Checks the model exhaustively, and that each planted bug is found: tests/model/check.sh [--far]
# --far takes two leases of one holder after the other (ten times the states). Needs spin, a C compiler
# and 1 GB of memory; builds in a directory of its own.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
leases=1
[ "${1:-}" = --far ] && leases=2

command -v spin >/dev/null || { echo "skipped: spin is not installed"; exit 77; }

# What spin makes of the model, compiled: model NAME DEFINES... -- COMPILER FLAGS...
model()
{
    local name=$1 defines=()
    shift
    while [ "$1" != -- ]; do defines+=("$1"); shift; done
    shift
    spin -a "${defines[@]}" "$here/lease.pml" >spin.out 2>&1 &&
        ${CC:-cc} -O2 -w "$@" -o "$name" pan.c || { cat spin.out; exit 1; }
}

# verdict NAME WANTED(0: none, 1: some) LOG
verdict()
{
    local found states
    found=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$3")
    states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' "$3")
    if grep -q 'max search depth too small\|out of memory' "$3" || [ -z "$found" ]; then
        echo "FAILED $1: the search was cut short"; tail -5 "$3"; exit 1
    fi
    if [ "$2" = 0 ] && [ "$found" != 0 ]; then
        echo "FAILED $1: $(grep -m1 'pan:1' "$3")"; exit 1
    fi
    if [ "$2" = 1 ] && [ "$found" = 0 ]; then
        echo "FAILED $1: a planted bug was not found in $states states"; exit 1
    fi
    echo "ok $1: $states states, $([ "$2" = 0 ] && echo "nothing found" || echo "found")"
}

safety()
{
    model "$1" "${@:3}" -o3 -- -DSAFETY -DNOCLAIM
    "./$1" -m1000000 >"$1.log" 2>&1
    verdict "$1" "$2" "$1.log"
}

wedge()
{
    model "$1" "${@:3}" -- -DNFAIR=4
    "./$1" -a -f -m1000000 >"$1.log" 2>&1
    verdict "$1" "$2" "$1.log"
}

safety safety 0 -DLEASES=$leases
safety verify_only_looks 1 -DLEASES=1 -DBUG_READ
safety what_ended_is_revived 1 -DLEASES=2 -DBUG_REVIVE
safety expiry_leaves_no_orphan 1 -DLEASES=1 -DBUG_ORPHAN
wedge no_wedge 0 -DLEASES=1
wedge the_dead_are_forgotten 1 -DLEASES=1 -DBUG_FORGET
