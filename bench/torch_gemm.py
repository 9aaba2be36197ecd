"""What compare_gemm.py times: Falchion and torch.matmul on the same matrices of the GPU. Needs torch."""
import math

import torch

import torch_rivals
from compare_gemm import LEAST_CALLS, LONG, RIVALS

DTYPES = {**torch_rivals.DTYPES, "f32": torch.float32}
F32_SUM = 3 * 2**-24  # kSum of src/judge/compare.hpp


class Bench(torch_rivals.Bench):
    def operands(self, m, n, k, dtype):
        a, b = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (m, n))
        return a, b, torch.full((m, n), math.nan, device="cuda", dtype=dtype)

    def check_d(self, a, b, d):
        """The largest error on a sample of rows and columns, and whether it is within the unit of the output and what sums
        in f32 may be off by, which is as src/judge grants it: the roundings of a sum of k random terms grow with it."""
        rows = torch.linspace(0, a.shape[0] - 1, min(a.shape[0], 48), device="cuda").long()
        columns = torch.linspace(0, b.shape[0] - 1, min(b.shape[0], 96), device="cuda").long()
        of_a, of_b = a[rows].double(), b[columns].double()
        exact = of_a @ of_b.T
        error = (d[rows][:, columns].double() - exact).abs().max().item()
        sums = F32_SUM * max(1, a.shape[1] / 64) ** 0.5 * (of_a.abs() @ of_b.abs().T).max().item()
        limit = torch.finfo(d.dtype).eps * exact.abs().max().item() + sums
        return error, "ok" if error <= limit else f"WRONG: error {error:.2e}, limit {limit:.2e}"

    def cell(self, m, n, k, dtype, mode):
        dtype = DTYPES[dtype]
        size = torch.finfo(dtype).bits // 8
        moved = size * (m * k + n * k + m * n)
        flops = 2.0 * m * n * k
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        copies = max(1, min(64, math.ceil(3 * l2 / moved)))
        sets = [self.operands(m, n, k, dtype) for _ in range(copies)]
        ours = [self.fal.gemm_plan(*set_, backend=self.options.backend) for set_ in sets]
        ours[0]()
        torch.cuda.synchronize()
        error, check = self.check_d(*sets[0])
        repeats = 1 if flops >= LONG else math.ceil(LEAST_CALLS / copies)

        def walk_ours():
            for call in ours:
                call()

        def walk_theirs():
            for a, b, d in sets:
                torch.matmul(a, b.T, out=d)

        graphs = {"falchion": torch_rivals.in_graph(walk_ours, repeats)}
        for name in RIVALS:
            torch.backends.cuda.preferred_blas_library(name)
            graphs[name] = torch_rivals.in_graph(walk_theirs, repeats)
        samples, clocks = self.interleaved(graphs, mode, self.options.rounds, 1)
        calls = copies * repeats
        samples = {name: [ms / calls for ms in list_] for name, list_ in samples.items()}
        return {"samples": samples, "error": error, "check": check, "plan": ours[0].describe, "clocks": clocks, "copies": copies,
                "flops": flops, "bytes": float(moved)}
