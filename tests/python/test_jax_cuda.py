"""falchion.jax on a GPU beside the formulas in float32: types, transformations, linear attention, and calls that XLA
puts beside a CUDA graph. Skipped where JAX finds no GPU."""

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
TYPES = [("float32", 5e-6), ("float16", 3e-3), ("bfloat16", 2e-2)]
CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": "bottom_right"},
    "window": {"window": (70, 5), "align": "top_left"},
    "softcap": {"softcap": 5.0, "causal": "bottom_right"},
    "alibi": {"alibi": np.linspace(0.01, 0.3, H_Q).astype("f")},
    "bias": {"bias": np.asarray(random(4, 1, H_Q, S_Q, S_K))},
    "mask": {"mask": np.asarray(random(5, B, 1, 1, S_K) > 0)},
}


@pytest.fixture(autouse=True)
def exact_products() -> Any:
    """The formulas' own products are made in full float32, and not in TF32 as XLA does by itself."""
    with jax.default_matmul_precision("highest"):
        yield


def qkv(d: int, dtype: str) -> tuple[jax.Array, ...]:
    shapes = (B, S_Q, H_Q, d), (B, S_K, H_K, d), (B, S_K, H_K, d)
    return tuple(random(i, *shape, dtype=dtype) for i, shape in enumerate(shapes))


def value_and_gradients(attention: Any, **options: Any) -> Any:
    def loss(*x: jax.Array) -> tuple[jax.Array, Any]:
        o, lse = attention(*x, **options, return_lse=True)
        return jnp.sin(o.astype("f")).sum() + 0.1 * jnp.where(jnp.isfinite(lse), lse, 0).sum(), (o, lse)

    def both(*x: jax.Array) -> Any:
        (_, found), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(*x)
        return found, gradients

    return both


def in_float32(x: Any) -> Any:
    return jax.tree.map(lambda y: y.astype("f"), x)


@pytest.mark.parametrize(("name", "d"), [*((name, 64) for name in CASES), ("causal", 128), ("window", 256)])
@pytest.mark.parametrize(("dtype", "limit"), TYPES)
def test_both_passes(dtype: str, limit: float, name: str, d: int) -> None:
    x = qkv(d, dtype)
    found, gradients = jax.jit(value_and_gradients(fj.attention, **CASES[name]))(*x)
    want, wanted = jax.jit(value_and_gradients(formula, **CASES[name]))(*in_float32(x))
    assert [y.dtype.name for y in (found[0], *gradients)] == [dtype] * 4
    close(found, want, limit)
    close(gradients, wanted, 3 * limit)


@pytest.mark.parametrize(("dtype", "limit"), TYPES)
def test_vmap_of_gradients(dtype: str, limit: float) -> None:
    """The keys are shared by all examples, so their gradient is the sum."""
    q, k, v = qkv(64, dtype)
    many = jnp.stack([q, -q, q[::-1]])

    def summed(attention: Any) -> Any:
        def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            o = jax.vmap(lambda q: attention(q, k, v, causal="bottom_right"))(q)
            return jnp.sin(o.astype("f")).sum()

        return jax.jit(jax.grad(loss, (0, 1, 2)))

    close(summed(fj.attention)(many, k, v), summed(formula)(*in_float32((many, k, v))), 3 * limit)
    mapped = jax.jit(jax.vmap(value_and_gradients(fj.attention), (0, None, None)))(many, k, v)
    alone = [value_and_gradients(fj.attention)(q, k, v) for q in many]
    close(mapped, jax.tree.map(lambda *y: jnp.stack(y), *alone), 3 * limit)


@pytest.mark.parametrize(("dtype", "limit"), TYPES)
def test_lengths(dtype: str, limit: float) -> None:
    x, used_k, first_k = qkv(64, dtype), jnp.array([264, 100]), jnp.array([30, 0])
    at = np.arange(S_K)
    seen = (at >= np.array(first_k)[:, None]) & (at < np.array(used_k)[:, None])
    found, gradients = value_and_gradients(fj.attention, used_k=used_k, first_k=first_k)(*x)
    want, wanted = value_and_gradients(formula, mask=seen[:, None, None])(*in_float32(x))
    close(found, want, limit)
    close(gradients, wanted, 3 * limit)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(("dtype", "limit"), TYPES)
@pytest.mark.parametrize("decay", ["none", "head", "token"])
def test_linear_attention(decay: str, dtype: str, limit: float, d: int) -> None:
    """States in and out, both passes. Products of q and k of 64 numbers are large, so q and k are made smaller."""
    q, k, v = (random(i, B, 150, H_K, d) for i in range(3))
    x = tuple(y.astype(dtype) for y in (0.3 * q, 0.3 * k, v))
    options: dict[str, Any] = {"initial_state": random(7, B, H_K, d, d)}
    if decay != "none":
        options["decay"] = -0.1 * jnp.abs(random(8, *((H_K,) if decay == "head" else (B, 150, H_K))))

    def both(attention: Any) -> Any:
        def loss(x: Any, options: Any) -> tuple[jax.Array, Any]:
            o, state = attention(*x, **options)
            return jnp.sin(o.astype("f")).sum() + jnp.cos(state).sum(), (o, state)

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))

    def ours(*x: Any, **options: Any) -> Any:
        return fj.linear_attention(*x, **options, return_state=True)

    (_, found), gradients = both(ours)(x, options)
    (_, want), wanted = both(linear_formula)(in_float32(x), options)
    close(found, want, 4 * limit)
    close(gradients, wanted, 10 * limit)


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
print("command buffers" if "command_buffer" in program.as_text() else "no command buffers")
"""


def test_two_calls_beside_command_buffers() -> None:
    """With all of XLA's command buffers (CUDA graphs) on, programs give the same results in each run. In a process of
    its own, because the flags are read when JAX starts."""
    flags = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
    run = subprocess.run(
        [sys.executable, "-c", GRAPHS],
        env=os.environ
        | {"XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    print(run.stdout)
