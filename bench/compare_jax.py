#!/usr/bin/env python3
"""bench/compare_jax.py: falchion.jax beside jax.nn.dot_product_attention, on JAX's default device.

It prints what a jit call costs beside one that adds 1, and the time of a causal forward pass and of the gradients (which
includes the forward pass). XLA's own f32 products take TF32 on GPUs unless
JAX_DEFAULT_MATMUL_PRECISION=highest is set.
"""

import argparse
import functools
import time

import falchion
import falchion.jax
import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=4096)
parser.add_argument("--heads", type=int, default=16)
parser.add_argument("--head-dims", type=int, nargs="+", default=[64, 128])
parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
parser.add_argument("--runs", type=int, default=20)
parser.add_argument("--rivals", nargs="+", default=["falchion", "jax, cudnn", "jax, xla"])
args = parser.parse_args()

OURS = functools.partial(falchion.jax.attention, causal=True)
THEIRS = functools.partial(jax.nn.dot_product_attention, is_causal=True)
RIVALS = {
    "falchion": OURS,
    "jax, cudnn": functools.partial(THEIRS, implementation="cudnn"),
    "jax, xla": functools.partial(THEIRS, implementation="xla"),
}


def microseconds(run, runs, rounds=5):
    """The best of some rounds, each of so many runs in a row."""
    jax.block_until_ready(run())
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        for _ in range(runs):
            out = run()
        jax.block_until_ready(out)
        best = min(best, (time.perf_counter() - begun) / runs)
    return best * 1e6


def gradients(attention):
    return jax.jit(jax.grad(lambda x, w: (attention(*x) * w).astype(jnp.float32).sum()))


def row(name, attention, x):
    forward, backward = jax.jit(attention), gradients(attention)
    try:
        times = microseconds(lambda: forward(*x), args.runs), microseconds(lambda: backward(x, x[0]), args.runs)
    except (ValueError, RuntimeError, NotImplementedError) as why:  # cuDNN takes neither float32 nor CPUs
        return f"  {name:12} refused: {str(why).splitlines()[0][:80]}"
    return f"  {name:12} forward {times[0]:10.0f} us, gradients {times[1]:10.0f} us"


print(f"falchion {falchion.__version__}, jax {jax.__version__}, {jax.devices()[0].device_kind}")
small = jnp.ones((1, 8, 1, 64), jnp.bfloat16)
for name, function in (("x + 1", lambda x: x + 1), ("falchion", lambda x: falchion.jax.attention(x, x, x))):
    call = functools.partial(jax.jit(function), small)
    waited = microseconds(lambda call=call: jax.block_until_ready(call()), 200)
    print(f"a jit call, 8 tokens: {name:8} {waited:6.1f} us waited for, {microseconds(call, 1000):6.1f} us in a row")
for dtype in args.dtypes:
    for d in args.head_dims:
        shape = (args.batch, args.length, args.heads, d)
        x = tuple(jax.random.normal(jax.random.key(i), shape, jnp.float32).astype(dtype) for i in range(3))
        print(f"causal {dtype} b {args.batch}, s {args.length}, h {args.heads}, d {d}")
        for name in args.rivals:
            print(row(name, RIVALS[name], x), flush=True)
