#!/usr/bin/env bash
# tests/layout_kernels_test.sh: is src/layout/kernels.inc what CuTe prints of the kernels' layouts today?
# Usage: layout_kernels_test.sh GENERATOR [--update]. GENERATOR: tests/layout_kernels_gen.cpp, built.
set -euo pipefail
generator=$1
cd "$(dirname "$0")/.."
if [[ ${2-} == --update ]]; then
  "$generator" >src/layout/kernels.inc
else
  diff src/layout/kernels.inc <("$generator") || { echo "run tests/layout_kernels_test.sh $generator --update"; exit 1; }
  echo "src/layout/kernels.inc is up to date"
fi
