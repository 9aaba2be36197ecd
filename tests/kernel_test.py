#!/usr/bin/env python3
# tests/kernel_test.py: what `./dev kernel` derives (tests/kernel.py), on files whose answer is known. Then that each file of a
# kernel's folder has variants, that each test on a device belongs to some kernel, and that each regex chooses what is named.
import subprocess
import sys

import kernel

ROOT = kernel.ROOT
bad = []


def expect(what, condition):
    if not condition:
        bad.append(what)


def place(function, backend):
    """Where a kernel is, whatever its file is called today."""
    op, _, kind = function.rpartition("_")
    return kernel.entry(op, backend, kind).relative_to(ROOT).as_posix()


def includers(name):
    """A file of src by the end of its path."""
    found = [path for path in (ROOT / "src").rglob("*") if path.as_posix().endswith(name)]
    expect(f"{len(found)} files end in {name}", len(found) == 1)
    return found[0].relative_to(ROOT).as_posix() if found else ""


def rows():
    # A file of one kind: its variants and no other's, and the tests on a device that judge its operation.
    said = kernel.report(place("attention_forward_halves", "sm90"))
    expect(f"halves: {said['variants']}", said["variants"] == ["attention_forward sm90 halves f32 128"] and said["rebuilt"] == 3)
    expect("halves: the tests of its operation", "tests/cuda/halves_test.cpp" in said["device_tests"] and
           "tests/attention_forward_test.cpp" in said["device_tests"])
    expect("halves: tests of others", not any(word in test for test in said["device_tests"] for word in ("norm", "gemm", "linear_")))
    filters = said["filter"].split(":")
    expect(f"halves: {filters}", {"Levels/AttentionForward.*/sm90_*", "NamedHopper/AttentionForward.*", "Halves.*"} <= set(filters) and
           "sm80" not in said["filter"] and not any(one.startswith("*") for one in filters))
    expect(f"halves: {said['verify']}", said["verify"] == ["falchion verify --random 20000 --op attention --backend sm90"])
    expect("halves: tests of the host that judge attention do not run its code", "attention_forward_test" not in said["host_tests"])
    # Few rows: a model on the host belongs to it.
    said = kernel.report(place("gemm_few", "sm90"))
    expect(f"few: {said}", said["variants"] == ["gemm sm90 few bf16 0"] and said["host_tests"] == [] and
           "tests/cuda/gemm_few_run_test.cpp" in said["device_tests"])
    # A folder, or the beginning of names: what begins there.
    said = kernel.report("sm90/attention_forward")
    expect(f"sm90/attention_forward: {said['rebuilt']}", said["rebuilt"] == 55 and
           said["variants"] == ["attention_forward sm90 decode bf16 128", "attention_forward sm90 decode_bytes bf16 128",
                                "attention_forward sm90 plain bf16 128", "attention_forward sm90 score bf16 128",
                                "attention_forward sm90 halves f32 128", "attention_forward sm90 pages bf16 128",
                                "attention_forward sm90 int8_scores bf16 128", "attention_forward sm90 fp8 e4m3 128"])
    expect("sm90/attention_forward: layouts", "sm90_layouts_test" in said["cuda_host_tests"])
    # Of a kind with several tiles the usual one, or the first.
    said = kernel.report(place("gemm_plain", "sm80"))
    expect(f"plain: {said['variants']}", sorted(said["variants"]) == ["gemm sm80 plain bf16 0", "gemm sm80 plain f32 0"])
    said = kernel.report(place("gemm_plain", "sm90"))
    expect(f"plain: {said['variants']}", said["variants"] == ["gemm sm90 plain bf16 0 wide"])
    # A file of the CPU: one level in each type, and tests that run here.
    said = kernel.report(place("norm_kernel", "cpu"))
    expect(f"norm: {said['variants']}", len(said["variants"]) == 3 and len({v.split()[2] for v in said["variants"]}) == 1)
    expect(f"norm: {said['host_tests']}", {"norm_test", "norm_contract_test"} <= set(said["host_tests"]) and
           not {"gemm_test", "api_test"} & set(said["host_tests"]) and not said["device_tests"])
    # Levels differ: the engine of tiles is in no other level.
    levels = {line[2] for line in kernel.chosen_variants(kernel.find(includers("/engine_amx.hpp")))}
    expect(f"cpu/blocks/engine_amx.hpp: {levels}", levels == {"amx", "amx_emulated", "avx512_bf16"})
    # Code that is compiled by itself: who includes its header.
    said = kernel.report(next(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/gpu").rglob("*around.cu")))
    expect(f"around.cu: {said['operations']}", said["operations"] == ["attention_backward"] and said["rebuilt"] == 27)
    # What both processors have.
    said = kernel.report("policy/mask.hpp")
    expect(f"mask.hpp: {said['backends']}", set(said["backends"]) == {"cpu", "sm80", "sm90"} and "policy_test" in said["host_tests"])


def whole_tree():
    """No kernel file is without variants, and no test on a device without kernels."""
    every = kernel.variants()
    for backend in {line[1] for line in every}:
        reached = set().union(*(kernel.closure(kernel.entry(*line[:3])) for line in every if line[1] == backend))
        for path in sorted((ROOT / "src" / backend).rglob("*")):
            if path.suffix in (".cuh", ".hpp") and not (backend == "cpu" and path.with_suffix(".cpp").is_file()):
                expect(f"no variant has {path.relative_to(ROOT)}", path in reached)
    judges = {kernel.judge_of(line[0]) for line in every}
    free = {"minimal_example_test.cpp", "plan_time_test.cpp", "errors_test.cpp"}  # They judge no operation.
    for test in kernel.device_sources():
        expect(f"{test.name} belongs to no operation", test.name in free or kernel.judged(test) & judges)
    for op in {line[0] for line in every}:
        expect(f"{op} has no name in the command", len(kernel.command_names([op])) == 1)
    for wrong in ("nonsense", "src/api", "src/sm90/no_such"):
        done = subprocess.run([sys.executable, ROOT / "tests/kernel.py", wrong], capture_output=True, text=True)
        expect(f"{wrong} is taken: {done.stdout}", done.returncode == 1 and wrong in done.stderr)


def verb():
    said = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True).stdout
    expect("./dev help does not list kernel", "kernel NAME" in said)
    done = subprocess.run([ROOT / "dev", "kernel"], capture_output=True, text=True)
    expect(f"./dev kernel without a name: {done}", done.returncode != 0 and "Say which" in done.stderr)


rows()
whole_tree()
verb()
print("\n".join(bad) or "what ./dev kernel derives is as it should be")
sys.exit(bool(bad))
