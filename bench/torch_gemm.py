"""What compare_gemm.py times: Falchion and PyTorch on the same matrices of the GPU. Needs torch."""
import functools
import math

import torch

import torch_rivals

DTYPES = {**torch_rivals.DTYPES, "f32": torch.float32, "e4m3": torch.float8_e4m3fn, "i8": torch.int8}
LEAST_CALLS = 8  # in a graph, where a call is short
LONG = 1e11  # flop: calls of so many need no company
F32_SUM = 3 * 2**-24  # kSum of src/judge/compare.hpp


def scaled_mm(fast):
    return lambda x: torch._scaled_mm(x["a"], x["b"].T, scale_a=x["scale_a"][:, None], scale_b=x["scale_b"][None, :],
                                      out_dtype=x["d"].dtype, use_fast_accum=fast)


def matmul(x):
    return torch.matmul(x["a"], x["b"].T, out=x["d"])


# Rivals but those of torch.matmul, whose BLAS is a setting.
CALLS = {"scaled_mm": scaled_mm(False), "scaled_mm_fast": scaled_mm(True), "int_mm": lambda x: torch._int_mm(x["a"], x["b"].T)}


class Bench(torch_rivals.Bench):
    def operands(self, m, n, k, dtype):
        """As Falchion.gemm_plan takes them."""
        if dtype == torch.int8:
            a, b = (torch.randint(-128, 128, (rows, k), device="cuda", dtype=dtype) for rows in (m, n))
            return {"a": a, "b": b, "d": torch.full((m, n), -(2**31), device="cuda", dtype=torch.int32)}
        a, b = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (m, n))
        if dtype != torch.float8_e4m3fn:
            return {"a": a, "b": b, "d": torch.full((m, n), math.nan, device="cuda", dtype=dtype)}
        scales = {f"scale_{name}": 0.5 + torch.rand(rows, device="cuda") for name, rows in (("a", m), ("b", n))}
        return {"a": a, "b": b, "d": torch.full((m, n), math.nan, device="cuda", dtype=torch.bfloat16), **scales}

    def check_d(self, a, b, d, scale_a=None, scale_b=None):
        """The largest error on a sample of rows and columns, and whether each element is within half a unit of the output
        and what its sum may be off by. The limit is each element's own: one for all would be that of the largest, in bf16
        some four units of a usual one. Of sums of 16 to 16384 random terms, added one by one in f32, the worst of 100,000 was
        off by 1.6 times F32_SUM of the sum of their magnitudes, whatever k was, so f32 is granted 2. Tensor cores may cut
        off where others round, and that adds up, so 16-bit types are granted more where k is large, as src/judge does. Sums
        of i8 are exact. Those of e4m3 lose what is 13 bits behind the first one in each block of 128: in the model of
        tests/judge_gemm_test.cpp the worst of 720 was off by 4 to 5.5 times 2^-13 of the root of the sum of the products'
        squares, so 10 are granted."""
        rows = torch.linspace(0, a.shape[0] - 1, min(a.shape[0], 48), device=a.device).long()
        columns = torch.linspace(0, b.shape[0] - 1, min(b.shape[0], 96), device=a.device).long()
        of_a, of_b = a[rows].double(), b[columns].double()
        if scale_a is not None:
            of_a, of_b = of_a * scale_a[rows, None], of_b * scale_b[columns, None]
        exact = of_a @ of_b.T
        error = (d[rows][:, columns].double() - exact).abs()
        if d.dtype == torch.int32:
            return error.max().item(), "ok" if error.max() == 0 else f"WRONG: error {error.max().item():.0f}, must be exact"
        grant = 2 if d.dtype == torch.float32 else max(2, (a.shape[1] / 64) ** 0.5)
        sums = grant * F32_SUM * (of_a.abs() @ of_b.abs().T)
        if a.dtype == torch.float8_e4m3fn:
            sums += 10 * 2**-13 * (of_a.square() @ of_b.square().T).sqrt()
        limit = sums + torch.finfo(d.dtype).eps / 2 * (exact.abs() + sums)
        worst = (error / limit).argmax()  # NaN counts as the largest
        wrong = not bool((error <= limit).all())
        words = f"WRONG: error {error.flatten()[worst].item():.2e}, limit {limit.flatten()[worst].item():.2e}"
        return error.max().item(), words if wrong else "ok"

    def cell(self, m, n, k, dtype, mode, rivals):
        dtype = DTYPES[dtype]
        first = self.operands(m, n, k, dtype)
        moved = sum(x.numel() * x.element_size() for x in first.values())
        flops = 2.0 * m * n * k
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        copies = max(1, min(64, math.ceil(3 * l2 / moved)))
        sets = [first] + [self.operands(m, n, k, dtype) for _ in range(copies - 1)]
        ours = [self.fal.gemm_plan(**set_, backend=self.options.backend) for set_ in sets]
        ours[0]()
        torch.cuda.synchronize()
        error, check = self.check_d(**first)
        repeats = 1 if flops >= LONG else math.ceil(LEAST_CALLS / copies)

        def walk_ours():
            for call in ours:
                call()

        def walk(call):
            for x in sets:
                call(x)

        graphs = {"falchion": torch_rivals.in_graph(walk_ours, repeats)}
        for name in rivals:
            if name not in CALLS:
                torch.backends.cuda.preferred_blas_library(name)
            graphs[name] = torch_rivals.in_graph(functools.partial(walk, CALLS.get(name, matmul)), repeats)
        samples, clocks = self.interleaved(graphs, mode, self.options.rounds, 1)
        calls = copies * repeats
        samples = {name: [ms / calls for ms in list_] for name, list_ in samples.items()}
        return {"samples": samples, "error": error, "check": check, "plan": ours[0].describe, "clocks": clocks, "copies": copies,
                "flops": flops, "bytes": float(moved)}
