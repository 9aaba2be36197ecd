#!/usr/bin/env python3
"""bench/python_overhead.py: what a call of falchion from Python costs besides the arithmetic, beside PyTorch's own.

    python bench/python_overhead.py            # a table
    python bench/python_overhead.py --json

One query on one key with head dim 16, or a product of 4 x 4 matrices, so that there is next to nothing to compute:
what is left is the way there. Each figure is the best of 200 batches of 500 calls, in microseconds a call; the import is
the best of 9 fresh processes, in milliseconds (`import numpy` beside it). With a GPU, PyTorch's tensors lie there, and a
figure is how long the host is kept: batches of 200 calls are enqueued and then waited for outside of the time. Rows whose
library is missing are left out.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

BATCHES = 200


def microseconds(call: Callable[[], Any], wait: Callable[[], Any], calls: int) -> float:
    best = float("inf")
    for _ in range(BATCHES):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - start)
        wait()
    return best / calls * 1e6


def import_milliseconds(module: str) -> float:
    program = f"import time; s = time.perf_counter(); import {module}; print(time.perf_counter() - s)"
    times = [
        float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
        for _ in range(9)
    ]
    return min(times) * 1e3


def nothing() -> None:
    """What the loop itself costs, and a call of a Python function."""


def numpy_rows() -> dict[str, float]:
    import falchion
    import numpy as np

    q, k, v = (np.random.default_rng(i).standard_normal((1, 1, 1, 16), dtype=np.float32) for i in range(3))
    out, (o, lse) = np.empty_like(q), falchion.attention(q, k, v, return_lse=True)
    plan = falchion.Plan(q)
    grads = (out, np.empty_like(q), np.empty_like(q))
    a, b, d = (np.ones((4, 4), np.float32) for _ in range(3))
    rows = {
        "an empty Python function": nothing,
        "numpy, out given": lambda: falchion.attention(q, k, v, out=out),
        "numpy, out given, a Plan": lambda: plan(q, k, v, out=out),
        "numpy, output made": lambda: falchion.attention(q, k, v),
        "numpy, o and lse made": lambda: falchion.attention(q, k, v, return_lse=True),
        "numpy, backward, grads given": lambda: falchion.attention_backward(o, q, k, v, o, lse, grads=grads),
        "numpy, linear attention, out given": lambda: falchion.linear_attention(q, k, v, out=out),
        "numpy, gemm 4 x 4 x 4, out given": lambda: falchion.gemm(a, b, out=d),
        "numpy, gemm 4 x 4 x 4, output made": lambda: falchion.gemm(a, b),
        "numpy, numpy.matmul 4 x 4 x 4, out given": lambda: np.matmul(a, b.T, out=d),
        "numpy, numpy.matmul 4 x 4 x 4, output made": lambda: a @ b.T,
        "numpy, rms_norm of 16, out given": lambda: falchion.rms_norm(q, out=out),
    }
    return {name: microseconds(call, nothing, 500) for name, call in rows.items()}


def torch_rows() -> dict[str, float]:
    try:
        import torch
    except ImportError:
        return {}
    import falchion

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = (torch.randn(1, 1, 1, 16, device=device, dtype=dtype) for _ in range(3))
    out, (o, lse) = torch.empty_like(q), falchion.attention(q, k, v, return_lse=True)
    row = q[0, 0]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    rows = {
        f"torch {device}, out given": lambda: falchion.attention(q, k, v, out=out),
        f"torch {device}, output made": lambda: falchion.attention(q, k, v),
        f"torch {device}, o and lse made": lambda: falchion.attention(q, k, v, return_lse=True),
        f"torch {device}, backward, grads made": lambda: falchion.attention_backward(o, q, k, v, o, lse),
        f"torch {device}, PyTorch's sdpa": lambda: sdpa(q, k, v),
        f"torch {device}, gemm of one row of 16, output made": lambda: falchion.gemm(row, row),
        f"torch {device}, PyTorch's linear": lambda: torch.nn.functional.linear(row, row),
    }
    wait = torch.cuda.synchronize if device == "cuda" else nothing
    with torch.no_grad():
        return {name: microseconds(call, wait, 200 if device == "cuda" else 500) for name, call in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="for programs")
    as_json = parser.parse_args().json
    times = {f"{name}, us": us for name, us in (numpy_rows() | torch_rows()).items()}
    times |= {f"import {module}, ms": import_milliseconds(module) for module in ("falchion", "numpy")}
    if as_json:
        print(json.dumps(times))
    else:
        print("\n".join(f"{name:44} {figure:8.2f}" for name, figure in times.items()))


if __name__ == "__main__":
    main()
