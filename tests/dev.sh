# tests/dev.sh: the verb of ./dev for work on one kernel. ./dev reads this file.

# Builds the smallest set of variants that has a kernel file or the files of a folder, runs the tests that belong to it and
# need no GPU, and prints those that need one. Which these are is derived (tests/kernel.py). build/kernel has the CPU's
# variants and the host's tests, build/kernel-gpu those of GPUs, as ./dev gpu-check builds them.
kernel() {
  local name=${1:-} variants tests cuda_tests preset=kernel architectures=()
  [[ -n $name ]] || die "Say which: ./dev kernel sm90/attention_forward (a file, a folder or the beginning of names)"
  need python3 $packages_build $packages_test
  tests/kernel.py "$name" || exit 1
  mapfile -t variants < <(tests/kernel.py "$name" --only variants 2>/dev/null)
  mapfile -t tests < <(tests/kernel.py "$name" --only host_tests 2>/dev/null)
  mapfile -t cuda_tests < <(tests/kernel.py "$name" --only cuda_host_tests 2>/dev/null)
  if printf '%s\n' "${variants[@]}" | grep -q ' sm'; then
    if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then
      need_cuda
      mapfile -t architectures < <(printf '%s\n' "${variants[@]}" | sed -nE 's/.* sm([0-9]+) .*/\1-real/p' | sort -u)
      configure kernel-gpu -DFALCHION_VARIANTS="$(joined ' sm')" -DFALCHION_CUDA_ARCHITECTURES="$(IFS=';'; echo "${architectures[*]}")" \
        ${FALCHION_CUTLASS_DIR:+-DFALCHION_CUTLASS_DIR="$FALCHION_CUTLASS_DIR"}
      say_what_it_takes kernel-gpu
      build kernel-gpu falchion "${cuda_tests[@]}"
      run_each kernel-gpu "${cuda_tests[@]}"
    else
      say "There is no nvcc: the kernels of GPUs are not compiled${cuda_tests:+, nor are ${cuda_tests[*]}}"
    fi
  fi
  ((${#tests[@]})) || return 0
  configure kernel -DFALCHION_VARIANTS="$(joined ' cpu ')"
  build kernel "${tests[@]}"
  run_each kernel "${tests[@]}"
}
# Those of `variants` that match, as a regex; "none" where there is none.
joined() { printf '%s\n' "${variants[@]}" | grep -- "$1" | paste -sd'|' | grep . || echo none; }

run_each() {  # PRESET TESTS...: executables, one after the other
  local preset=$1 test log
  for test in "${@:2}"; do
    log=build/$preset/tests/$test.log
    "build/$preset/tests/$test" --gtest_brief=1 --gtest_filter='-*Slow*' >"$log" 2>&1 || { tail -40 "$log" >&2; die "$test failed: $log"; }
    printf '  %-32s %s\n' "$test" "$(grep -E '^\[  (PASSED|SKIPPED) ' "$log" | sed -E 's/^\[ *//; s/ *\]//; s/,.*//' | paste -sd' ')"
  done
}
