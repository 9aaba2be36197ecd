#!/usr/bin/env python3
"""Times Falchion's GEMMs beside torch.matmul on a GPU, with the same tensors, interleaved, in one run.

    bench/compare_gemm.py --lib libfalchion.so --json result.json [--shapes 4096x4096x4096,16x4096x4096] [--modes burst]

It needs torch with CUDA and libfalchion.so, and no compiler. torch.matmul runs with cuBLAS and with cuBLASLt, and the faster
one counts. A shape m x n x k is D (m, n) = A (m, k) B^T, with B (n, k) as layers have their weights. With --dtype e4m3 there
is a scale for each row of A and of B, D is bf16, and the rival is torch._scaled_mm, once with sums that are added in f32 after
each 128 of k, as Falchion's are, and once with its fast ones, which are not. With i8 D is i32, and the rival is torch._int_mm,
which takes no fewer than 17 rows. The calls of a cell are a
CUDA graph that walks over copies of the operands, at most 64 of them, together at least three times as large as the L2 unless
the operands are tiny, so that weights come from memory. In the mode burst it pauses before each group of calls, so that each group runs at the chip's top clock; in the
mode sustained it runs groups back to back. ratio is the time of the fastest rival divided by Falchion's, so above 1 Falchion
is faster.
"""
import argparse
import math
import os
import pathlib
import statistics
import sys
import time

import result_file

SHAPES = ("1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "8192x8192x8192", "16384x16384x16384", "1x6144x4096",
          "1x4096x14336", "1x57344x8192", "16x4096x4096", "16x28672x4096", "16x8192x28672", "64x6144x4096", "64x4096x14336",
          "64x10240x8192", "512x6144x4096", "512x28672x4096", "512x8192x8192", "4096x6144x4096", "4096x28672x4096",
          "4096x8192x28672", "32768x128x4096", "256x256x65536", "5120x5120x5120", "16x128256x4096")
BLAS = ("cublas", "cublaslt")
RIVALS = {"bf16": BLAS, "f16": BLAS, "f32": BLAS, "e4m3": ("scaled_mm", "scaled_mm_fast"), "i8": ("int_mm",)}


class FakeBench:
    """Takes the place of a GPU with invented numbers, to show the table and the JSON where there is none."""

    def context(self):
        return {"device": "fake", "driver": "none (invented numbers)", "torch": "none", "falchion_version": "fake", "build_info": ""}

    def cell(self, m, n, k, dtype, mode, rivals):
        del dtype, mode
        samples = {name: [1 + 0.01 * i, 1.1 + 0.01 * i] for i, name in enumerate(("falchion", *rivals))}
        return {"samples": samples, "error": 1e-3, "check": "ok", "plan": "fake", "clocks": {"sm_mhz": 1980.0}, "copies": 1,
                "flops": 2.0 * m * n * k, "bytes": 2.0 * (m * k + n * k + m * n)}

    def stop(self):
        pass


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: tuple(text.split(","))
    parser.add_argument("--lib", help="libfalchion.so")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--shapes", type=words, default=SHAPES, help="m x n x k, as 4096x4096x4096; without it 24 of them")
    parser.add_argument("--backend", choices=("best", "sm80", "sm90"), default="best", help="of Falchion")
    parser.add_argument("--modes", type=words, default=("burst", "sustained"))
    parser.add_argument("--dtype", choices=tuple(RIVALS), default="bf16", help="of A and B")
    parser.add_argument("--rounds", type=int, default=5, help="groups of each; the median counts")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds; later cells are left out")
    parser.add_argument("--fake", action="store_true", help="invented numbers, to see table and JSON without a GPU")
    options = parser.parse_args(arguments)
    for shape in options.shapes:
        if len(shape.split("x")) != 3 or not all(part.isdigit() for part in shape.split("x")):
            parser.error(f"--shapes: {shape} is not m x n x k, as 4096x4096x4096")
    if options.dtype == "i8":  # torch._int_mm refuses fewer rows
        options.shapes = tuple(shape for shape in options.shapes if int(shape.split("x")[0]) > 16)
    if not options.fake and not (options.lib and os.path.exists(options.lib)):
        parser.error(f"no libfalchion.so at {options.lib}; build it (./dev device-build) and give --lib")
    return options


