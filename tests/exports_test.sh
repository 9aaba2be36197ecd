#!/usr/bin/env bash
# usage: exports_test.sh LIBRARY.so. Checks that the library exports only names of falchion:: and of fal_.
set -euo pipefail
nm -D "$1" >/dev/null
other=$(nm -D --defined-only "$1" | awk '{print $3}' | c++filt |
        grep -vE '^(fal_[a-z0-9_]+|(typeinfo (name )?for |vtable for )?falchion::.*)$' || true)
[[ -z $other ]] || { echo "exported, but not ours:"; sed 's/^/  /' <<<"$other"; exit 1; }
inner=$(nm -D --defined-only -C "$1" | grep -oE 'falchion::(cpu|ref|io|blocks|tools)::.*' || true)
[[ -z $inner ]] || { echo "exported, but internal:"; sed 's/^/  /' <<<"$inner"; exit 1; }
echo "$(nm -D --defined-only "$1" | wc -l) symbols, all of the API"
