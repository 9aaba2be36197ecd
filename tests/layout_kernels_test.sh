#!/usr/bin/env bash
# tests/layout_kernels_test.sh: checks that src/layout/kernels.inc is what CuTe prints of the kernels' layouts today.
# Usage: layout_kernels_test.sh GENERATOR [--update]. GENERATOR is the program built from tests/layout_kernels_gen.cpp.
set -euo pipefail
generator=$1
cd "$(dirname "$0")/.."
if [[ ${2-} == --update ]]; then
  "$generator" >src/layout/kernels.inc
else
  diff src/layout/kernels.inc <("$generator") || { echo "run tests/layout_kernels_test.sh $generator --update"; exit 1; }
  echo "src/layout/kernels.inc is up to date"
fi
