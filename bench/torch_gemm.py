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
        """The largest error on a sample of rows and columns, and whether each element is within half a unit of the output
        and what its sum may be off by. The limit is each element's own: one for all would be that of the largest, in bf16
        some four units of a usual one. Of sums of 16 to 16384 random terms, added one by one in f32, the worst of 100,000 was
        off by 1.6 times F32_SUM of the sum of their magnitudes, whatever k was, so f32 is granted 2. Tensor cores may cut
        off where others round, and that adds up, so 16-bit types are granted more where k is large, as src/judge does."""
        rows = torch.linspace(0, a.shape[0] - 1, min(a.shape[0], 48), device=a.device).long()
        columns = torch.linspace(0, b.shape[0] - 1, min(b.shape[0], 96), device=a.device).long()
        of_a, of_b = a[rows].double(), b[columns].double()
        exact = of_a @ of_b.T
        error = (d[rows][:, columns].double() - exact).abs()
        grant = 2 if d.dtype == torch.float32 else max(2, (a.shape[1] / 64) ** 0.5)
        sums = grant * F32_SUM * (of_a.abs() @ of_b.abs().T)
        limit = sums + torch.finfo(d.dtype).eps / 2 * (exact.abs() + sums)
        worst = (error / limit).argmax()  # NaN counts as the largest
        wrong = not bool((error <= limit).all())
        words = f"WRONG: error {error.flatten()[worst].item():.2e}, limit {limit.flatten()[worst].item():.2e}"
        return error.max().item(), words if wrong else "ok"

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
