#!/bin/bash
# Lays out every C file as .clang-format has it; with --check it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
how=(-i)
[ "${1:-}" != --check ] || how=(--dry-run -Werror)
git ls-files -z --cached --others --exclude-standard '*.c' '*.h' |
    xargs -0 -r clang-format-14 "${how[@]}"
