#!/usr/bin/env python3
"""Times Falchion beside PyTorch's scaled_dot_product_attention on the CPU: same tensors, same cores, interleaved, in one
run.

    bench/compare_torch_cpu.py --lib build/release/libfalchion.so --threads 2,16 --json result.json

It needs torch (2.5 or newer) and libfalchion.so, and no compiler. Each thread count runs in its own process, which is
pinned to that many physical cores before torch is loaded. Between the two libraries it sleeps until the idle workers of
the other one have stopped spinning. It takes about five minutes. With `--sections backward` it times the backward pass,
which runs only when it is named. README.md beside this file says how to read the numbers.
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

import result_file

REST = 0.02  # seconds; libgomp's idle workers spin for up to some 15 ms
BLOCK = 0.004  # seconds; a shorter problem is repeated for this long within one sample
SECTIONS = ("decode", "prefill", "backward")


def physical_cores(count):
    """Returns `count` CPUs that this process may use, one on each physical core, and all of one NUMA node where it has
    enough."""
    seen, cores = set(), []
    for cpu in sorted(os.sched_getaffinity(0)):
        base = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}")
        try:
            key = (base / "topology/thread_siblings_list").read_text()
        except OSError:
            key = str(cpu)
        node = next((p.name for p in base.glob("node[0-9]*")), "node0")
        if key not in seen:
            seen.add(key)
            cores.append((node, cpu))
    for node in dict.fromkeys(n for n, _ in cores):
        here = [c for n, c in cores if n == node]
        if len(here) >= count:
            return here[:count]
    return [c for _, c in cores][:count]


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def seconds(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def interleaved(calls, runs, before=lambda: None, block=BLOCK):
    """Returns all samples of each call, in seconds. The calls take turns, so that a slow moment of the machine hits all of
    them."""
    repeats = []
    for call in calls:
        call()
        repeats.append(max(1, min(200, math.ceil(block / max(seconds(call, 1), 1e-6)))))
    samples = [[] for _ in calls]
    for _ in range(runs):
        for call, many, out in zip(calls, repeats, samples):
            before()
            time.sleep(REST)
            if many > 1:
                call()  # This call wakes the pool.
            out.append(seconds(call, many))
    return samples


def reference(torch, q, k, v, causal, head, rows):
    """Returns rows of one head in float64."""
    g = q.shape[1] // k.shape[1]
    s = q[0, head, rows].double() @ k[0, head // g].double().T / math.sqrt(q.shape[3])
    if causal:
        s.masked_fill_(torch.arange(k.shape[2])[None, :] > rows[:, None] + (k.shape[2] - q.shape[2]), -math.inf)
    return torch.softmax(s, 1) @ v[0, head // g].double()


def check(torch, q, k, v, causal, ours, theirs):
    """Returns the errors of both on a slice. Ours may be twice theirs, plus one unit of the type at the size of O, plus
    one unit of f32 at the size of V: O is a small mean of values of that size, and sums in f32 round like them."""
    rows = torch.linspace(0, q.shape[2] - 1, min(q.shape[2], 24)).long()
    error = [0.0, 0.0]
    largest = 0.0
    for head in (0, q.shape[1] - 1):
        exact = reference(torch, q, k, v, causal, head, rows)
        largest = max(largest, exact.abs().max().item())
        for i, o in enumerate((ours, theirs)):
            error[i] = max(error[i], (o[0, head, rows].double() - exact).abs().max().item())
    unit_at = lambda eps, size: eps * 2.0 ** math.floor(math.log2(size))
    unit = unit_at(torch.finfo(q.dtype).eps, largest) + unit_at(torch.finfo(torch.float32).eps, v.abs().max().item())
    if not error[0] <= 2 * error[1] + unit:
        sys.exit(f"wrong result: error {error[0]:.2e}, torch {error[1]:.2e}, unit {unit:.2e} on {tuple(q.shape)} {q.dtype}")
    return error


def type_of(torch, name):
    return {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[name]


def measure(torch, fal, options, threads, dtype_name, s, d, causal):
    dtype = type_of(torch, dtype_name)
    q, k, v = (torch.randn(1, options.heads, s, d).to(dtype) for _ in range(3))
    o = torch.full_like(q, math.nan)
    ours = fal.plan(q, k, v, o, causal=causal, threads=threads)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    theirs = lambda: sdpa(q, k, v, is_causal=causal)
    ours()
    errors = check(torch, q, k, v, causal, o, theirs())
    samples = interleaved([ours, theirs], options.runs)
    flops = 4.0 * options.heads * s * s * d * (0.5 if causal else 1)
    return {"kind": "prefill", "dtype": dtype_name, "threads": threads, "s": s, "d": d, "causal": causal, "flops": flops,
            "plan": ours.describe, "errors": errors, "samples": samples}


def measure_backward(torch, fal, options, threads, dtype_name, s, d, causal):
    """Times both libraries' own operation and not autograd, so that nothing but the backward pass is measured."""
    import torch_backward
    dtype = type_of(torch, dtype_name)
    q, k, v, grad_o = (torch.randn(1, options.heads, s, d).to(dtype) for _ in range(4))
    cell = {"calls": {}, "both": {}, "gradients": {}, "refused": {}, "plans": {}}
    torch_backward.add_ours(fal, "cpu", q, k, v, grad_o, causal, cell, threads, orders=("falchion",))
    torch_backward.add_rivals(["cpu"], q, k, v, grad_o, causal, cell)
    if cell["refused"]:
        sys.exit(f"torch refused: {cell['refused']['cpu']}")
    found, units = torch_backward.errors(q, k, v, grad_o, causal, cell["gradients"], heads=[(0, options.heads - 1)])
    if dtype == torch.float32:
        units = [unit * (1 + math.sqrt(s) / 2) for unit in units]
    samples = interleaved([cell["calls"]["falchion"], cell["calls"]["cpu"]], options.runs)
    flops = 10.0 * options.heads * s * s * d * (0.5 if causal else 1)
    return {"kind": "backward", "dtype": dtype_name, "threads": threads, "s": s, "d": d, "causal": causal, "flops": flops,
            "plan": cell["plans"]["falchion"], "check": torch_backward.verdict(found, units, within_twice),
            "errors": [max(e[name] for e in found) for name in ("falchion", "cpu")], "samples": samples}


