#!/usr/bin/env bash
# The core of broker/ sees no clock, no socket, no file, no thread and no allocator: its objects ask
# for nothing of the C library beyond text and memory functions, and its sources include nothing
# else. Given a further source file, it is judged as if it belonged to the core: the test uses that
# to show that the check can fail.
#
#   core_is_pure.sh LIBRARY SOURCE_DIR [COMPILER EXTRA_SOURCE]
set -euo pipefail

library=$1
sources=$2
allowed_symbols='^(memcpy|memset|memchr|memmove|memcmp|bcmp|strchr|strspn|strcmp|strlen|snprintf|__snprintf_chk|__memcpy_chk|__memset_chk|__assert_fail|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__asan_.*|__ubsan_.*|__tsan_.*|__sanitizer_.*|__sancov_.*|__gcov_.*)$'
allowed_headers='^<(assert|limits|stdbool|stddef|stdint|stdio|string)\.h>$'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

core=$(ar t "$library" | sed 's/\.c\.o$/.c/; s/\.o$/.c/')
cp "$library" "$work/core.a"
extra=
if [ $# -ge 4 ]; then
    extra=$4
    "$3" -std=c11 -I"$sources/.." -c "$extra" -o "$work/extra.o"
    ar q "$work/core.a" "$work/extra.o"
fi

bad=0
defined=$(nm --defined-only -g "$work/core.a" 2>/dev/null | awk 'NF==3{print $3}' | sort -u)
for symbol in $(nm -u "$work/core.a" 2>/dev/null | awk '$1=="U"{print $2}' | sort -u); do
    grep -qx "$symbol" <<<"$defined" && continue
    [[ $symbol =~ $allowed_symbols ]] && continue
    echo "core: calls $symbol, which is not for the core"
    bad=1
done
for file in $(printf "$sources/%s\n" $core) $extra; do
    while read -r header; do
        case $header in
        '"broker/host_'*) ;;
        '"broker/'*) continue ;;
        esac
        [[ $header =~ $allowed_headers ]] && continue
        echo "core: $(basename "$file") includes $header"
        bad=1
    done < <(sed -n 's/^#include *\([<"][^>"]*[>"]\).*/\1/p' "$file" "${file%.c}.h" 2>/dev/null)
done
[ $bad -eq 0 ] && echo "core: pure, $(wc -w <<<"$core") sources"
exit $bad
