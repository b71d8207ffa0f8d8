#!/usr/bin/env bash
# The seeds with which RECORD.md says that something was found: they pass for ever.
#
#   record.sh SIM
set -euo pipefail
for seed in 1 3 4 5 6 8 11 15 17 21 26 32 37 43 44 45 133 242; do
    "$1" --seed "$seed" --steps 200000 >/dev/null || exit 1
done