def within_twice(errors, unit):
    """Says "ok", or by how much our error is over twice torch's plus `unit`, which is one unit of the type at the size of
    the gradient. In f32 sqrt(s) / 2 of these units are added, because our sums over s rows are made one after another:
    s roundings of up to half a unit, as a random walk."""
    limit = 2 * errors["cpu"] + unit
    return "ok" if errors["falchion"] <= limit else f"error {errors['falchion']:.2e}, limit {limit:.2e}"


def measure_decode(torch, fal, options, threads, dtype_name, cold):
    """Times one query against a long cache, with K and V from DRAM. Reading 1 GiB flushes the caches, and that is timed
    too."""
    dtype = type_of(torch, dtype_name)
    q = torch.randn(1, 32, 1, 128).to(dtype)
    k, v = (torch.randn(1, 8, 8192, 128).to(dtype) for _ in range(2))
    o = torch.full_like(q, math.nan)
    ours = fal.plan(q, k, v, o, threads=threads)
    theirs = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    ours()
    errors = check(torch, q, k, v, False, o, theirs())
    big = torch.ones(1 << 28) if cold else None  # The buffer has 1 GiB of f32.
    reads = []

    def flush():
        if cold:
            start = time.perf_counter()
            big.sum()
            reads.append(time.perf_counter() - start)
    flush()
    repeats_one = [[], []]
    for call in (ours, theirs):
        call()
    for _ in range(options.runs):
        for call, out in zip((ours, theirs), repeats_one):
            flush()
            time.sleep(REST)
            out.append(seconds(call, 1))
    count = float(k.element_size() * (k.numel() + v.numel() + 2 * q.numel()))
    return {"kind": "decode", "dtype": dtype_name, "threads": threads, "s": 8192, "d": 128, "causal": False, "cold": cold,
            "bytes": count, "plan": ours.describe, "errors": errors, "samples": repeats_one,
            "dram": (big.numel() * 4 / min(reads)) if cold else 0}


