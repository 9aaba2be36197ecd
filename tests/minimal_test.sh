#!/usr/bin/env bash
# usage: minimal_test.sh BUILD_DIR GENERATOR
# Builds examples/minimal as somebody else's project, against the package that BUILD_DIR installs, with every warning an
# error; and runs its programs, by GCC and, where it is here, by clang. What is skipped says why.
set -euo pipefail
build=$1 generator=${2:-Ninja}
source=$(cd "$(dirname "$0")/.." && pwd)/examples/minimal
work=$build/consumer/minimal
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"

warnings="-Wall -Wextra -Wpedantic -Werror"
try() {  # a name, the compilers of C and C++
  local dir=$work/$1
  cmake -S "$source" -B "$dir" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_C_COMPILER="$2" -DCMAKE_CXX_COMPILER="$3" -DCMAKE_C_STANDARD=99 -DCMAKE_C_EXTENSIONS=OFF \
    -DCMAKE_C_FLAGS="$warnings" -DCMAKE_CXX_FLAGS="$warnings" >"$dir.log" 2>&1 &&
    cmake --build "$dir" >>"$dir.log" 2>&1 || { tail -40 "$dir.log"; exit 1; }
  ctest --test-dir "$dir" --output-on-failure --no-tests=error
  for program in "$dir"/{one_call,plan,thread_pool}; do
    [[ -x $program ]] || { echo "$program was not built"; exit 1; }
  done
  for program in "$dir"/{gpu_hello,cuda_graph}; do
    if [[ -x $program ]]; then "$program" | tail -1 || ((PIPESTATUS[0] == 77)); else echo "${program##*/} skipped: no CUDA toolkit is here"; fi
  done
}
try default "${CC:-cc}" "${CXX:-c++}"
if command -v clang >/dev/null && command -v clang++ >/dev/null; then try clang clang clang++; fi
