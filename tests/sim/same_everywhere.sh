#!/usr/bin/env bash
# One seed has one trace, whoever compiled it: gcc and clang, -O0 and -O3. What is missing is passed over;
# with fewer than two builds there is nothing to compare (77).
#
#   same_everywhere.sh SOURCE_DIR CORE_SOURCES...     (of broker/, names only)
set -euo pipefail

root=$1
shift
core=("${@/#/$root/broker/}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
first= builds=0
read -r -a msgpack < <(pkg-config --cflags --libs msgpack)
for compiler in gcc clang; do
    command -v "$compiler" >/dev/null || continue
    for level in -O0 -O3; do
        "$compiler" -std=c11 "$level" -w -DLEASEHOLD_VERSION='"0"' -I"$root" \
            "$root"/tests/sim/*.c "$root"/agent/heard.c "$root"/agent/speaker_gossip.c \
            "$root"/proto/*.c "${core[@]}" "${msgpack[@]}" -o "$work/sim"
        hash=$("$work/sim" --seed 1 --seeds 6 --steps 60000 --hash)
        builds=$((builds + 1))
        echo "$compiler $level: $(cksum <<<"$hash")"
        [ -z "$first" ] && first=$hash
        if [ "$hash" != "$first" ]; then
            diff <(echo "$first") <(echo "$hash") || true
            echo "sim: the trace depends on the compiler"
            exit 1
        fi
    done
done
[ "$builds" -ge 2 ] || exit 77
