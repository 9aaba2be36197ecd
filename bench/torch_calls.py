"""What a call costs the host from PyTorch: falchion.torch beside scaled_dot_product_attention.

    python bench/torch_calls.py [--device cuda] [--dtype bfloat16]

The problem is so small (16 queries and keys, 2 heads of 64) that the device never is the limit: the
time is that of checks, of the output's allocation and of the launch. Microseconds a call, the best of
several rounds, in each of which every call has its turn."""

import argparse
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import falchion
import falchion.torch as ft


def microseconds(run, device, calls):
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--calls", type=int, default=100, help="of each in a round")
    parser.add_argument("--rounds", type=int, default=50)
    a = parser.parse_args()
    torch.set_num_threads(1)
    shape, dtype = (1, 2, 16, 64), getattr(torch, a.dtype)
    q, k, v = (torch.randn(shape, device=a.device, dtype=dtype) for _ in range(3))
    rows = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    out = torch.empty_like(rows[0])
    mask = torch.ones(1, 1, 1, 16, dtype=torch.bool, device=a.device)
    starts = torch.tensor([0, 16], dtype=torch.int32, device=a.device)
    packed = [x[0] for x in rows]
    needs = [x.clone().requires_grad_() for x in (q, k, v)]
    rows_need = [x.clone().requires_grad_() for x in rows]
    calls = {
        "falchion.attention, out given": lambda: falchion.attention(*rows, out=out),
        "falchion.attention": lambda: falchion.attention(*rows),
        "falchion.torch.attention": lambda: ft.attention(*rows),
        "falchion.torch.sdpa": lambda: ft.sdpa(q, k, v),
        "torch's sdpa": lambda: scaled_dot_product_attention(q, k, v),
        "falchion.torch.attention, mask": lambda: ft.attention(*rows, mask=mask),
        "torch's sdpa, mask": lambda: scaled_dot_product_attention(q, k, v, mask),
        "falchion.torch.varlen": lambda: ft.varlen(*packed, starts, max_q=16),
        "falchion.torch.linear_attention": lambda: ft.linear_attention(*rows),
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
        "both passes: falchion.torch.linear_attention": (
            lambda: ft.linear_attention(*rows_need),
            rows_need,
            row_grad,
        ),
        "both passes: torch's sdpa": (lambda: scaled_dot_product_attention(*needs), needs, grad),
    }
    for name, (run, inputs, above) in both.items():
        calls[name] = lambda run=run, i=inputs, g=above: torch.autograd.grad(run(), i, g)
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(a.rounds):
        for name, run in calls.items():
            best[name] = min(best[name], microseconds(run, a.device, a.calls))
    for name, found in best.items():
        print(f"{found:8.2f} us  {name}")


if __name__ == "__main__":
    main()
