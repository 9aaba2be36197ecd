#!/usr/bin/env bash
# usage: resources_test.sh BUILD             what ptxas reported of each GPU variant against docs/resources.txt
#        resources_test.sh --update BUILD    writes that table
#        resources_test.sh --can-fail LAUNCHER NVCC FLAGS...   spills, C75xx and a table that does not fit are found
# Fails where a variant spills more, uses more of the stack, has more registers or a longer loop than the table says, or
# where build and table do not have the same variants. The reports come from cmake/keep_ptxas_report.sh. A spill of an
# sm80 variant fails the build already. The table finds spills of sm90 variants and everything that only grows. A loop's
# length is what bench/loop_cycles.py reads from the machine code of Hopper's forward kernels, and "-" stands for all
# others. Where the programs are missing that print machine code, loops are not compared.
set -euo pipefail
cd "$(dirname "$0")/.."
table=${FALCHION_RESOURCES:-docs/resources.txt}

# Prints "object cycles" for each object whose loop is looked at, or nothing at all where the programs are missing (77).
# An object without a loop gets 0, which no table has.
loops_of() {
  find "$1/" -path '*generated/variants/attention_forward_sm90_*.cu.o' | while read -r object; do
    local lines status=0
    lines=$(${FALCHION_LOOP_CYCLES:-python3 bench/loop_cycles.py} --brief "$object" attention_forward 2>&1) || status=$?
    ((status == 77)) && return
    ((status == 0)) || { echo "$lines" >&2; lines=; }
    awk -v object="$(basename "$object" .cu.o)" '$3 > most { most = $3 } END { print object, most + 0 }' <<<"$lines"
  done
}

