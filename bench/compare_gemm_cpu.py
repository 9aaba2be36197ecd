#!/usr/bin/env python3
"""Times Falchion's GEMMs on the CPU beside OpenBLAS (f32, through NumPy) and PyTorch, on the same matrices, in turns.

    bench/compare_gemm_cpu.py --lib libfalchion.so --threads 1,2 --json result.json

A shape m x n x k is D (m, n) = A (m, k) B^T, with B (n, k) as layers have their weights. Of i8 D is i32, and PyTorch's call is
torch._int_mm. Each number of threads runs in its
own process, which is pinned to one CPU on each of so many physical cores before a library is loaded. Between two libraries
it sleeps until the idle workers of the first have stopped spinning. Times are medians of all rounds. ratio is a rival's time
over Falchion's, so above 1 Falchion is faster. It needs torch, NumPy and libfalchion.so, and no compiler.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import result_file
from compare_torch_cpu import cpu_name, interleaved, physical_cores

SHAPES = ("512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096")
BLOCK = 0.05  # seconds; shorter products are repeated for so long, as in an engine one follows another
REST = 0.1  # seconds; idle workers of OpenBLAS spin for 2^26 cycles, some 30 ms
RIVALS = {"f32": ("openblas", "torch"), "bf16": ("torch",), "f16": ("torch",), "i8": ("torch",)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: tuple(text.split(","))
    parser.add_argument("--lib", required=True, help="libfalchion.so")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--shapes", type=words, default=SHAPES, help="m x n x k, as 512x512x512")
    parser.add_argument("--dtypes", type=words, default=("f32",), help="f32, bf16, f16, i8")
    parser.add_argument("--threads", type=words, default=("1", "2"))
    parser.add_argument("--level", help="of Falchion's kernels, such as avx2; without it the best")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def check(torch, a, b, d):
    """Whether a sample of D is right. Sums of i8 must be exact. Others may be off by 6 x 2^-24 of the sum of magnitudes,
    which torch_gemm.py grants to sums in f32 and says why, and by half a unit of D's type."""
    rows = torch.linspace(0, a.shape[0] - 1, min(a.shape[0], 48)).long()
    of_a, of_b = a[rows].double(), b.double()
    exact = of_a @ of_b.T
    if d.dtype == torch.int32:
        return torch.equal(d[rows].double(), exact)
    sums = 6 * 2.0**-24 * (of_a.abs() @ of_b.abs().T)
    error = (d[rows].double() - exact).abs()
    return bool((error <= sums + torch.finfo(d.dtype).eps / 2 * (exact.abs() + sums)).all())


def operands(torch, dtype_name, m, n, k):
    """Returns random a and b, and d with contents that no product has left."""
    if dtype_name == "i8":
        a, b = (torch.randint(-128, 128, (rows, k), dtype=torch.int8) for rows in (m, n))
        return a, b, torch.full((m, n), -(2**31), dtype=torch.int32)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype_name]
    a, b = (torch.randn(rows, k).to(dtype) for rows in (m, n))
    return a, b, torch.full((m, n), float("nan"), dtype=dtype)


def cell(torch, fal, options, dtype_name, shape):
    m, n, k = map(int, shape.split("x"))
    a, b, d = operands(torch, dtype_name, m, n, k)
    out = torch.empty_like(d)
    ours = fal.gemm_plan(a, b, d, threads=options.worker, level=options.level)
    theirs = (lambda: torch._int_mm(a, b.T)) if dtype_name == "i8" else (lambda: torch.matmul(a, b.T, out=out))
    calls = {"falchion": ours, "torch": theirs}
    if dtype_name == "f32":
        import numpy
        of_a, of_b, of_out = a.numpy(), b.numpy().T, out.numpy()
        calls["openblas"] = lambda: numpy.matmul(of_a, of_b, out=of_out)
    ours()
    return {"dtype": dtype_name, "shape": shape, "threads": options.worker, "flops": 2.0 * m * n * k,
            "check": "ok" if check(torch, a, b, d) else "WRONG", "plan": ours.describe,
            "samples": dict(zip(calls, interleaved(list(calls.values()), options.rounds, lambda: time.sleep(REST), BLOCK)))}


def worker(options):
    """Prints one line of JSON for each result."""
    os.sched_setaffinity(0, physical_cores(options.worker))
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(options.worker)
    import torch
    from falchion_ctypes import Falchion
    torch.set_num_threads(options.worker)
    torch.manual_seed(1)
    fal = Falchion(options.lib)
    print(json.dumps({"torch": torch.__version__, "build_info": fal.build_info()}), flush=True)
    with torch.inference_mode():
        for dtype in options.dtypes:
            for shape in options.shapes:
                print(json.dumps(cell(torch, fal, options, dtype, shape)), flush=True)


def row_of(cell):
    """Replaces the samples of a cell by their medians and by half their ranges, relative to these."""
    samples = cell.pop("samples")
    seconds = {name: statistics.median(list_) for name, list_ in samples.items()}
    spread = {name: (max(list_) - min(list_)) / 2 / seconds[name] for name, list_ in samples.items()}
    ratios = {rival: seconds[rival] / seconds["falchion"] for rival in RIVALS[cell["dtype"]]}
    return {**cell, "ms": {name: x * 1e3 for name, x in seconds.items()}, "spread": spread, "ratios": ratios}


def show(row):
    ratios = "".join(f"{row['ratios'][rival]:>10.2f}" if rival in row["ratios"] else f"{'-':>10}" for rival in RIVALS["f32"])
    print(f"{row['threads']:>7}  {row['dtype']:<5} {row['shape']:<18}{row['ms']['falchion']:>10.2f}"
          f"{row['flops'] / row['ms']['falchion'] / 1e6:>10.1f}{ratios}  {row['plan']}"
          f"{'' if row['check'] == 'ok' else '  WRONG'}", flush=True)


def main():
    options = parse()
    if options.worker:
        return worker(options)
    rows, context = [], {}
    print("threads  type  shape                     ms   GFLOP/s  openblas     torch  plan")
    for threads in options.threads:
        with subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--worker", threads], stdout=subprocess.PIPE, text=True) as run:
            for line in run.stdout:
                row = json.loads(line)
                if "shape" not in row:
                    context = row
                    continue
                rows.append(row_of(row))
                show(rows[-1])
        if run.returncode:
            return run.returncode
    if options.json:
        result_file.write(options.json, {**result_file.facts(cpu_name(), result_file.cpu_driver(context["build_info"])), "context": context, "rows": rows})
    return 1 if any(row["check"] != "ok" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
