#!/usr/bin/env bash
# Every planted bug is caught within a stated number of seeds, and without one the same seeds pass.
#
#   planted.sh SIM_PLANTED [SEEDS [STEPS]]
set -uo pipefail

sim=$1 seeds=${2:-24} steps=${3:-60000} missed=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

if ! "$sim" --plant 0 --seed 1 --seeds "$seeds" --steps "$steps" >"$out" 2>&1; then
    cat "$out"
    echo "planted: nothing is planted, and yet it fails"
    exit 1
fi
while read -r plant what; do
    [ "$plant" -eq 0 ] && continue
    caught=
    for ((seed = 1; seed <= seeds; seed++)); do
        if ! { (ulimit -c 0; "$sim" --plant "$plant" --seed "$seed" --steps "$steps" 2>&1) \
            >"$out" 2>/dev/null; } 2>/dev/null; then
            caught=$seed
            break
        fi
    done
    if [ -z "$caught" ]; then
        echo "planted: NOT CAUGHT in $seeds seeds: $what"
        missed=1
    else
        echo "planted: seed $caught: $what"
        sed -n 's/^.*\(tests\/sim\/[a-z]*\.c:[0-9]*: .*\)/           \1/p; s/^.*Assertion/           Assertion/p' "$out" | head -1
    fi
done < <("$sim" --plants)
exit $missed
