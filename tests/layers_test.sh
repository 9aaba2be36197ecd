#!/usr/bin/env bash
# Who may include whom: HACKING.md's direction, checked on every #include "..." in src/ and tools/.
#   tools, tests -> api -> plan, dispatch -> ref, cpu, tiles -> args -> policy -> base
#   each variant -> cpu; sm80, sm90 -> gpu -> blocks, tiles -> args -> policy -> base
# src/args is plain data: what a plan hands to a kernel. src/tiles is what a plan knows of the GPU variants without their
# code, so a plan includes nothing of sm80, sm90 and gpu, and a kernel nothing of plan or of the public headers. src/gpu
# is what the kernels of all GPUs share, and src/runtime the little that host code asks of CUDA. The kernels of one
# backend include nothing of another's, and the blocks of the CPU and those of the GPUs nothing of each other. Of
# src/base, names, sizes and fields are those of the public types. src/io stands aside: it includes only the public header, and
# tools, tests and examples use it. So does src/layout, which includes nothing of ours.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# layer -> what it may include besides its own folder; "public" is the headers of include/falchion
declare -A allowed=(
  [base]=""
  [types]="public"
  [policy]="base"
  [args]="policy base"
  [cpu_blocks]="args policy base"
  [gpu_blocks]="args policy base"
  [ref]="policy base public"
  # Kernels are compiled once for each level or variant, so they see not even the public header.
  [cpu_kernels]="args cpu_blocks policy base"
  [gpu]="args tiles gpu_blocks policy base"
  [sm80]="args tiles gpu gpu_blocks policy base"
  [sm90]="args tiles gpu gpu_blocks policy base"
  [cpu]="args policy base public"  # cpu/*.cpp is code for the host
  [runtime]="args public base types"
  [tiles]="args policy base"  # plain C++: what a plan knows of the GPU variants, and what their code reads
  [ladder]="args gpu_blocks policy base runtime public"
  [plan]="args tiles ref cpu runtime policy base types public variants"
  [dispatch]="plan tiles variants"
  [variant]="cpu_kernels sm80 sm90 tiles"  # what CMake writes for each line of variants.def
  [api]="plan types dispatch args ref cpu runtime policy base public"
  [io]="policy base public"
  [layout]=""
  [judge]="ref policy base types public"
  [tools]="types api plan dispatch args ref cpu runtime ladder io judge layout policy base public variants"
)

layer_of_source() {  # $1 is a path below src/. This sets `layer`.
  case "$1" in
    dispatch.*) layer=dispatch ;;
    variant.in|variant_gpu.in) layer=variant ;;
    variants.def) layer=variants ;;
    base/names.hpp|base/size.hpp|base/fields.*) layer=types ;;
    */blocks/*) layer=${1%%/*}_blocks ;;
    cpu/*/*) layer=cpu_kernels ;;
    *) layer=${1%%/*} ;;
  esac
}
layer_of_file() {  # This sets `from`.
  case "$1" in
    src/*) layer_of_source "${1#src/}"; from=$layer ;;
    *) from=tools ;;
  esac
}
layer_of_include() {  # This sets `to`.
  if [[ $from == tools && -f tools/$1 ]]; then to=tools; return; fi
  case "$1" in
    falchion/*) to=public ;;
    falchion_variants.inc) to=variants ;;
    */*|dispatch.hpp|variants.def) layer_of_source "$1"; to=$layer ;;
    *) to=same ;;  # This is a file in the same folder.
  esac
}

bad=0 seen=0
while IFS=: read -r file line text; do
  include=${text#*\"} include=${include%%\"*}
  layer_of_file "$file"
  layer_of_include "$include"
  seen=$((seen + 1))
  [[ $to == same || $to == "$from" ]] && continue
  if [[ " ${allowed[$from]-} " != *" $to "* ]]; then
    echo "$file:$line: $from may not include $to (\"$include\"); it may: ${allowed[$from]:-nothing}"
    bad=1
  fi
done < <(grep -rnE '^ *#include "' src tools --include='*.[ch]pp' --include='*.[ch]' --include='*.cu*' --include='*.in' |
         grep -v '"@')
echo "$seen includes checked"
exit $bad
