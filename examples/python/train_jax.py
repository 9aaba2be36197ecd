"""Trains a byte GPT twice from one seed, with Falchion's attention and with JAX's own, and prints how the losses differ.

The text is Python's own library, which every machine has. python train_jax.py --help tells the sizes.
"""

import argparse
import functools
import sysconfig
import time
from pathlib import Path

import falchion.jax
import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
for name, size in (("steps", 100), ("layers", 4), ("heads", 4), ("width", 256), ("length", 256), ("batch", 8)):
    parser.add_argument(f"--{name}", type=int, default=size)
parser.add_argument("--dtype", default="float32", help="of the products: float32 or bfloat16")
parser.add_argument("--limit", type=float, default=1.0, help="how far the losses may be apart")
args = parser.parse_args()


def init(key):
    w, n = args.width, args.layers
    shapes = {"embed": (256, w), "qkv": (n, w, 3 * w), "out": (n, w, w), "up": (n, w, 4 * w), "down": (n, 4 * w, w)}
    return {name: 0.02 * jax.random.normal(jax.random.fold_in(key, i), s) for i, (name, s) in enumerate(shapes.items())}


def loss(attention, params, tokens):
    layers = {name: x.astype(args.dtype) for name, x in params.items()}
    embed = layers.pop("embed")

    def layer(x, weights):
        qkv = (jax.nn.standardize(x) @ weights["qkv"]).reshape(*x.shape[:2], 3 * args.heads, -1)
        q, k, v = jnp.split(qkv, 3, axis=2)
        x = x + attention(jax.nn.standardize(q), jax.nn.standardize(k), v).reshape(x.shape) @ weights["out"]
        return x + jax.nn.gelu(jax.nn.standardize(x) @ weights["up"]) @ weights["down"], None

    x, _ = jax.lax.scan(layer, embed[tokens[:, :-1]] * args.width**0.5, layers)
    logits = (jax.nn.standardize(x) @ embed.T).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1).mean()


@functools.partial(jax.jit, static_argnums=0)
def train_step(attention, state, tokens, step):  # Adam
    params, mean, square = state
    value, grads = jax.value_and_grad(loss, 1)(attention, params, tokens)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
    square = jax.tree.map(lambda s, g: 0.95 * s + 0.05 * g * g, square, grads)
    rate, root = 1e-3 * jnp.minimum(1, step / 20) / (1 - 0.9**step), jnp.sqrt(1 - 0.95**step)
    params = jax.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) / root + 1e-8), params, mean, square)
    return (params, mean, square), value


def train(attention, text):
    params, places, losses = init(jax.random.key(0)), np.random.default_rng(0), []
    state = (params, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))
    for step in range(args.steps):
        start = places.integers(0, len(text) - args.length - 1, args.batch)
        state, value = train_step(attention, state, text[start[:, None] + np.arange(args.length + 1)], step + 1.0)
        losses.append(value)
        if step == 0:  # the first one compiles
            jax.block_until_ready(state)
            begun = time.perf_counter()
    jax.block_until_ready(state)
    rate = (args.steps - 1) * args.batch * args.length / (time.perf_counter() - begun)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {rate:,.0f} tokens/s")
    return np.array(losses)


files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
text = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8).astype(np.int32)
ours = train(functools.partial(falchion.jax.attention, causal=True), text)
theirs = train(functools.partial(jax.nn.dot_product_attention, is_causal=True), text)
apart = np.abs(ours - theirs)
print(f"the losses differ by at most {apart[:50].max():.1e} in the first 50 steps, by {apart.max():.1e} in all")
raise SystemExit(not apart.max() <= args.limit)
