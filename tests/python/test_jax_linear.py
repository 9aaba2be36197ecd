"""falchion.jax.linear_attention beside the recurrence and JAX's autodiff of it."""

import itertools
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import falchion
import falchion.jax as fj
import jax.numpy as jnp
from jax_formula import linear_attention as formula
from test_jax_attention import close, random

B, S, H_QK, H_V, D_QK, D_V = 2, 37, 2, 4, 8, 5
STATE = random(3, B, H_V, D_QK, D_V)
Z = jnp.abs(random(4, B, H_V, D_QK))
BY_HEAD = -jnp.abs(random(5, H_V))
BY_TOKEN = -jnp.abs(random(6, B, S, H_V))
ELU: dict[str, Any] = {"feature_map": "elu_plus_one", "normalise": True}

# Static options, and arrays that have gradients.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "reverse": ({"reverse": True}, {}),
    "decay_by_head": ({}, {"decay": BY_HEAD}),
    "decay_by_token": ({}, {"decay": BY_TOKEN}),
    "state": ({}, {"initial_state": STATE, "decay": BY_HEAD}),
    "normaliser": (ELU, {}),
    "all": (ELU, {"initial_state": (STATE, Z), "decay": BY_TOKEN}),
}


def qkv(dtype: Any = jnp.float32) -> tuple[jax.Array, ...]:
    shapes = ((B, S, H_QK, D_QK), (B, S, H_QK, D_QK), (B, S, H_V, D_V))
    return tuple(random(i, *shape, dtype=dtype) for i, shape in enumerate(shapes))


def plain(*x: jax.Array, feature_map: str = "identity", return_state: bool = False, **options: Any) -> Any:
    o, state = formula(*x, elu=feature_map != "identity", **options)
    return (o, state) if return_state else o


def loss(attention: Any, static: dict[str, Any], return_state: bool) -> Any:
    def of(x: Any, arrays: Any) -> jax.Array:
        out = attention(*x, **static, **arrays, return_state=return_state)
        return sum(jnp.sin(y).sum() for y in jax.tree.leaves(out))

    return jax.value_and_grad(of, (0, 1))


@pytest.mark.parametrize(("name", "return_state"), [("plain", False), ("all", False), *((x, True) for x in CASES)])
def test_results_and_gradients(name: str, return_state: bool) -> None:
    static, arrays = CASES[name]
    got, wanted = (jax.jit(loss(f, static, return_state))(qkv(), arrays) for f in (fj.linear_attention, plain))
    if arrays.get("decay") is BY_HEAD:
        # The gradient is a sum over all tokens whose terms cancel: in float32 the formula itself is off by 7e-6 of it.
        close(got[1][1].pop("decay"), wanted[1][1].pop("decay"), 1e-4)
    close(got, wanted, 2e-5)


@pytest.mark.parametrize("name", ["decay_by_head", "all"])
@pytest.mark.parametrize("shared", [False, True])
def test_vmap_of_gradients(name: str, shared: bool) -> None:
    static, arrays = CASES[name]
    x = jax.tree.map(lambda y: jnp.stack([y, 0.9 * y]), qkv())
    if not shared:
        arrays = jax.tree.map(lambda y: jnp.stack([y, 0.5 * y]), arrays)
    axes = (0, None if shared else 0)
    got, wanted = (jax.jit(jax.vmap(loss(f, static, True), axes))(x, arrays) for f in (fj.linear_attention, plain))
    close(got, wanted, 2e-5)


def test_heads_first() -> None:
    o, state = fj.linear_attention(*qkv(), decay=BY_TOKEN, return_state=True)
    turned = (jnp.swapaxes(y, 1, 2) for y in (*qkv(), BY_TOKEN))
    q, k, v, decay = turned
    other = fj.linear_attention(q, k, v, decay=decay, layout="bhsd", return_state=True)
    close((jnp.swapaxes(other[0], 1, 2), other[1]), (o, state), 1e-6)


def test_packed_sequences() -> None:
    starts = (0, 5, 5, 20, 31)  # the last six rows belong to no sequence

    def x() -> tuple[jax.Array, ...]:
        return tuple(y[0] for y in qkv())

    def packed(*x: jax.Array) -> Any:
        return fj.linear_attention(*x, decay=BY_TOKEN[0], cu_seqlens=jnp.array(starts), return_state=True)

    def one_by_one(*x: jax.Array) -> Any:
        parts = [formula(*(y[None, a:b] for y in x), decay=BY_TOKEN[:1, a:b]) for a, b in itertools.pairwise(starts)]
        o = [o[0] for o, _ in parts] + [jnp.zeros((6, H_V, D_V))]
        return jnp.concatenate(o), jnp.concatenate([state for _, state in parts])

    def gradients(f: Any) -> Any:
        return jax.jit(jax.grad(lambda *x: sum(jnp.sin(y).sum() for y in f(*x)), (0, 1, 2)))(*x())

    close(jax.jit(packed)(*x()), jax.jit(one_by_one)(*x()), 2e-6)
    close(gradients(packed), gradients(one_by_one), 2e-5)


def test_bfloat16() -> None:
    o = fj.linear_attention(*qkv(jnp.bfloat16), decay=BY_HEAD)
    assert o.dtype == jnp.bfloat16
    close(o, plain(*(y.astype("f") for y in qkv(jnp.bfloat16)), decay=BY_HEAD), 2e-2)


def test_errors() -> None:
    q, k, v = qkv()
    for why, call in (
        (r"must be a pair \(S, z\)", lambda: fj.linear_attention(q, k, v, initial_state=STATE, normalise=True)),
        (r"decay has the shape \(2, 37\)", lambda: fj.linear_attention(q, k, v, decay=BY_TOKEN[..., 0])),
        ("feature_map = 'relu'", lambda: fj.linear_attention(q, k, v, feature_map="relu")),  # type: ignore[arg-type]
        ("must have 4 axes", lambda: fj.linear_attention(q[0], k, v)),
    ):
        with pytest.raises(falchion.Invalid, match=why):
            call()
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: h_v = 4 is not a multiple of h_qk = 3"):
        jax.block_until_ready(fj.linear_attention(random(1, B, S, 3, D_QK), random(2, B, S, 3, D_QK), v))
    with pytest.raises(falchion.Unsupported, match="linear attention can be differentiated once"):
        jax.hessian(lambda q: fj.linear_attention(q, k, v).sum())(q)