def worker(options):
    """Prints one line of JSON for each result."""
    threads = options.worker
    cores = physical_cores(threads)
    os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from falchion_ctypes import Falchion
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    fal = Falchion(options.lib)
    print(json.dumps({"kind": "context", "torch": torch.__version__, "falchion": fal.version(), "cores": cores,
                      "build_info": fal.build_info()}), flush=True)
    measures = {"prefill": measure, "backward": measure_backward}
    with torch.inference_mode():
        for dtype, cold in itertools.product(options.dtypes, (True, False)) if "decode" in options.sections else ():
            print(json.dumps(measure_decode(torch, fal, options, threads, dtype, cold)), flush=True)
        for section in (name for name in measures if name in options.sections):
            for dtype, s, d, causal in itertools.product(options.dtypes, options.s, options.d, (False, True)):
                print(json.dumps(measures[section](torch, fal, options, threads, dtype, s, d, causal)), flush=True)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def wrong(result):
    return f"   WRONG: {result['check']}" if result.get("check", "ok") != "ok" else ""


def show(result):
    ours, theirs = map(statistics.median, result["samples"])
    spread = (max(result["samples"][0]) - min(result["samples"][0])) / 2 / ours
    where = f"{result['dtype']:<5}{result['threads']:>4}{result['s']:>7}{result['d']:>5}"
    if result["kind"] != "decode":
        rate = [result["flops"] / t / 1e9 for t in (ours, theirs)]
        what = f"{'causal' if result['causal'] else 'full':<12}"
        print(f"{where}  {what}{ours * 1e3:>10.3f}{spread * 100:>6.0f} %{rate[0]:>10.0f}{theirs * 1e3:>11.3f}{rate[1]:>9.0f}"
              f"{theirs / ours:>8.2f}x{wrong(result)}", flush=True)
    else:
        rate = [result["bytes"] / t / 1e9 for t in (ours, theirs)]
        share = f"   ours {100 * rate[0] * 1e9 / result['dram']:.0f} % of DRAM {result['dram'] / 1e9:.1f} GB/s" if result["cold"] else ""
        what = f"{'decode cold' if result['cold'] else 'decode warm':<12}"
        print(f"{where}  {what}{ours * 1e3:>10.3f}{spread * 100:>6.0f} %{rate[0]:>10.1f}{theirs * 1e3:>11.3f}{rate[1]:>9.1f}"
              f"{theirs / ours:>8.2f}x{share}", flush=True)


def summary(results):
    """Prints geometric means of torch's time divided by Falchion's, with one line for each type and thread count."""
    out = []
    print("\ngeometric mean over all lengths and head dims: how many times as fast as torch\n"
          "section   type threads      full    causal      both    lowest")
    keys = dict.fromkeys((r["kind"], r["dtype"], r["threads"]) for r in results if r["kind"] != "decode")
    for section, dtype, threads in keys:
        ratios = {}
        for causal in (False, True):
            ratios[causal] = [statistics.median(r["samples"][1]) / statistics.median(r["samples"][0]) for r in results
                              if (r["kind"], r["dtype"], r["threads"], r["causal"]) == (section, dtype, threads, causal)]
        both = ratios[False] + ratios[True]
        line = {"section": section, "dtype": dtype, "threads": threads, "full": geometric_mean(ratios[False]),
                "causal": geometric_mean(ratios[True]), "both": geometric_mean(both), "lowest": min(both)}
        out.append(line)
        print(f"{section:<10}{dtype:<5}{threads:>7}{line['full']:>9.2f}x{line['causal']:>9.2f}x{line['both']:>9.2f}x"
              f"{line['lowest']:>9.2f}x")
    return out


