#!/usr/bin/env python3
"""Times Falchion's GEMMs of 8-bit numbers beside PyTorch's, on the same tensors, interleaved, in one run.

    bench/compare_gemm_scaled.py --lib libfalchion.so --json result.json           # on a GPU
    bench/compare_gemm_scaled.py --lib libfalchion.so --threads 2                  # on the CPU, pinned to that many cores

e4m3 stands beside torch._scaled_mm, whose default sums are promoted as ours are, with a scale for each tensor and for each
row; its fast sums (use_fast_accum) are shown beside them. i8 stands beside torch._int_mm, with D in i32. A shape m x n x k is
D (m, n) = A (m, k) B^T, with B (n, k). On a GPU cells are timed as compare_gemm.py does in its mode burst. ratio is PyTorch's
time over Falchion's.
"""
import argparse
import math
import os
import pathlib
import statistics
import sys
import time

import result_file

GPU_SHAPES = ("1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "8192x8192x8192", "16x4096x4096", "64x4096x14336",
              "512x6144x4096", "4096x28672x4096", "4096x8192x28672")
CPU_SHAPES = ("512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "1x4096x4096", "16x4096x4096")
KINDS = ("tensor", "row_col", "i8")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: tuple(text.split(","))
    parser.add_argument("--lib", required=True, help="libfalchion.so")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--shapes", type=words, help="m x n x k, as 4096x4096x4096")
    parser.add_argument("--kinds", type=words, default=KINDS, help="of " + ", ".join(KINDS))
    parser.add_argument("--threads", type=int, default=0, help="above 0: on the CPU, i8 alone")
    parser.add_argument("--rounds", type=int, default=5, help="groups of each; the median counts")
    options = parser.parse_args()
    options.backend = "best"
    options.kinds = ("i8",) if options.threads else options.kinds
    options.shapes = options.shapes or (CPU_SHAPES if options.threads else GPU_SHAPES)
    return options


def numbers(torch, rows, k, kind, device):
    x = torch.randn(rows, k, device=device)
    return (x * 40).round().clamp(-128, 127).to(torch.int8) if kind == "i8" else x.to(torch.float8_e4m3fn)


def scales(torch, kind, m, n, device):
    if kind == "i8":
        return None, None
    rows = (m, n) if kind == "row_col" else (1, 1)
    return tuple(0.5 + torch.rand(r, device=device) for r in rows)


def calls_of(torch, fal, kind, m, n, k, device, threads):
    """name -> call, the operands, and how ours runs."""
    a, b = (numbers(torch, rows, k, kind, device) for rows in (m, n))
    s_a, s_b = scales(torch, kind, m, n, device)
    d = torch.zeros(m, n, dtype=torch.int32 if kind == "i8" else torch.bfloat16, device=device)
    ours = fal.gemm_plan(a, b, d, threads=threads, scale_a=s_a, scale_b=s_b)
    calls = {"falchion": ours}
    if kind == "i8":
        calls["torch"] = lambda: torch._int_mm(a, b.T)
    else:
        s = (s_a[:, None], s_b[None, :]) if kind == "row_col" else (s_a[0], s_b[0])
        calls["torch"] = lambda: torch._scaled_mm(a, b.T, *s, out_dtype=torch.bfloat16)
        calls["torch fast"] = lambda: torch._scaled_mm(a, b.T, *s, out_dtype=torch.bfloat16, use_fast_accum=True)
    for name in [name for name in calls if name != "falchion"]:
        try:
            calls[name]()
        except RuntimeError as error:
            print(f"  {name} refuses {kind} {m}x{n}x{k}: {str(error).strip().splitlines()[0][:100]}")
            calls.pop(name)
    ours()
    rows, columns = (torch.linspace(0, e - 1, min(e, most), device=device).long() for e, most in ((m, 48), (n, 96)))
    exact = a[rows].double() @ b[columns].double().T
    if s_a is not None:
        exact *= (s_a[rows] if len(s_a) > 1 else s_a)[:, None].double() * (s_b[columns] if len(s_b) > 1 else s_b)[None, :].double()
    error = ((d[rows][:, columns].double() - exact).abs().max() / exact.abs().max()).item()
    return calls, error, ours.describe


def time_on_gpu(torch, bench, fal, options, kind, m, n, k):
    import torch_rivals
    moved = (m + n) * k + m * n * (4 if kind == "i8" else 2)
    copies = max(1, min(64, math.ceil(3 * torch.cuda.get_device_properties(0).L2_cache_size / moved)))
    sets = [calls_of(torch, fal, kind, m, n, k, "cuda", 0) for _ in range(copies)]
    repeats = 1 if 2.0 * m * n * k >= 1e11 else math.ceil(8 / copies)

    def walk(name):
        return lambda: [calls[name]() for calls, _, _ in sets]

    graphs = {name: torch_rivals.in_graph(walk(name), repeats) for name in sets[0][0]}
    samples, _ = bench.interleaved(graphs, "burst", options.rounds, 1)
    return {name: statistics.median(x) / (copies * repeats) for name, x in samples.items()}, *sets[0][1:]


def time_on_cpu(torch, fal, options, kind, m, n, k):
    calls, error, how = calls_of(torch, fal, kind, m, n, k, "cpu", options.threads)
    samples = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            time.sleep(0.02)  # idle workers of the other library stop spinning
            call()
            start, count = time.perf_counter(), 0
            while count == 0 or time.perf_counter() - start < 0.03:
                call()
                count += 1
            samples[name].append((time.perf_counter() - start) / count * 1e3)
    return {name: min(x) for name, x in samples.items()}, error, how


def main():
    options = parse()
    if options.threads:
        from compare_torch_cpu import physical_cores
        os.sched_setaffinity(0, physical_cores(options.threads))
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import torch
    from falchion_ctypes import Falchion
    fal = Falchion(options.lib)
    bench = None
    if options.threads:
        torch.set_num_threads(options.threads)
    else:
        import torch_rivals
        bench = torch_rivals.Bench(fal, options)
    rows = []
    print(f"{'':<24}{'falchion us':>12}{'TOP/s':>7}{'torch us':>11}{'fast us':>10}{'ratio':>7}{'error':>10}  plan")
    for kind in options.kinds:
        for shape in options.shapes:
            m, n, k = map(int, shape.split("x"))
            run = (lambda: time_on_cpu(torch, fal, options, kind, m, n, k)) if options.threads else (
                lambda: time_on_gpu(torch, bench, fal, options, kind, m, n, k))
            try:
                ms, error, how = run()
            except RuntimeError as refusal:
                print(f"{kind + ' ' + shape:<24}failed: {str(refusal)[:150]}", flush=True)
                continue
            ratio = ms.get("torch", math.nan) / ms["falchion"]
            rows.append({"kind": kind, "shape": shape, "ms": ms, "ratio": ratio, "error": error, "plan": how})
            print(f"{kind + ' ' + shape:<24}{ms['falchion'] * 1e3:>12.1f}{2e-9 * m * n * k / ms['falchion']:>7.1f}"
                  f"{ms.get('torch', math.nan) * 1e3:>11.1f}{ms.get('torch fast', math.nan) * 1e3:>10.1f}{ratio:>7.2f}{error:>10.1e}  {how}",
                  flush=True)
    if options.json:
        from compare_torch_cpu import cpu_name
        context = {"torch": torch.__version__, "threads": options.threads} if options.threads else bench.context()
        head = result_file.facts(*((cpu_name(), "none") if options.threads else (context.pop("device"), context.pop("driver"))))
        result_file.write(options.json, {**head, "context": context, "rows": rows})
    if bench:
        bench.stop()
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
