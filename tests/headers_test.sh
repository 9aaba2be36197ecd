#!/usr/bin/env bash
# usage: headers_test.sh CXX CC    Each public header compiles alone: the C++ one as C++20, the C one as pedantic
# C99 and as C++; and no internal or GPU header hides behind them.
set -euo pipefail
cd "$(dirname "$0")/.."
cxx=${1:-c++} cc=${2:-cc}
for header in include/falchion/*; do
  name=${header#include/}
  case $header in
    *.hpp)
      echo "#include <$name>" | $cxx -x c++ -std=c++20 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only - ;;
    *.h)
      printf '#include <%s>\nextern int not_empty;\n' "$name" | $cc -x c -std=c99 -Wall -Wextra -Wstrict-prototypes -pedantic-errors -Werror -Iinclude -fsyntax-only -
      echo "#include <$name>" | $cxx -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only - ;;
  esac
  echo "$name compiles alone"
done
# The first sizes of the C structs are checked on 32 bits too, if the compiler has such a target.
for target in -m32 -mx32; do
  if echo | $cxx -x c++ $target -ffreestanding -fsyntax-only - 2>/dev/null; then
    echo '#include "api/c_sizes.hpp"' |
      $cxx -x c++ $target -ffreestanding -std=c++20 -Wall -Wextra -Werror -Iinclude -Isrc -fsyntax-only -
    echo "api/c_sizes.hpp compiles with $target"
  fi
done
! grep -nE '#include [<"](cuda|cute|cutlass|torch|plan/|cpu/)' include/falchion/*
