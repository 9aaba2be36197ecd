"""What a call costs the host from PyTorch: falchion.torch beside scaled_dot_product_attention.

    python bench/torch_calls.py [--device cuda] [--dtype bfloat16]

The problem is so small (16 queries and keys, 2 heads of 64) that the device never is the limit: the
time is that of checks, of the output's allocation and of the launch. Microseconds a call, the best of
several rounds."""

import argparse
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import falchion
import falchion.torch as ft


def microseconds(run, device, calls=200, rounds=25):
    found = []
    for _ in range(rounds):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        found.append((time.perf_counter() - start) / calls * 1e6)
    return min(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    a = parser.parse_args()
    torch.set_num_threads(1)
    shape, dtype = (1, 2, 16, 64), getattr(torch, a.dtype)
    q, k, v = (torch.randn(shape, device=a.device, dtype=dtype) for _ in range(3))
    rows = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    out = torch.empty_like(rows[0])
    needs = [x.clone().requires_grad_() for x in (q, k, v)]
    rows_need = [x.clone().requires_grad_() for x in rows]
    calls = {
        "falchion.attention, out given": lambda: falchion.attention(*rows, out=out),
        "falchion.attention": lambda: falchion.attention(*rows),
        "falchion.torch.attention": lambda: ft.attention(*rows),
        "falchion.torch.sdpa": lambda: ft.sdpa(q, k, v),
        "torch's sdpa": lambda: scaled_dot_product_attention(q, k, v),
        "with autograd, forward: falchion.torch.attention": lambda: ft.attention(*rows_need),
        "with autograd, forward: falchion.torch.sdpa": lambda: ft.sdpa(*needs),
        "with autograd, forward: torch's sdpa": lambda: scaled_dot_product_attention(*needs),
    }
    grad, row_grad = torch.randn_like(q), torch.randn_like(rows[0])
    both = {
        "both passes: falchion.torch.attention": (
            lambda: ft.attention(*rows_need),
            rows_need,
            row_grad,
        ),
        "both passes: torch's sdpa": (lambda: scaled_dot_product_attention(*needs), needs, grad),
    }
    for name, (run, inputs, above) in both.items():
        calls[name] = lambda run=run, i=inputs, g=above: torch.autograd.grad(run(), i, g)
    for name, run in calls.items():
        print(f"{microseconds(run, a.device):8.2f} us  {name}")


if __name__ == "__main__":
    main()
