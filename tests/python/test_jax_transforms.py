"""falchion.jax under JAX's transformations: vmap, jit, checkpoint, scan, shard_map, and two threads."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import falchion.jax as fj
import jax.numpy as jnp
from jax_formula import attention as formula
from test_jax_attention import close, qkv, random

N = 3


def calls_in(program: Any, target: str = "falchion_attention_forward") -> int:
    """How many custom calls of this name a lowered program has."""
    return int(program.as_text().count(f"custom_call @{target}("))


def stacked(x: Any) -> Any:
    return jax.tree.map(lambda y: jnp.stack([y, y[::-1] * 0.7, y + 0.1]), x)


def losses(**options: Any) -> tuple[Any, Any]:
    def gradients(attention: Any) -> Any:
        def loss(q: Any, k: Any, v: Any, bias: Any) -> jax.Array:
            o, lse = attention(q, k, v, bias=bias, **options, return_lse=True)
            return jnp.sin(o).sum() + jnp.cos(lse).sum()

        return jax.value_and_grad(loss, (0, 1, 2, 3))

    return gradients(fj.attention), gradients(formula)


@pytest.mark.parametrize(
    ("axes", "b_of_bias"),
    [
        ((0, 0, 0, 0), 1),
        ((0, 0, 0, 0), 2),
        ((0, None, None, None), 1),
        ((None, 0, 0, None), 2),
        ((None, None, None, 0), 1),
    ],
)
def test_vmap_of_gradients(axes: Any, b_of_bias: int) -> None:
    x = (*qkv(), random(9, b_of_bias, 1, 19, 33))
    mapped = tuple(stacked(y) if axis == 0 else y for y, axis in zip(x, axes, strict=True))
    ours, plain = (jax.jit(jax.vmap(f, axes)) for f in losses(softcap=3.0))
    program = ours.lower(*mapped)
    close(program.compile()(*mapped), plain(*mapped), 1e-5)
    assert calls_in(program) == 1
    assert calls_in(program, "falchion_attention_backward") == 1


def test_gradients_of_vmap() -> None:
    def loss(attention: Any) -> Any:
        def of(q: Any, k: Any, v: Any, slopes: Any) -> jax.Array:
            inner = jax.vmap(lambda q, v, slopes: attention(q, k, v, alibi=slopes), (1, 2, None), 3)
            return jnp.sin(jax.vmap(inner, (None, 0, 0))(q, v, slopes)).sum()

        return jax.jit(jax.grad(of, (0, 1, 2, 3)))

    q, k, v = qkv()
    q, v = jnp.moveaxis(stacked(q), 0, 1), jnp.stack([jnp.moveaxis(stacked(v), 0, 2)] * 2)
    slopes = jnp.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.0]])
    close(loss(fj.attention)(q, k, v, slopes), loss(formula)(q, k, v, slopes), 1e-5)


def test_vmap_over_seeds_and_packed_sequences() -> None:
    x, keys = qkv(), jax.random.split(jax.random.key(0), N)

    def with_seed(key: Any) -> jax.Array:
        return fj.attention(*x, dropout=0.5, seed=key)

    close(jax.vmap(with_seed)(keys), jnp.stack([with_seed(key) for key in keys]), 0)
    rows, starts = tuple(y.reshape(-1, *y.shape[2:]) for y in qkv(s_q=33)), jnp.array([0, 20, 66])

    def packed(q: Any, starts: Any) -> jax.Array:
        return fj.varlen(q, rows[1], rows[2], starts)

    many = jnp.stack([starts, jnp.array([0, 0, 66]), jnp.array([3, 50, 60])])
    close(jax.vmap(packed, (None, 0))(rows[0], many), jnp.stack([packed(rows[0], s) for s in many]), 0)


def test_examples_under_vmap_drop_different_elements() -> None:
    q, k, v = qkv()
    o = jax.vmap(lambda q: fj.attention(q, k, v, dropout=0.5, seed=1))(jnp.stack([q, q]))
    assert float((o[0] != o[1]).mean()) > 0.5


def test_vmap_of_the_backward_pass_alone_drops_what_the_forward_pass_dropped() -> None:
    q, k, v = (x[:, :5, :, :8] for x in qkv())

    def attend(q: Any) -> jax.Array:
        return fj.attention(q, k, v, dropout=0.5, seed=3)

    o, backward = jax.vjp(attend, q)
    given = random(9, N, *o.shape)
    alone = jnp.stack([backward(x)[0] for x in given])
    close(jax.vmap(backward)(given)[0], alone, 0)

    def both(q: Any, given: Any) -> jax.Array:  # the inner vmap sees the gradient alone, the outer one all of it
        return jax.vmap(jax.vjp(attend, q)[1])(given)[0]

    q, given = jnp.stack([q, q]), jnp.stack([given, given])
    o, backward = jax.vjp(jax.vmap(attend), q)
    close(jax.vmap(both)(q, given), jnp.stack([backward(x)[0] for x in given.swapaxes(0, 1)], 1), 0)


def test_jit_compiles_once() -> None:
    traced = []

    @jax.jit
    def f(q: Any, k: Any, v: Any) -> jax.Array:
        traced.append(q)
        return fj.attention(q, k, v)

    for scale in (1.0, 2.0, 3.0):
        q, k, v = qkv()
        close(f(q * scale, k, v), formula(q * scale, k, v), 1e-5)
    assert len(traced) == 1


def test_checkpoint_keeps_what_it_is_told_to() -> None:
    def loss(attention: Any) -> Any:
        return jax.grad(lambda *x: jnp.sin(attention(*x) * 2).sum(), (0, 1, 2))

    keep = jax.checkpoint_policies.save_only_these_names("falchion_o", "falchion_lse")
    kept = loss(jax.checkpoint(fj.attention, policy=keep))
    again = loss(jax.checkpoint(fj.attention))
    wanted = jax.jit(loss(formula))(*qkv())
    for gradients, calls in ((kept, 1), (again, 2)):
        program = jax.jit(gradients).lower(*qkv())
        close(program.compile()(*qkv()), wanted, 1e-5)
        assert calls_in(program) == calls


def test_scan() -> None:
    def loss(attention: Any) -> Any:
        def layers(q: jax.Array) -> jax.Array:
            _, k, v = qkv()
            end, _ = jax.lax.scan(lambda q, _: (attention(q, k, v[..., :16]), None), q, None, length=3)
            return jnp.sin(end).sum()

        return jax.jit(jax.grad(layers))(qkv()[0])

    close(loss(fj.attention), loss(formula), 1e-5)


def test_what_is_frozen_is_not_computed() -> None:
    q, k, v = qkv()
    bias = random(4, 1, 1, 1, 33)

    def backward_of(f: Any, x: Any) -> str:
        text = jax.jit(jax.grad(f)).lower(x).as_text()
        return next(line for line in text.splitlines() if "@falchion_attention_backward(" in line)

    line = backward_of(lambda q: fj.attention(q, k, v, bias=bias).sum(), q)
    assert 'results = "grad_q"' in line
    line = backward_of(lambda k: fj.attention(q, k, v, bias=bias).sum(), k)
    assert 'results = "grad_k"' in line


def test_two_threads() -> None:
    """All run compiled programs of several shapes at once, so that plans and workspaces are shared from the start."""
    attend = jax.jit(fj.attention)
    inputs = [qkv(s_q=s) for s in (1, 8, 33)]
    wanted = [np.asarray(formula(*x, xp=np)) for x in inputs]

    def errors(_: int) -> list[float]:
        turns = [turn % len(inputs) for turn in range(30)]
        return [float(np.abs(np.asarray(attend(*inputs[i])) - wanted[i]).max()) for i in turns]

    with ThreadPoolExecutor(4) as threads:
        assert all(error < 1e-5 for found in threads.map(errors, range(4)) for error in found)


SHARDED = """
import jax, jax.numpy as jnp
import falchion.jax as fj
from jax.sharding import PartitionSpec as P

