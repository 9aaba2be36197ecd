#!/usr/bin/env bash
# support_test.sh FALCHION [--update]: the tables of docs/support.md are those that `falchion info --support` makes.
set -euo pipefail
falchion=$1
cd "$(dirname "$0")/.."
file=docs/support.md
begin='<!-- support: begin -->' end='<!-- support: end -->'
wanted=$(sed "/^$begin\$/q" $file; echo; "$falchion" info --support; echo; sed -n "/^$end\$/,\$p" $file)
if [[ ${2-} == --update ]]; then
  printf '%s\n' "$wanted" > $file
elif ! diff <(printf '%s\n' "$wanted") $file; then
  echo "$file does not say what src/variants.def has: tests/support_test.sh $falchion --update writes it"
  exit 1
fi