def mode_of(result):
    if result["kind"] == "decode":
        return f"decode_{'cold' if result['cold'] else 'warm'}"
    return ("backward_" if result["kind"] == "backward" else "") + ("causal" if result["causal"] else "full")


def benchmarks(results):
    """Returns the medians in Google Benchmark's schema, so that compare.py can read them."""
    out = []
    for r in results:
        mode = mode_of(r)
        for who, samples in zip(("falchion", "torch"), r["samples"]):
            name = f"{who}/{r['dtype']}/{mode}/s:{r['s']}/d:{r['d']}/threads:{r['threads']}"
            median = statistics.median(samples)
            row = {"name": name + "_median", "run_name": name, "run_type": "aggregate", "aggregate_name": "median",
                   "aggregate_unit": "time", "iterations": len(samples), "repetitions": len(samples), "threads": r["threads"],
                   "real_time": median * 1e3, "cpu_time": median * 1e3, "time_unit": "ms",
                   "stddev_ms": statistics.stdev(samples) * 1e3 if len(samples) > 1 else 0.0,
                   "max_abs_error": r["errors"][0 if who == "falchion" else 1]}
            if r["kind"] != "decode":
                row["flops"] = r["flops"] / median
            else:
                row["bytes_per_second"] = r["bytes"] / median
                row["dram_bytes_per_second"] = r["dram"]
            if who == "falchion":
                row["label"] = r["plan"]
            out.append(row)
    return out


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    built = next((str(p) for p in (root / "build/release/libfalchion.so", root / "build/cpu/libfalchion.so") if p.exists()), None)
    words = lambda text: tuple(text.split(","))
    numbers = lambda text: tuple(map(int, text.split(",")))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default=built, help="libfalchion.so")
    parser.add_argument("--sections", type=words, default=SECTIONS[:-1],
                        help=f"of {', '.join(SECTIONS)}; without it all but backward")
    parser.add_argument("--threads", type=numbers, default=(2, 16))
    parser.add_argument("--dtypes", type=words, default=("bf16", "f32", "f16"))
    parser.add_argument("--s", type=numbers, default=(1024, 2048, 4096))
    parser.add_argument("--d", type=numbers, default=(64, 128))
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--runs", type=int, default=9, help="samples of each, taken in turn; the median counts")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.lib or not os.path.exists(options.lib):
        parser.error(f"no libfalchion.so at {options.lib}; build it (./dev build) or give --lib")
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if options.worker:
        return worker(options)

    available = len(physical_cores(1 << 20))
    print(f"{cpu_name()}, {available} physical cores. Interleaved, medians of {options.runs}, b 1, h {options.heads}\n")
    print("type  thr      s    d  what          ours ms    ±   GFLOP/s   torch ms  GFLOP/s   ratio   (decode: GB/s)")
    results, contexts = [], []
    for threads in options.threads:
        if threads > available:
            print(f"{threads} threads: skipped, there are {available} cores")
            continue
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--lib", options.lib, "--worker", str(threads)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                result = json.loads(line)
                if result["kind"] == "context":
                    contexts.append(result)
                    continue
                results.append(result)
                show(result)
        if process.returncode != 0:
            sys.exit(f"the run with {threads} threads failed")
    if not results:
        sys.exit("nothing was measured")
    means = summary(results)
    wrong_results = list(filter(wrong, results))
    if options.json:
        head = result_file.facts(cpu_name(), result_file.cpu_driver(contexts[0]["build_info"]))
        context = {"num_cpus": available, "torch": contexts[0]["torch"], "falchion_version": contexts[0]["falchion"],
                   "build_info": contexts[0]["build_info"], "heads": options.heads,
                   "runs": options.runs, "geometric_means": means,
                   "ratio": "torch median / falchion median, same tensors, interleaved"}
        result_file.write(options.json, {**head, "context": context, "benchmarks": benchmarks(results)})
    if wrong_results:
        sys.exit(f"{len(wrong_results)} of {len(results)} results are wrong")


if __name__ == "__main__":
    main()