# Turns the reports of a build into lines "kernel backend level dtype d architecture registers stack spilled loop", where d
# is 64_brief of a tile with a name.
# Spills are in bytes and the loop in cycles of stall counts. A kernel that comes with several variants (linear_attention_starts) has one line for its type, with
# the largest number of each kind. A kernel that belongs to no variant (attention_combine) has one line in all.
table_of() {
  local file name loops
  loops=$(loops_of "$1")
  find "$1/" \( -path '*generated/variants/*' -o -path '*src/gpu/*' \) -name '*.cu.o.ptxas' | sort | while read -r file; do
    name=${file##*/} name=${name%.cu.o.ptxas}
    [[ $file == *generated/variants/* ]] || name=${name}_gpu_-_all_-
    # a failed compilation leaves a report without an object
    if [[ -e ${file%.ptxas} ]]; then sed "s/^/$name /" "$file"; fi
  done | awk -v loops="$loops" '
    BEGIN {
      count = split(loops, word, /[ \n]+/)
      for (i = 1; i < count; i += 2) cycles[word[i]] = word[i + 1]
    }
    # _ZN8falchion4sm8017attention_forwardI... -> attention_forward
    function kernel_of(mangled,    rest, name) {
      rest = mangled
      sub(/^_ZN/, "", rest)
      while (match(rest, /^[0-9]+/)) {
        name = longest_name(rest)
        rest = substr(rest, RLENGTH + length(name) + 1)
      }
      return name
    }
    function longest_name(rest) { match(rest, /^[0-9]+/); return substr(rest, RLENGTH + 1, substr(rest, 1, RLENGTH) + 0) }
    function most(of, key, value) { if (!(key in of) || value + 0 > of[key]) of[key] = value + 0 }
    /Compiling entry function/ {
      split($0, quoted, "\047")
      kernel = kernel_of(quoted[2])
        sub(/_(exact|of_bytes)$/, "", kernel)  # variants of f32 and of kind eight run kernels of these names
      match($1, /_(sm[0-9]+|gpu)_/)
      op = substr($1, 1, RSTART - 1)
      if (kernel ~ /^linear_attention(_chunks)?$/) kernel = op  # this kernel serves both passes
      count = split(substr($1, RSTART + 1), part, "_")  # backend, level (pages_general has two words), dtype, d, perhaps its tile
      level = part[2]
      for (type = 3; type < count && part[type] !~ /^(f32|f16|bf16|e4m3|i8|all)$/; ++type) level = level "_" part[type]
      key = kernel == op ? level " " part[type] " " part[type + 1] (count > type + 1 ? "_" part[type + 2] : "") : "- " part[type] " -"
      key = kernel " " part[1] " " key " " quoted[4]
      loop[key] = kernel == op && $1 in cycles ? cycles[$1] : "-"
    }
    /bytes stack frame/ { most(stack, key, $2); most(spilled, key, $6 > $10 ? $6 : $10) }
    match($0, /Used [0-9]+ registers/) { most(registers, key, substr($0, RSTART + 5)) }
    END { for (key in registers) print key, registers[key], stack[key], spilled[key], loop[key] }' | sort -V
}

# Aligns the columns. The program `column` is not used, because a GPU machine may lack it.
aligned() {
  awk '{ for (i = 1; i <= NF; ++i) { field[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) }; fields[NR] = NF }
    END { for (row = 1; row <= NR; ++row) {
            for (i = 1; i < fields[row]; ++i) printf "%-*s  ", width[i], field[row, i]
            print field[row, fields[row]] } }'
}

compiler_of() {  # This prints the version of a build's nvcc, such as 13.0.
  sed -nE 's/^set\(CMAKE_CUDA_COMPILER_VERSION "([0-9]+\.[0-9]+).*/\1/p' "$1"/CMakeFiles/*/CMakeCUDACompiler.cmake
}

update() {
  { echo "# docs/resources.txt: what each GPU variant takes. Written by tests/resources_test.sh --update BUILD, which CI compares with"
    echo "# its own build: more registers, stack, spilled bytes or cycles of a loop than here fail."
    echo "# nvcc $(compiler_of "$1")"
    { echo "kernel backend level dtype d architecture registers stack spilled loop"; table_of "$1"; } | aligned
  } >"$table"
  echo "$table: $(grep -c '_sm\|sm_' "$table") rows"
}

# Each variant of variants.def that this build has must have left a report, and each line of the table must belong to a
# variant of variants.def.
check_variants() {
  local op backend level dtype d bad=0 built listed
  local of_variant='/^VARIANT\([a-z0-9_]+, sm/{s/^VARIANT\(([a-z0-9_]+), (sm[0-9]+), ([a-z0-9_]+), ([a-z0-9]+), ([0-9]+)(, ([a-z]+))?\).*/\1 \2 \3 \4 \5_\7/; s/_$//; p}'
  built=$(cut -d' ' -f1-5 <<<"$2")
  listed=$(sed -nE "$of_variant" src/variants.def)
  while IFS=' ' read -r op backend level dtype d; do
    grep -qx "$op $backend $level $dtype $d" <<<"$built" ||
      { echo "$op $backend $level $dtype $d: a variant of this build, but there is no object with a report of ptxas"; bad=1; }
  done < <(sed -nE "$of_variant" "$1/generated/falchion_variants.inc")
  while IFS=' ' read -r op backend level dtype d _; do
    [[ $level == - ]] || grep -qx "$op $backend $level $dtype $d" <<<"$listed" ||
      { echo "$op $backend $level $dtype $d: in $table, but not in src/variants.def"; bad=1; }
  done < <(grep -E ' sm_[0-9]+a? ' "$table")
  return $bad
}

check() {
  local bad=0 compiler built
  compiler=$(compiler_of "$1")
  built=$(table_of "$1")
  [[ -n $built ]] || { echo "no GPU variant is built in $1"; exit 77; }
  [[ -e $table ]] || { echo "there is no $table: tests/resources_test.sh --update $1"; return 1; }
  check_variants "$1" "$built" || bad=1
  # Another nvcc uses other registers. Then only the stack and the spills are compared.
  local same=1
  grep -qx "# nvcc $compiler" "$table" || { same=0; echo "$table is of another nvcc than $compiler: registers are not compared"; }
  if grep -rhE '\(C75[0-9]+\)' "$1" --include='*.ptxas'; then bad=1; fi
  awk -v table="$table" -v same=$same '
    BEGIN { while ((getline line < table) > 0) if (split(line, f, " +") == 10) { key = f[1] " " f[2] " " f[3] " " f[4] " " f[5] " " f[6]; registers[key] = f[7]; stack[key] = f[8]; spilled[key] = f[9]; loop[key] = f[10] } }
    function complain(text) { print key ": " text; bad = 1 }
    { key = $1 " " $2 " " $3 " " $4 " " $5 " " $6; ++rows }
    !(key in registers) { complain("built, but not in " table); next }
    same && $7 > registers[key] { complain($7 " registers, not " registers[key]) }
    same && $7 < registers[key] { print key ": " $7 " registers, in the table " registers[key] " (worth an --update)" }
    $8 > stack[key] { complain($8 " bytes of stack, not " stack[key]) }
    $9 > spilled[key] { complain($9 " bytes spilled, not " spilled[key]) }
    $10 != "-" { ++loops }
    same && $10 != "-" && ($10 > loop[key] + 0 || $10 == 0) { complain("a loop of " $10 " cycles, not " loop[key]) }
    END { print rows " kernels compared with " table ", " loops + 0 " of them by their loops"; exit bad }' <<<"$built" || bad=1
  ((bad == 0)) || echo "If this is meant: tests/resources_test.sh --update $1"
  return $bad
}

# ---- Can it fail? ----------------------------------------------------------------------------------------------------
expect() {  # Its arguments are the words and a command. The command must fail, and its output must have the words.
  local words=$1 out
  shift
  if out=$("$@" 2>&1); then echo "passes, but should not ($words): $*"; exit 1; fi
  grep -q "$words" <<<"$out" || { echo "fails for another reason than '$words': $out"; exit 1; }
  echo "found: $words"
}

can_fail() {
  local launcher=$1 nvcc=$2 here=tests/resources_test.sh
  shift 2
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  echo '__global__ void clean(float* p) { p[threadIdx.x] *= 2; }' >"$folder/clean.cu"
  cat >"$folder/spills.cu" <<'CODE'
__global__ void __launch_bounds__(1024, 1) spills(float* p) {
  float x[160];
#pragma unroll
  for (int i = 0; i < 160; ++i) x[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 160; ++i) p[(159 - i) * 1024 + threadIdx.x] = x[i] * x[i * 7 % 160];
}
CODE
  echo '__global__ void ignored(float* p) { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); p[threadIdx.x] *= 2; }' \
    >"$folder/ignored.cu"
  compile() {
    "$launcher" "$nvcc" -gencode arch=compute_90a,code=sm_90a "${@:2}" -c "$folder/$1.cu" -o "$folder/$1.o"
  }
  compile clean "$@"
  echo "a clean kernel compiles"
  expect "Registers are spilled" compile spills "$@"
  expect "C7508" compile ignored "$@"

  # This fakes a build of one variant with 100 registers and compares it with tables that fit and that do not.
  local row="attention_forward sm80 plain bf16 64" object build=$folder/build
  object=$build/CMakeFiles/core.dir/generated/variants/attention_forward_sm80_plain_bf16_64.cu.o
  mkdir -p "${object%/*}" "$build/generated" "$build/CMakeFiles/3"
  echo 'set(CMAKE_CUDA_COMPILER_VERSION "13.0.88")' >"$build/CMakeFiles/3/CMakeCUDACompiler.cmake"
  echo 'VARIANT(attention_forward, sm80, plain, bf16, 64)' >"$build/generated/falchion_variants.inc"
  touch "$object"
  cat >"$object.ptxas" <<'REPORT'
ptxas info    : Compiling entry function '_ZN8falchion4sm8017attention_forwardINS0_6ConfigEEEvi' for 'sm_90'
ptxas info    : Function properties for _ZN8falchion4sm8017attention_forwardINS0_6ConfigEEEvi
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 100 registers, used 1 barriers
REPORT
  export FALCHION_RESOURCES=$folder/table
  against() { printf '# nvcc 13.0\n%s\n' "$1" >"$folder/table"; $here "$build"; }
  against "$row sm_90 100 16 12 -" >/dev/null
  echo "a table that fits passes"
  expect "100 registers, not 99" against "$row sm_90 99 16 12 -"
  expect "16 bytes of stack, not 0" against "$row sm_90 100 0 12 -"
  expect "12 bytes spilled, not 0" against "$row sm_90 100 16 0 -"
  expect "built, but not in" against "$row sm_80 100 16 12 -"
  expect "not in src/variants.def" against "$row sm_90 100 16 12 -"$'\n'"attention_forward sm80 plain bf16 63 sm_90 1 0 0 -"
  # The same variant of sm90, whose loop has 120 cycles.
  local hopper=$build/CMakeFiles/core.dir/generated/variants/attention_forward_sm90_plain_bf16_64.cu.o
  echo 'VARIANT(attention_forward, sm90, plain, bf16, 64)' >>"$build/generated/falchion_variants.inc"
  touch "$hopper"
  sed 's/4sm80/4sm90/; s/sm_90/sm_90a/' "$object.ptxas" >"$hopper.ptxas"
  printf '#!/bin/sh\necho kernel 40 120\n' >"$folder/cycles"
  chmod +x "$folder/cycles"
  export FALCHION_LOOP_CYCLES=$folder/cycles
  local both="$row sm_90 100 16 12 -"$'\n'"${row/sm80/sm90} sm_90a 100 16 12"
  against "$both 120" >/dev/null
  against "$both 121" >/dev/null
  expect "a loop of 120 cycles, not 119" against "$both 119"
  expect "1 of them by their loops" against "$both 119"
  expect "a loop of 120 cycles, not -" against "$both -"
  printf '#!/bin/sh\necho kernel 0 0\n' >"$folder/cycles"
  expect "a loop of 0 cycles" against "$both 119"
  printf '#!/bin/sh\nexit 1\n' >"$folder/cycles"
  expect "a loop of 0 cycles" against "$both 119"
  printf '#!/bin/sh\nexit 77\n' >"$folder/cycles"
  against "$both 119" >/dev/null
  echo "without the programs that print machine code no loop is compared"
  rm "$hopper" "$hopper.ptxas"
  echo 'VARIANT(attention_forward, sm80, plain, bf16, 64)' >"$build/generated/falchion_variants.inc"
  mkdir "$folder/bin"
  printf '#!/bin/sh\nexit 127\n' >"$folder/bin/column"
  chmod +x "$folder/bin/column"
  PATH=$folder/bin:$PATH $here --update "$build" >/dev/null
  $here "$build" >/dev/null
  echo "a table written without the program column fits"
  rm "$object.ptxas"
  local status=0
  $here "$build" >/dev/null || status=$?
  ((status == 77)) || { echo "a build without a row is not skipped: $status"; exit 1; }
  echo "a build without a row is skipped"
}

case ${1:-} in
  --update) update "$2" ;;
  --can-fail) can_fail "${@:2}" ;;
  *) check "$1" ;;
esac