assert len(jax.devices()) == 2
mesh = jax.sharding.Mesh(jax.devices(), ("batch",))
q, k, v = (jax.random.normal(jax.random.key(i), (4, 17, 2, 8), jnp.float32) for i in range(3))
bias = jax.random.normal(jax.random.key(4), (1, 2, 1, 17), jnp.float32)  # the same on both devices

def attend(q, k, v, bias):
    return fj.attention(q, k, v, bias=bias)

batch = P("batch")
sharded = jax.shard_map(attend, mesh=mesh, in_specs=(batch, batch, batch, P()), out_specs=batch)

def gradients(f):
    return jax.jit(jax.grad(lambda *x: jnp.sin(f(*x)).sum(), (0, 1, 2, 3)))(q, k, v, bias)

for a, b in zip(gradients(sharded), gradients(attend), strict=True):
    assert a.shape == b.shape and float(jnp.abs(a - b).max()) < 1e-5
alone = jax.jit(jax.grad(lambda bias: jnp.sin(sharded(q, k, v, bias)).sum()))(bias)  # what is frozen has its axes too
assert float(jnp.abs(alone - gradients(attend)[3]).max()) < 1e-5
lengths = jnp.array([3, 17, 9, 1])
assert jax.config.jax_enable_x64 and lengths.dtype == jnp.int64
options = {"scale": 0.5, "dropout": 0.1, "seed": 3}
o = fj.attention(q, k, v, used_k=lengths, **options)
assert o.dtype == jnp.float32
assert bool((o == fj.attention(q, k, v, used_k=lengths.astype(jnp.int32), **options)).all())
"""


def test_two_devices_and_64_bits() -> None:
    """In a process of its own, because both are settled when JAX starts."""
    settings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    settings["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    run = subprocess.run(
        [sys.executable, "-c", SHARDED],
        env=os.environ | settings | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
