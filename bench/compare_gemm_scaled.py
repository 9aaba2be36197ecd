#!/usr/bin/env python3
"""Times Falchion's GEMMs of i8 on the CPU beside torch._int_mm, on the same matrices, in turns, in one run.

    bench/compare_gemm_scaled.py --lib libfalchion.so --threads 2 --json result.json

A shape m x n x k is D (m, n) = A (m, k) B^T in i32. B lies as (n, k), as layers have their weights, and with --kn as (k, n).
The process is pinned to one CPU on each of so many physical cores. Times are the smallest of all rounds, and with
--processor-time of the processor instead of the clock, for a machine that others use too. ratio is PyTorch's time over
Falchion's, so above 1 Falchion is faster.
"""
import argparse
import os
import sys
import time

import result_file
from compare_torch_cpu import cpu_name, physical_cores

SHAPES = ("512x512x512", "1024x1024x1024", "2048x2048x2048", "1x4096x4096", "16x4096x4096")
REST = 0.02  # seconds; idle workers of the other library stop spinning


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="libfalchion.so")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--shapes", type=lambda text: tuple(text.split(",")), default=SHAPES, help="m x n x k, as 512x512x512")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kn", action="store_true", help="B lies as (k, n)")
    parser.add_argument("--processor-time", action="store_true")
    return parser.parse_args()


def best_ms(calls, rounds, clock):
    best = {name: float("inf") for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(REST)
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return {name: seconds * 1e3 for name, seconds in best.items()}


def main():
    options = parse()
    os.sched_setaffinity(0, physical_cores(options.threads))
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch
    from falchion_ctypes import Falchion
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    fal = Falchion(options.lib)
    clock = time.process_time if options.processor_time else time.perf_counter
    rows, wrong = [], 0
    print(f"{'':<18}{'falchion ms':>12}{'GOP/s':>8}{'torch ms':>10}{'ratio':>7}  plan")
    for shape in options.shapes:
        m, n, k = map(int, shape.split("x"))
        a, b = ((torch.randn(r, k) * 40).round().clamp(-128, 127).to(torch.int8) for r in (m, n))
        b = b.T.contiguous().T if options.kn else b
        d = torch.zeros(m, n, dtype=torch.int32)
        ours = fal.gemm_plan(a, b, d, threads=options.threads)
        ours()
        right = torch.equal(d, torch._int_mm(a, b.T))
        wrong += not right
        ms = best_ms({"falchion": ours, "torch": lambda: torch._int_mm(a, b.T)}, options.rounds, clock)
        rows.append({"shape": shape, "ms": ms, "ratio": ms["torch"] / ms["falchion"], "right": right, "plan": ours.describe})
        print(f"{shape:<18}{ms['falchion']:>12.3f}{2e-6 * m * n * k / ms['falchion']:>8.0f}{ms['torch']:>10.3f}{rows[-1]['ratio']:>7.2f}  "
              f"{ours.describe}{'' if right else ' WRONG'}", flush=True)
    if options.json:
        context = {"torch": torch.__version__, "threads": options.threads, "kn": options.kn, "processor_time": options.processor_time,
                   "build_info": fal.build_info()}
        result_file.write(options.json, {**result_file.facts(cpu_name(), "none"), "context": context, "rows": rows})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
