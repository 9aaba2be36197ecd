#!/usr/bin/env bash
# usage: levels_test.sh OBJECT... The objects are those of the variants' translation units, from a Release build.
# An inline function that is compiled out of line in a file with AVX-512 flags is a weak symbol: the linker keeps one
# copy of it for the whole program, and a machine without AVX-512 may be handed that one. So nothing weak may live
# outside the namespaces that belong to one level: falchion::cpu::<level> and hwy::N_<target>. Nor may a variant run
# code while the library is being loaded.
set -euo pipefail
[[ $# -gt 0 ]] || { echo "no variant objects"; exit 77; }
bad=0
own='^DW\.ref\.|^_Z(TV|TI|TS|GV|Z)*(L)?N[VK]*(8falchion3cpu[0-9]+(amx|vnni|avx512_bf16|avx512|avx2|neon|generic|amx_emulated)|3hwy[0-9]+N_[A-Z0-9_]+)'
for object in "$@"; do
  weak=$(nm --defined-only "$object" | awk '$2 ~ /^[WwVvu]$/ {print $3}' | grep -vE "$own" || true)
  init=$(nm --defined-only "$object" | awk '$3 ~ /^_GLOBAL__sub_I_/ {print $3}')
  if [[ -n $weak$init ]]; then
    echo "$(basename "$object"):"
    c++filt <<<"$weak" | sed '/^$/d; s/^/  weak, outside any level: /'
    sed '/^$/d; s/^/  runs at load: /' <<<"$init"
    bad=1
  fi
done
echo "$# objects checked"
exit $bad
