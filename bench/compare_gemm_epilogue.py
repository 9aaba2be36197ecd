#!/usr/bin/env python3
"""Times what follows a GEMM's sums in the same kernel: Falchion's plain product, the same with a fused epilogue, and torch's
product with kernels of their own after it, interleaved, in one run.

    bench/compare_gemm_epilogue.py --lib libfalchion.so --json result.json [--shapes 4096x4096x4096] [--epilogues silu,swiglu]

It needs torch with CUDA and libfalchion.so. A shape m x n x k is D (m, n) = A (m, k) B^T; with swiglu B has 2 n rows, and plain is
the product of all of them. `over plain` is the time of the fused kernel over that of the plain one, so 1.02 is two per cent
more. `torch` is the time of torch's kernels over that of Falchion's one. The copies of the operands and the pauses are those of
compare_gemm.py.
"""
import argparse
import math
import os
import pathlib
import statistics
import sys
import time

import result_file

SHAPES = ("4096x4096x2048", "4096x4096x4096", "8192x8192x2048", "4096x4096x8192", "2048x14336x4096")
EPILOGUES = ("bias", "residual", "relu", "silu", "gelu_tanh", "gelu_erf", "swiglu", "bias+gelu_tanh+residual")
ACTIVATIONS = ("relu", "silu", "gelu_tanh", "gelu_erf", "swiglu")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: tuple(text.split(","))
    parser.add_argument("--lib", required=True, help="libfalchion.so")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--shapes", type=words, default=SHAPES)
    parser.add_argument("--epilogues", type=words, default=EPILOGUES, help=f"sums of bias, residual and one of {', '.join(ACTIVATIONS)}")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--rounds", type=int, default=5, help="groups of each; the median counts")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds; later cells are left out")
    options = parser.parse_args(arguments)
    for epilogue in options.epilogues:
        for word in epilogue.split("+"):
            if word not in ("bias", "residual", *ACTIVATIONS):
                parser.error(f"--epilogues: {word} is none of bias, residual, {', '.join(ACTIVATIONS)}")
    if not os.path.exists(options.lib):
        parser.error(f"no libfalchion.so at {options.lib}; build it (./dev device-build) and give --lib")
    return options


def activate(torch, name, z):
    """The activation of z; of swiglu, z has the gates and then the other half."""
    f = torch.nn.functional
    if name == "swiglu":
        gate, up = z.chunk(2, dim=1)
        return f.silu(gate) * up
    if name is None:
        return z
    return {"relu": f.relu, "silu": f.silu, "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"), "gelu_erf": f.gelu}[name](z)


class Bench:
    def __init__(self, options):
        import torch
        import torch_gemm
        from falchion_ctypes import Falchion
        self.torch, self.options = torch, options
        self.inner = torch_gemm.Bench(Falchion(options.lib), argparse.Namespace(backend="best", rounds=options.rounds))
        self.dtype = torch_gemm.DTYPES[options.dtype]

    def check(self, set_, d, activation):
        """The largest error on a sample, and whether each element is within a unit of the output and what its sum may be off by."""
        torch, (a, b, bias, residual) = self.torch, set_
        rows = torch.linspace(0, a.shape[0] - 1, 48, device="cuda").long()
        exact = a[rows].double() @ b.double().T
        sums = 2 * 3 * 2**-24 * max(1, (a.shape[1] / 256) ** 0.5) * (a[rows].double().abs() @ b.double().abs().T)
        if bias is not None:
            exact += bias.double()
        exact = activate(torch, activation, exact)
        limit = sums
        if activation == "swiglu":
            limit = sums.max() * exact.abs().clamp(min=1)
        if residual is not None:
            exact += residual[rows].double()
        limit = 1.2 * limit + torch.finfo(d.dtype).eps * exact.abs() / 2 * 1.02 + 1e-6
        error = (d[rows].double() - exact).abs()
        return error.max().item(), "ok" if bool((error <= limit).all()) else f"WRONG: {(error / limit).max().item():.2f} times the limit"

    def cell(self, m, n, k, epilogue):
        torch, words = self.torch, epilogue.split("+")
        activation = next((word for word in words if word in ACTIVATIONS), None)
        rows = 2 * n if activation == "swiglu" else n
        size = 2 * (m * k + rows * k + m * n)
        copies = max(1, min(16, math.ceil(3 * torch.cuda.get_device_properties(0).L2_cache_size / size)))
        random = lambda *shape: torch.randn(*shape, device="cuda").to(self.dtype)
        plain, fused, sets = [], [], []
        for _ in range(copies):
            a, b = random(m, k), random(rows, k) / math.sqrt(k)
            bias = random(rows) if "bias" in words else None
            residual = random(m, n) if "residual" in words else None
            d, all_sums = (torch.full((m, columns), math.nan, device="cuda", dtype=self.dtype) for columns in (n, rows))
            plan = self.inner.fal.gemm_plan
            plain.append(plan(a, b, all_sums))
            fused.append(plan(a, b, d, activation=activation or "none", residual=residual, bias_n=bias))
            sets.append((a, b, bias, residual, d))
        fused[0]()
        torch.cuda.synchronize()
        error, check = self.check(sets[0][:4], sets[0][4], activation)

        def walk_torch():
            for a, b, bias, residual, _ in sets:
                z = torch.nn.functional.linear(a, b, bias)
                z = activate(torch, activation, z)
                if residual is not None:
                    z = z + residual

        walk = lambda calls: lambda: [call() for call in calls]
        import torch_rivals
        repeats = max(1, math.ceil(8 / copies))
        graphs = {name: torch_rivals.in_graph(f, repeats)
                  for name, f in {"plain": walk(plain), "fused": walk(fused), "torch": walk_torch}.items()}
        samples, clocks = self.inner.interleaved(graphs, "burst", self.options.rounds, 1)
        ms = {name: statistics.median(list_) / copies / repeats for name, list_ in samples.items()}
        return {"ms": ms, "error": error, "check": check, "plan": fused[0].describe, "clocks": clocks}


def main():
    options, start = parse(), time.monotonic()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    bench, rows, skipped = Bench(options), [], []
    print(f"{'burst ' + options.dtype:<18}{'epilogue':<25}{'plain':>10}{'fused':>10}{'over plain':>12}{'torch':>8}  plan")
    for shape in options.shapes:
        for epilogue in options.epilogues:
            if time.monotonic() - start > options.budget:
                skipped.append(f"{shape} {epilogue}")
                continue
            cell = bench.cell(*map(int, shape.split("x")), epilogue)
            over, torch_over = cell["ms"]["fused"] / cell["ms"]["plain"], cell["ms"]["torch"] / cell["ms"]["fused"]
            rows.append({"name": shape, "epilogue": epilogue, "over_plain": over, "torch_over_fused": torch_over, **cell})
            print(f"{shape:<18}{epilogue:<25}{cell['ms']['plain'] * 1e3:>8.1f}us{cell['ms']['fused'] * 1e3:>8.1f}us{over:>12.3f}{torch_over:>8.2f}"
                  f"  {cell['plan']} {'' if cell['check'] == 'ok' else cell['check']}".rstrip(), flush=True)
    if skipped:
        print(f"left out for time: {len(skipped)} cells, the first {skipped[0]}")
    if options.json:
        context = bench.inner.context()
        head = result_file.facts(context.pop("device"), context.pop("driver"))
        context.update({"rounds": options.rounds, "dtype": options.dtype, "skipped": skipped})
        result_file.write(options.json, {**head, "context": context, "rows": rows})
    bench.inner.stop()
    return 1 if any(row["check"] != "ok" for row in rows) or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
