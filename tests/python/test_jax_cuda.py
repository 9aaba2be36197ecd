"""falchion.jax on a GPU beside the formulas in float32 on the host: both passes of 16-bit types, vmap, lengths, linear
attention, and programs with CUDA graphs. Skipped where JAX finds no GPU. The other tests of falchion.jax run on a GPU
too, in float32."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import falchion.jax as fj
import jax.numpy as jnp
from jax_formula import attention as formula
from jax_formula import linear_attention as linear_formula
from test_jax_attention import close, random

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX finds no GPU here")

B, S_Q, S_K, H_Q, H_K = 2, 200, 264, 8, 4
LIMITS = {"float16": 3e-3, "bfloat16": 2e-2}
CASES: dict[str, dict[str, Any]] = {
    "causal": {"causal": "bottom_right"},
    "window": {"window": (70, 5), "align": "top_left", "softcap": 5.0},
}


def qkv(d: int, dtype: str) -> tuple[jax.Array, ...]:
    shapes = (B, S_Q, H_Q, d), (B, S_K, H_K, d), (B, S_K, H_K, d)
    return tuple(random(i, *shape, dtype=dtype) for i, shape in enumerate(shapes))


def on_host(function: Any, *x: Any) -> Any:
    """The function of the same arrays in float32 on the host, where XLA multiplies in full float32."""
    host = jax.tree.map(lambda y: jax.device_put(jnp.asarray(y, "float32"), jax.devices("cpu")[0]), x)
    return jax.jit(function)(*host)


def value_and_gradients(attention: Any, **options: Any) -> Any:
    def loss(*x: jax.Array) -> tuple[jax.Array, Any]:
        o, lse = attention(*x, **options, return_lse=True)
        return jnp.sin(o.astype("f")).sum() + 0.1 * jnp.where(jnp.isfinite(lse), lse, 0).sum(), (o, lse)

    def both(*x: jax.Array) -> Any:
        (_, found), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(*x)
        return found, gradients

    return both


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("name", "d"), [("causal", 64), ("window", 128)])
def test_both_passes(name: str, d: int, dtype: str) -> None:
    x = qkv(d, dtype)
    found, gradients = jax.jit(value_and_gradients(fj.attention, **CASES[name]))(*x)
    want, wanted = on_host(value_and_gradients(formula, **CASES[name]), *x)
    assert [y.dtype.name for y in (found[0], *gradients)] == [dtype] * 4
    close(found, want, LIMITS[dtype])
    close(gradients, wanted, 3 * LIMITS[dtype])


def test_gradients_of_vmap() -> None:
    """The keys are shared by all examples, so their gradient is the sum."""
    q, k, v = qkv(64, "bfloat16")
    many = jnp.stack([q, -q, q[::-1]])

    def summed(attention: Any) -> Any:
        def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            o = jax.vmap(lambda q: attention(q, k, v, causal="bottom_right"))(q)
            return jnp.sin(o.astype("f")).sum()

        return jax.grad(loss, (0, 1, 2))

    close(jax.jit(summed(fj.attention))(many, k, v), on_host(summed(formula), many, k, v), 0.06)


def test_lengths() -> None:
    x, used_k, first_k = qkv(64, "float16"), jnp.array([264, 100]), jnp.array([30, 0])
    at = np.arange(S_K)
    seen = (at >= np.array(first_k)[:, None]) & (at < np.array(used_k)[:, None])
    found, gradients = jax.jit(value_and_gradients(fj.attention, used_k=used_k, first_k=first_k))(*x)
    want, wanted = on_host(value_and_gradients(formula, mask=seen[:, None, None]), *x)
    close(found, want, LIMITS["float16"])
    close(gradients, wanted, 3 * LIMITS["float16"])


@pytest.mark.parametrize(("dtype", "by"), [("float16", "head"), ("bfloat16", "token")])
def test_linear_attention(dtype: str, by: str) -> None:
    """With states in and out. Products of q and k of 64 numbers are large, so q and k are made smaller."""
    q, k, v = (random(i, B, 150, H_K, 64) for i in range(3))
    x = tuple(y.astype(dtype) for y in (0.3 * q, 0.3 * k, v))
    decay = -0.1 * jnp.abs(random(8, *((H_K,) if by == "head" else (B, 150, H_K))))
    state = random(7, B, H_K, 64, 64)

    def both(attention: Any) -> Any:
        def loss(x: Any, decay: Any, state: Any) -> tuple[jax.Array, Any]:
            o, state = attention(*x, decay=decay, initial_state=state)
            return jnp.sin(o.astype("f")).sum() + jnp.cos(state).sum(), (o, state)

        return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)

    def ours(*x: Any, **options: Any) -> Any:
        return fj.linear_attention(*x, **options, return_state=True)

    (_, found), gradients = jax.jit(both(ours))(x, decay, state)
    (_, want), wanted = on_host(both(linear_formula), x, decay, state)
    close(found, want, 4 * LIMITS[dtype])
    close(gradients, wanted, 10 * LIMITS[dtype])


GRAPHS = """
import jax, jax.numpy as jnp, falchion.jax as fj
q, k, v = (jax.random.normal(jax.random.key(i), (2, 1, 8, 64)).astype("float16") for i in range(3))
k, v = (jnp.tile(x, (1, 3000, 1, 1)) + jnp.arange(3000, dtype="float16")[:, None, None] / 3000 for x in (k, v))

def layers(q, k, v):  # the keys are split here, so both calls have a workspace
    for _ in range(2):
        q = fj.attention(jnp.sin(q) * 2 + 1, k, v) + q
    return q

step = jax.jit(layers)
program = step.lower(q, k, v).compile()
for turn in range(20):
    x = q + turn
    with jax.disable_jit():
        want = layers(x, k, v)
    found = program(x, k, v)
    noise = [jnp.ones((1 << 20,)) * turn for _ in range(4)]  # memory that XLA's allocator has got back is used again
    assert float(jnp.abs(program(x, k, v) - found).max()) == 0, turn
    assert float(jnp.abs(found - want).max()) < 0.02, turn
"""


def test_two_calls_among_command_buffers() -> None:
    """With all of XLA's command buffers (CUDA graphs) on, a program gives the same results in each run. In a process of
    its own, because the flags are read when JAX starts."""
    flags = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
    settings = {"XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", GRAPHS]
    run = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
