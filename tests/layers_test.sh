#!/usr/bin/env bash
# Who may include whom: DESIGN's direction, checked on every #include "..." in src/ and tools/.
#   tools, tests -> api -> plan, dispatch -> ref, cpu, sm80, sm90 -> gpu -> blocks -> policy
# src/args is plain data: what a plan hands to a kernel. src/gpu is what the kernels of all GPUs share, and src/cuda the
# little that host code asks of CUDA. The kernels of one backend include nothing of another's. src/types has the names and
# sizes of the public types. src/io stands aside: it includes only the public header, and tools, tests and examples use
# it. So does src/layout, which includes nothing of ours.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# layer -> what it may include besides its own folder; "public" is the headers of include/falchion
declare -A allowed=(
  [policy]=""
  [args]="policy"
  [blocks]="args policy"
  [types]="public"
  [ref]="policy public"
  # Kernels are compiled once for each level or variant, so they see not even the public header.
  [cpu_kernels]="args blocks policy"
  [gpu]="args blocks policy"
  [sm80]="args gpu blocks policy tiles"
  [sm90]="args gpu blocks policy tiles"
  [cpu]="args blocks policy public"  # cpu/*.cpp is code for the host
  [cuda]="public types"
  [tiles]=""
  [ladder]="args blocks policy cuda public"
  [plan]="args ref cpu cuda sm80 sm90 gpu policy tiles types public variants"
  [dispatch]="plan types args ref cpu sm80 sm90 policy public variants"
  [api]="plan types dispatch args ref cpu cuda policy public"
  [io]="policy public"
  [layout]=""
  [judge]="ref policy types public"
  [tools]="types api plan dispatch args ref cpu cuda ladder io judge layout policy public variants"
)

layer_of_file() {  # This sets `from`.
  case "$1" in
    src/dispatch.*|src/variant.in|src/variant_gpu.in) from=dispatch ;;
    src/cpu/*.cpp|src/cpu/levels.hpp|src/cpu/threads.hpp|src/cpu/thread_pool.hpp) from=cpu ;;
    src/cpu/*) from=cpu_kernels ;;
    src/*) from=${1#src/} from=${from%%/*} ;;
    *) from=tools ;;
  esac
}
layer_of_include() {  # This sets `to`.
  if [[ $from == tools && -f tools/$1 ]]; then to=tools; return; fi
  case "$1" in
    falchion/*) to=public ;;
    plan/tiles.def|plan/tile_of.hpp) to=tiles ;;
    variants.def|falchion_variants.inc) to=variants ;;
    dispatch.hpp) to=dispatch ;;
    */*) to=${1%%/*} ;;
    *) to=same ;;  # This is a file in the same folder.
  esac
}

bad=0 seen=0
while IFS=: read -r file line text; do
  include=${text#*\"} include=${include%%\"*}
  layer_of_file "$file"
  layer_of_include "$include"
  seen=$((seen + 1))
  folder=${file%/*} folder=${folder##*/}
  [[ $to == same || $to == "$from" || $to == "$folder" ]] && continue
  if [[ " ${allowed[$from]-} " != *" $to "* ]]; then
    echo "$file:$line: $from may not include $to (\"$include\"); it may: ${allowed[$from]:-nothing}"
    bad=1
  fi
done < <(grep -rnE '^ *#include "' src tools --include='*.[ch]pp' --include='*.[ch]' --include='*.cu*' --include='*.in' |
         grep -v '"@')
echo "$seen includes checked"
exit $bad
