#!/usr/bin/env bash
# cute_test.sh CUTE EVALUATE: what CuTe printed for each case of cases.txt is what src/layout prints, byte for byte.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" | sed 's/(0x[0-9a-f]*)/(0x...)/' >"$work/cute"
grep '^# ' "$work/cute" | "$2" >"$work/ours"
cases=$(grep -c '^# ' "$work/cute")
if ((cases < 300)); then
  echo "only $cases cases"
  exit 1
fi
diff "$work/cute" "$work/ours" || exit 1
echo "$cases cases: CuTe and src/layout agree"
