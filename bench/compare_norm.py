#!/usr/bin/env python3
"""Times Falchion's norms on a GPU beside torch's and beside a copy of the same bytes, interleaved, in one run.

    bench/compare_norm.py --lib libfalchion.so --json result.json [--shapes 16384x4096,1x4096] [--kinds rms,layer]

It needs torch with CUDA and libfalchion.so, and no compiler. A shape is rows x d. The kinds are rms and layer (with a weight,
and layer with a bias too) and rms+residual, where a residual is added before and the sum is written; torch takes an addition
and a norm for that. The copy is torch's copy_ of one tensor to another, for rms+residual of two. The calls of a cell are a
CUDA graph that walks over copies of the operands, together at least three times as large as the L2. copy is the time of the
copy divided by Falchion's: the share of the copy's bandwidth. torch is the time of torch divided by Falchion's.
"""
import argparse
import math
import os
import pathlib
import statistics
import sys

import result_file

SHAPES = ("16384x1024", "16384x4096", "16384x8192", "4096x4096", "4096x16384", "524288x128", "16x4096", "1x4096")
KINDS = ("rms", "layer", "rms+residual")
LEAST_CALLS = 16  # in a graph, where a call is short


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: tuple(text.split(","))
    parser.add_argument("--lib", required=True, help="libfalchion.so")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--shapes", type=words, default=SHAPES, help="rows x d, as 16384x4096")
    parser.add_argument("--kinds", type=words, default=KINDS)
    parser.add_argument("--dtype", choices=("bf16", "f16", "f32"), default="bf16")
    parser.add_argument("--mode", choices=("burst", "sustained"), default="burst")
    parser.add_argument("--rounds", type=int, default=5, help="groups of each; the median counts")
    options = parser.parse_args()
    if not os.path.exists(options.lib):
        parser.error(f"no libfalchion.so at {options.lib}; build it (./dev device-build) and give --lib")
    return options


def operands(rows, d, kind, dtype):
    import torch
    make = lambda *shape: torch.randn(*shape, device="cuda").to(dtype)
    out = {"x": make(rows, d), "weight": make(d), "y": torch.full((rows, d), math.nan, device="cuda", dtype=dtype)}
    if kind == "layer":
        out["bias"] = make(d)
    if kind == "rms+residual":
        out["residual"], out["residual_out"] = make(rows, d), torch.empty_like(out["x"])
    return out


def by_torch(o, kind):
    import torch
    d, x = (o["x"].shape[1],), o["x"]
    if kind == "rms+residual":
        torch.add(x, o["residual"], out=o["residual_out"])
        x = o["residual_out"]
    functional = torch.nn.functional
    if kind == "layer":
        return functional.layer_norm(x, d, o["weight"], o["bias"], 1e-5)
    return functional.rms_norm(x, d, o["weight"], 1e-5)


def by_copy(o, kind):
    o["y"].copy_(o["x"])
    if kind == "rms+residual":
        o["residual_out"].copy_(o["residual"])


def check(o, kind):
    """The largest error, and whether it is within a unit of the largest number."""
    import torch
    exact = by_torch({name: x.double() for name, x in o.items()}, kind)
    error = (o["y"].double() - exact).abs().max().item()
    limit = torch.finfo(o["y"].dtype).eps * exact.abs().max().item()
    return "ok" if error <= limit else f"WRONG: error {error:.2e}, limit {limit:.2e}"


def cell(bench, fal, rows, d, kind, options):
    import torch
    import torch_rivals
    dtype = {**torch_rivals.DTYPES, "f32": torch.float32}[options.dtype]
    moved = rows * d * torch.finfo(dtype).bits // 8 * (4 if kind == "rms+residual" else 2)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    sets = [operands(rows, d, kind, dtype) for _ in range(max(1, min(64, math.ceil(3 * l2 / moved))))]
    ours = [fal.norm_plan(kind="layer" if kind == "layer" else "rms", **o) for o in sets]
    ours[0]()
    torch.cuda.synchronize()
    found = check(sets[0], kind)
    repeats = math.ceil(LEAST_CALLS / len(sets))
    walks = {"falchion": lambda: [call() for call in ours], "torch": lambda: [by_torch(o, kind) for o in sets],
             "copy": lambda: [by_copy(o, kind) for o in sets]}
    graphs = {name: torch_rivals.in_graph(walk, repeats) for name, walk in walks.items()}
    samples, clocks = bench.interleaved(graphs, options.mode, options.rounds, 1)
    ms = {name: statistics.median(list_) / len(sets) / repeats for name, list_ in samples.items()}
    return {"name": f"{rows}x{d}", "kind": kind, "mode": options.mode, "ms": ms, "share_of_copy": ms["copy"] / ms["falchion"],
            "torch_over_falchion": ms["torch"] / ms["falchion"], "tb_per_s": moved / ms["falchion"] / 1e9, "check": found,
            "plan": ours[0].describe, "clocks": clocks, "copies": len(sets)}


def main():
    options = parse()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here")
    import torch_rivals
    from falchion_ctypes import Falchion
    fal = Falchion(options.lib)
    bench = torch_rivals.Bench(fal, options)
    context = bench.context()
    print(f"{context['device']}, driver {context['driver']}, torch {context['torch']}")
    print(f"{options.mode + ' ' + options.dtype:<16}{'kind':<14}{'falchion':>11}{'TB/s':>7}{'copy':>11}{'share':>7}{'torch':>11}{'ratio':>7}")
    rows = []
    for kind in options.kinds:
        for shape in options.shapes:
            row = cell(bench, fal, *map(int, shape.split("x")), kind, options)
            rows.append(row)
            us = {name: ms * 1e3 for name, ms in row["ms"].items()}
            print(f"{shape:<16}{kind:<14}{us['falchion']:>9.1f}us{row['tb_per_s']:>7.2f}{us['copy']:>9.1f}us{row['share_of_copy']:>7.3f}"
                  f"{us['torch']:>9.1f}us{row['torch_over_falchion']:>6.2f}x {'' if row['check'] == 'ok' else row['check']}".rstrip(),
                  flush=True)
    if options.json:
        head = result_file.facts(context.pop("device"), context.pop("driver"))
        context.update({"rounds": options.rounds, "dtype": options.dtype})
        result_file.write(options.json, {**head, "context": context, "rows": rows})
    bench.stop()
    return 1 if any(row["check"] != "ok" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
