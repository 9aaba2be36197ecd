#!/usr/bin/env bash
# Tests and measures a GPU machine in one call, without a compiler there: tests, compute-sanitizer, a storm, benchmarks.
#   bench/device.sh --bin FOLDER --out FOLDER [--sections info,tests,slow,sanitizer,storm,bench,torch]
#                   [--limit 480] [--filter GTEST_FILTER] [--torch "ARGUMENTS OF compare_torch.py"] [--bench "ARGUMENTS OF falchion bench"]
# FOLDER is what ./dev device-build writes. Results: OUT/device.json, and a short table at the end. Each section has its own
# time limit, and all of them end within --limit seconds. The exit code is 1 when a test or a check failed.
set -uo pipefail

bin="" out="" sections="info,tests,slow,sanitizer,storm,bench,torch" limit=480 filter="*" torch_arguments="" bench_arguments=""
dry=0
while (($#)); do
  case $1 in
    --bin) bin=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --sections) sections=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --filter) filter=$2; shift 2 ;;
    --torch) torch_arguments=$2; shift 2 ;;
    --bench) bench_arguments=$2; shift 2 ;;
    --dry-run) dry=1; shift ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; [[ $1 == --help || $1 == -h ]] && exit 0 || exit 2 ;;
  esac
done
[[ -d $bin && -n $out ]] || { echo "device.sh: give --bin FOLDER (of ./dev device-build) and --out FOLDER" >&2; exit 2; }
mkdir -p "$out"
bin=$(cd "$bin" && pwd) out=$(cd "$out" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FALCHION_COMMIT=${FALCHION_COMMIT:-$(cat "$bin/commit" 2>/dev/null || true)}
shards=$(( $(nproc) > 12 ? 12 : $(nproc) ))

wanted() { [[ ",$sections," == *",$1,"* ]]; }
left() { echo $((limit - SECONDS - 5)); }
# section NAME SECONDS: succeeds when the section is wanted and there is time for it. It sets `seconds` to the time that
# the section may take.
section() {
  wanted "$1" || return 1
  seconds=$2
  (($(left) < seconds)) && seconds=$(left)
  if ((seconds < 5)); then echo "$1: no time left"; echo "$1" >>"$work/left_out"; return 1; fi
  echo "== $1 (at most $seconds s, $SECONDS s so far)"
}
# limited SECONDS LOG COMMAND...: runs the command with a time limit. Its output goes to LOG, and its exit code and time
# go to LOG.rc.
limited() {
  local time=$1 log=$2 start rc
  shift 2
  if ((dry)); then echo "timeout $time $*"; return 0; fi
  start=$(date +%s.%N)
  timeout -k 5 "$time" "$@" >"$log" 2>&1 </dev/null
  rc=$?
  echo "$rc $(date +%s.%N) $start" >"$log.rc"
  return $rc
}

# The tests run in shards side by side, because most of the time goes into the reference in double. The tests of streams
# look at the clock, so they run alone.
run_shards() {
  local program=$1 name i
  name=$(basename "$program")
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i limited "$seconds" "$work/tests.$name.$i.log" "$program" \
      "--gtest_filter=$filter:-*Slow*:CudaStreams.*" "--gtest_output=json:$work/tests.$name.$i.json" &
  done
  wait
}
# sanitize TOOL NAME FILTER: starts one process of compute-sanitizer in the background.
sanitize() {
  limited "$seconds" "$work/sanitizer.$1.$2.log" "$sanitizer" --tool "$1" --error-exitcode 86 --print-limit 5 \
    "$test_program" "--gtest_filter=$3" &
}

if section info 30; then
  limited "$seconds" "$work/info.json" "$bin/falchion" info --json
  limited 10 "$work/nvidia_smi.log" nvidia-smi
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,power.limit,memory.total --format=csv,noheader \
    >"$work/gpu.csv" 2>/dev/null
  cat "$work/gpu.csv" 2>/dev/null
fi
tests=("$bin"/tests/cuda_*_test)
if section tests 120; then
  for program in "${tests[@]}"; do run_shards "$program"; done
  for program in "${tests[@]}"; do
    name=$(basename "$program")
    "$program" --gtest_list_tests 2>/dev/null | grep -q '^CudaStreams' || continue
    limited "$seconds" "$work/tests.$name.streams.log" "$program" "--gtest_filter=CudaStreams.*" \
      "--gtest_output=json:$work/tests.$name.streams.json"
  done
fi
if section slow 60; then
  for program in "${tests[@]}"; do
    name=$(basename "$program")
    "$program" --gtest_list_tests 2>/dev/null | grep -q Slow || continue
    limited "$seconds" "$work/tests.$name.slow.log" "$program" "--gtest_filter=*Slow*" \
      "--gtest_output=json:$work/tests.$name.slow.json"
  done
fi
if section sanitizer 110; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
  test_program=$(ls "$bin"/tests/cuda_all_test 2>/dev/null)
  if [[ -n $sanitizer && -n $test_program ]]; then
    sanitize memcheck lengths 'Contract.BrokenLengthsStayInBounds:Contract.NanBeyondLengths:Contract.NoKeysAtAll'
    sanitize memcheck layouts 'Contract.StridesOfInputs:Contract.Alignment:Contract.MaxLengthHintTooSmall'
    sanitize memcheck cases_bf16 'Levels/AttentionForward.Cases/*bf16'
    sanitize memcheck cases_f32 'Levels/AttentionForward.Cases/*f32'
    sanitize racecheck bands 'Contract.WindowBounds:Contract.Softcap:Contract.RowThatSeesNoKey'
    sanitize racecheck lengths 'Contract.NoKeysAtAll:Contract.MaxLengthHintTooSmall'
    sanitize racecheck scores 'Contract.ScoresThatKeepRising:Contract.NanInOwnDataOfADecodeStep'
    sanitize memcheck gemm 'Gemm.Cases:GemmContract.StridesOfInputs:GemmContract.EmptyTensorsNeedNoMemory'
    sanitize racecheck gemm 'Gemm.HeadsAreTheTwoAxesOfK:GemmContract.NanStaysInItsRowAndColumn'
    wait
  else
    echo "no compute-sanitizer or no tests/cuda_all_test: left out"
    echo sanitizer >>"$work/left_out"
  fi
fi
# The storm tries 22,000 random problems of each of the seven operations on the GPU. 20,000 of each must run, and a
# problem that a path refuses does not count. Where fewer ran, for example for want of time, device_report.py says so and
# the exit code is 1. The environment variable STORM_SEED sets the seed, which is 1 by default. Another draws others.
if section storm 240; then
  limited "$seconds" "$work/storm.log" sh -c '"$0" verify --random 176000 --seconds "$1" --seed "$2" --json >"$3"' \
    "$bin/falchion" "$((seconds > 30 ? seconds - 20 : seconds))" "${STORM_SEED:-1}" "$work/storm.json"
fi
if section bench 60; then
  # shellcheck disable=SC2086
  limited "$seconds" "$work/bench.log" "$bin/falchion" bench --backend best --json "$work/bench.json" $bench_arguments
  cat "$work/bench.log" 2>/dev/null
fi
if section torch 240; then
  # shellcheck disable=SC2086
  limited "$seconds" "$work/torch.log" env PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 python3 "$here/compare_torch.py" \
    --lib "$bin/libfalchion.so" --json "$work/torch.json" --budget $((seconds - 15)) $torch_arguments
  cat "$work/torch.log" 2>/dev/null
fi
((dry)) && exit 0
python3 "$here/device_report.py" "$work" "$out/device.json" "$SECONDS"
