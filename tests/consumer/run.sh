#!/usr/bin/env bash
# usage: run.sh warnings|find_package|add_subdirectory|pkg_config BUILD_DIR GENERATOR
# Builds and runs the consumers, C99 and C++, against static and shared Falchion. BUILD_DIR is a built Falchion; its
# install tree and the consumers are made in BUILD_DIR/consumer. `warnings` needs no build: it compiles the README's
# examples and the headers as strict users do, with each compiler that is here.
set -euo pipefail
mode=$1 build=$2 generator=${3:-Ninja}
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
work=$build/consumer/$mode
rm -rf "$work"
mkdir -p "$work"

# These are the examples of the README and of docs/calls.md, their ```cpp and ```c blocks.
for language in cpp c; do
  for page in README.md docs/calls.md; do
    awk -v fence="\`\`\`$language" '$0 == fence {on = 1; next} /^```$/ {on = 0} on' "$source/$page"
  done >"$work/readme.$language"
  [[ -s $work/readme.$language ]] || { echo "README.md has no $language example"; exit 1; }
done

consume() {  # Its arguments are a name and the arguments of cmake.
  local dir=$work/$1
  shift
  cmake -S "$here" -B "$dir" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DREADME_DIR="$work" "$@" >"$dir.log" 2>&1 &&
    cmake --build "$dir" >>"$dir.log" 2>&1 || { tail -40 "$dir.log"; exit 1; }
  ctest --test-dir "$dir" --output-on-failure
}

# The headers lie on the include path as a user's own do. CMake would take an installed package's for system headers, of
# which compilers report nothing.
strictly() {  # Its arguments are a compiler, with its flags, and a file.
  "$@" -Wall -Wextra -pedantic -Werror -O1 -I"$source/include" -c -o "$work/strict.o" || { echo "refused: $*"; exit 1; }
  compiled=$((compiled + 1))
}

case $mode in
  warnings)
    compiled=0
    echo '#include <falchion/falchion.h>
      extern "C" fal_status run(const fal_operands* x);
      fal_status run(const fal_operands* x) {
        const fal_attention attention = FAL_ATTENTION_INIT;
        const fal_linear_attention linear = FAL_LINEAR_ATTENTION_INIT;
        const fal_gemm gemm = FAL_GEMM_INIT;
        const fal_norm norm = FAL_NORM_INIT;
        return linear.size + gemm.size + norm.size > 0 ? fal_attention_run(x, &attention, nullptr, nullptr) : FAL_INVALID;
      }' >"$work/c_header.cpp"
    for cxx in "${CXX:-c++}" g++ clang++; do
      command -v "$cxx" >/dev/null || continue
      strictly "$cxx" -std=c++20 "$work/readme.cpp"
      strictly "$cxx" -std=c++20 "$here/main.cpp"
      for standard in c++11 c++20; do strictly "$cxx" -std=$standard "$work/c_header.cpp"; done
    done
    for cc in "${CC:-cc}" gcc clang; do
      command -v "$cc" >/dev/null || continue
      for standard in c99 c11 c17; do
        strictly "$cc" -std=$standard "$work/readme.c"
        strictly "$cc" -std=$standard "$here/main.c"
      done
    done
    echo "$compiled files compiled without a warning" ;;
  # The whole library is built as part of the user's project, for which one variant is enough.
  add_subdirectory)
    consume both -DUSER_LANGUAGE="C;CXX" -DFALCHION_SOURCE="$source" -DFALCHION_SHARED=ON \
      -DFALCHION_VARIANTS='cpu generic bf16' -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)"
    [[ ! -e $work/both/falchion/falchion ]] || { echo "a subproject must build no tools"; exit 1; } ;;
  find_package)
    cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
    # A package may be moved, also to a folder with a space in its name.
    mv "$work/prefix" "$work/moved prefix"
    for language in C CXX; do consume $language -DUSER_LANGUAGE=$language -DCMAKE_PREFIX_PATH="$work/moved prefix"; done ;;
  pkg_config)
    cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
    cp -r "$work/prefix" "$work/static"
    rm "$work"/static/lib*/libfalchion.so*
    for form in static prefix; do
      PKG_CONFIG_PATH=$(find "$work/$form" -name pkgconfig -type d)
      export PKG_CONFIG_PATH
      flags=$(pkg-config --cflags --libs $([[ $form == static ]] && echo --static) falchion)
      libdir=$(pkg-config --variable=libdir falchion)
      ${CC:-cc} -std=c99 -pedantic -Wall -Wextra -Werror -o "$work/c_$form" "$here/main.c" "$work/readme.c" $flags -Wl,-rpath,"$libdir"
      ${CXX:-c++} -std=c++20 -Wall -Wextra -Werror -o "$work/cpp_$form" "$here/main.cpp" "$work/readme.cpp" $flags -Wl,-rpath,"$libdir"
      "$work/c_$form"
      "$work/cpp_$form"
    done
    readelf -d "$work/c_prefix" | grep -q 'NEEDED.*libfalchion\.so\.[0-9]' || { echo "no versioned SONAME"; exit 1; } ;;
  *) echo "unknown mode $mode"; exit 2 ;;
esac
