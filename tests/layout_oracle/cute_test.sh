#!/usr/bin/env bash
# cute_test.sh CUTE RANDOM EVALUATE: checks that src/layout prints, byte for byte, what CuTe prints for each case of
# cases.txt and for ten thousand random layouts.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# agree WHAT LEAST WHICH PROGRAM EVALUATE: compares the answers, and demands at least LEAST different lines that begin
# with WHICH.
agree() {
  "$4" | sed 's/(0x[0-9a-f]*)/(0x...)/' >"$work/cute"
  grep '^# ' "$work/cute" | "$5" >"$work/ours"
  local asked
  asked=$(grep "^# $3" "$work/cute" | sort -u | wc -l)
  if ((asked < $2)); then
    echo "only $asked $1"
    exit 1
  fi
  diff "$work/cute" "$work/ours" >"$work/diff" || { head -40 "$work/diff"; echo "$1: $(grep -c '^<' "$work/diff") lines differ"; exit 1; }
  echo "$asked $1, $(grep -c '^# ' "$work/cute") questions: CuTe and src/layout agree"
}

agree "cases" 300 "" "$1" "$3"
agree "random layouts" 10000 "facts" "$2" "$3"