def open_bench(options):
    if options.fake:
        return FakeBench()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here")
    from falchion_ctypes import Falchion
    from torch_gemm import Bench
    return Bench(Falchion(options.lib), options)


def row_of(name, mode, cell):
    ms = {n: statistics.median(x) for n, x in cell["samples"].items()}
    fastest = min((n for n in ms if n != "falchion"), key=lambda n: ms[n])
    spread = {n: (max(x) - min(x)) / 2 / ms[n] for n, x in cell["samples"].items()}
    return {"section": mode, "name": name, "ms": ms, "spread": spread, "rate": {n: cell["flops"] / t / 1e9 for n, t in ms.items()},
            "unit": "TFLOP/s", "fastest_rival": fastest, "ratio": ms[fastest] / ms["falchion"],
            "tb_per_s": {n: cell["bytes"] / t / 1e9 for n, t in ms.items()},
            **{key: cell[key] for key in ("error", "check", "plan", "clocks", "copies")}}


def show(row):
    cells = "".join(f"{t * 1e3:>{max(12, len(n) + 2) - 2}.1f}us{row['rate'][n]:>5.0f}" for n, t in row["ms"].items())
    clock = f"{row['clocks'].get('sm_mhz', 0):>6.0f}"
    check = "" if row["check"] == "ok" else row["check"]
    print(f"{row['name']:<20}{cells}{row['tb_per_s']['falchion']:>7.2f}{row['ratio']:>7.3f}x{clock}  {row['plan']} {check}".rstrip(),
          flush=True)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    options = parse()
    bench, start = open_bench(options), time.monotonic()
    context = bench.context()
    print(f"{context['device']}, driver {context['driver']}, torch {context['torch']}, falchion {context['falchion_version']}")
    rows, skipped, failed, means = [], [], [], {}
    rivals = RIVALS[options.dtype]
    for mode in options.modes:
        names = "".join(f"{name:>{max(12, len(name) + 2)}}{'TF':>5}" for name in ("falchion", *rivals))
        print(f"\n{mode + ' ' + options.dtype:<20}{names}{'TB/s':>7}{'ratio':>8}{'MHz':>6}  plan", flush=True)
        for shape in options.shapes:
            if time.monotonic() - start > options.budget:
                skipped.append(f"{mode} {shape}")
                continue
            try:
                row = row_of(shape, mode, bench.cell(*map(int, shape.split("x")), options.dtype, mode, rivals))
            except Exception as error:  # One broken cell does not end the run.
                failed.append({"cell": f"{mode} {shape}", "why": str(error).strip()[:400]})
                print(f"{shape:<20}failed: {str(error).strip()[:160]}", flush=True)
                continue
            rows.append(row)
            show(row)
        of_mode = [row for row in rows if row["section"] == mode]
        if of_mode:
            lowest = min(of_mode, key=lambda row: row["ratio"])
            means[mode] = {"cells": len(of_mode), "geometric_mean": geometric_mean([row["ratio"] for row in of_mode]),
                           "lowest": lowest["ratio"], "lowest_cell": lowest["name"]}
            print(f"{mode}: geometric mean {means[mode]['geometric_mean']:.3f} of {len(of_mode)} cells, lowest {lowest['ratio']:.3f} "
                  f"({lowest['name']})")
    if skipped:
        print(f"left out for time: {len(skipped)} cells, the first {skipped[0]}")
    if options.json:
        head = result_file.facts(context.pop("device"), context.pop("driver"))
        context.update({"rounds": options.rounds, "dtype": options.dtype, "summary": means, "skipped": skipped, "failed": failed,
                        "ratio": "median of the fastest rival over Falchion's, same tensors, interleaved"})
        result_file.write(options.json, {**head, "context": context, "rows": rows})
    bench.stop()
    wrong = [row["name"] for row in rows if row["check"] != "ok"]
    if wrong:
        print(f"wrong results: {', '.join(wrong)}")
    return 1 if wrong or failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
