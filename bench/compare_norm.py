#!/usr/bin/env python3
"""Times Falchion's norms on a GPU beside torch's and beside a copy of the same bytes, interleaved, in one run.

    bench/compare_norm.py --lib libfalchion.so --json result.json [--shapes 16384x4096,1x4096] [--kinds rms,layer]

It needs torch with CUDA and libfalchion.so, and no compiler. A shape is rows x d. The kinds are rms and layer (with a weight,
and layer with a bias too) and rms+residual, where a residual is added before and the sum is written; torch takes an addition
and a norm for that. rms-backward and layer-backward are the gradients of x, weight and bias (with +residual the gradient of
the sum is added); torch has the statistics from its forward pass. The copy is torch's copy_ of one tensor to another, for
rms+residual of two. The calls of a cell are a CUDA graph that walks over copies of the operands, together at least three times
as large as the L2. share is the rate of Falchion's bytes divided by that of the copy's, where x, y and their like count. torch
is the time of torch divided by Falchion's.
"""
import argparse
import math
import os
import pathlib
import statistics
import sys

import result_file

SHAPES = ("16384x1024", "16384x4096", "16384x8192", "4096x4096", "4096x16384", "524288x128", "16x4096", "1x4096")
KINDS = ("rms", "layer", "rms+residual", "rms-backward", "layer-backward", "rms-backward+residual")
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


def matrices(kind):
    """How many matrices of the size of x a call reads and writes."""
    return (3 if "backward" in kind else 2) + ("residual" in kind) * (1 if "backward" in kind else 2)


def gradients(rows, d, kind, dtype):
    import torch
    make = lambda *shape: torch.randn(*shape, device="cuda").to(dtype)
    empty = lambda *shape: torch.full(shape, math.nan, device="cuda", dtype=dtype)
    out = {"x": make(rows, d), "weight": make(d), "grad_y": make(rows, d), "grad_x": empty(rows, d), "grad_weight": empty(d)}
    if kind.startswith("layer"):
        out["grad_bias"] = empty(d)
    if kind.endswith("+residual"):
        out["grad_residual_out"] = make(rows, d)
    return out


def statistics_of(o):
    import torch
    x = o["x"].float()
    return {"mean": x.mean(1, keepdim=True), "rstd": torch.rsqrt(x.var(1, correction=0, keepdim=True) + 1e-5),
            "rms": torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5)}


def gradients_by_torch(o, kind, known):
    import torch
    d = [o["x"].shape[1]]
    if kind.startswith("layer"):
        return torch.ops.aten.native_layer_norm_backward(o["grad_y"], o["x"], d, known["mean"], known["rstd"], o["weight"],
                                                         o["weight"], [True, True, True])
    grad_x, grad_weight = torch.ops.aten._fused_rms_norm_backward(o["grad_y"], o["x"], d, known["rms"], o["weight"],
                                                                  [True, True])
    if kind.endswith("+residual"):
        grad_x += o["grad_residual_out"]
    return grad_x, grad_weight


def check_gradients(o, kind):
    """The largest error of each gradient, as a share of its largest number, is within two units, beside double."""
    import torch
    x, weight = (o[name].double().requires_grad_() for name in ("x", "weight"))
    bias = torch.zeros_like(weight).requires_grad_()
    functional, d = torch.nn.functional, (o["x"].shape[1],)
    y = functional.layer_norm(x, d, weight, bias, 1e-5) if kind.startswith("layer") else functional.rms_norm(x, d, weight, 1e-5)
    y.backward(o["grad_y"].double())
    more = o["grad_residual_out"].double() if "grad_residual_out" in o else 0
    wrong = []
    for name, exact in {"grad_x": x.grad + more, "grad_weight": weight.grad, "grad_bias": bias.grad}.items():
        if name in o:
            error = ((o[name].double() - exact).abs().max() / exact.abs().max()).item()
            if not error <= 2 * torch.finfo(o[name].dtype).eps:
                wrong.append(f"{name} is off by {error:.2e}")
    return "WRONG: " + ", ".join(wrong) if wrong else "ok"


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
    backward = "backward" in kind
    moved = rows * d * torch.finfo(dtype).bits // 8 * matrices(kind)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    make = gradients if backward else operands
    sets = [make(rows, d, kind, dtype) for _ in range(max(1, min(64, math.ceil(3 * l2 / moved))))]
    plan = fal.norm_backward_plan if backward else fal.norm_plan
    ours = [plan(kind="layer" if kind.startswith("layer") else "rms", **o) for o in sets]
    ours[0]()
    torch.cuda.synchronize()
    found = check_gradients(sets[0], kind) if backward else check(sets[0], kind)
    known = [statistics_of(o) for o in sets] if backward else []
    repeats = math.ceil(LEAST_CALLS / len(sets))
    walks = {"falchion": lambda: [call() for call in ours], "torch": lambda: [by_torch(o, kind) for o in sets],
             "copy": lambda: [by_copy(o, kind) for o in sets]}
    if backward:
        walks["torch"] = lambda: [gradients_by_torch(o, kind, of) for o, of in zip(sets, known)]
        walks["copy"] = lambda: [o["grad_x"].copy_(o["x"]) for o in sets]
    graphs = {name: torch_rivals.in_graph(walk, repeats) for name, walk in walks.items()}
    samples, clocks = bench.interleaved(graphs, options.mode, options.rounds, 1)
    ms = {name: statistics.median(list_) / len(sets) / repeats for name, list_ in samples.items()}
    copied = 4 if kind == "rms+residual" else 2
    return {"name": f"{rows}x{d}", "kind": kind, "mode": options.mode, "ms": ms,
            "share_of_copy": matrices(kind) / copied * ms["copy"] / ms["falchion"],
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
