"""falchion.jax.attention and varlen: results beside the formula in float64, gradients beside JAX's own of the formula."""

import itertools
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import falchion.jax as fj
import jax.numpy as jnp
from falchion.jax import _options
from jax_formula import attention as formula

B, S_Q, S_K, H_Q, H_K, D_QK, D_V = 2, 19, 33, 4, 2, 16, 24


def random(seed: int, *shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)


def qkv(dtype: Any = jnp.float32, s_q: int = S_Q, s_k: int = S_K) -> tuple[jax.Array, ...]:
    return (
        random(1, B, s_q, H_Q, D_QK, dtype=dtype),
        random(2, B, s_k, H_K, D_QK, dtype=dtype),
        random(3, B, s_k, H_K, D_V, dtype=dtype),
    )


def close(got: Any, wanted: Any, limit: float) -> None:
    """No element is off by more than limit times the largest one of its array, and NaN is never right."""
    got, wanted = jax.tree.leaves(got), jax.tree.leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        finite = np.isfinite(b)
        assert (np.isfinite(a) == finite).all() and (a[~finite] == b[~finite]).all()
        off = np.abs(a[finite] - b[finite]).max(initial=0)
        assert off <= limit * max(np.abs(b[finite]).max(initial=0), 1e-3), f"off by {off}"


# Options that are static, and arrays that have gradients or none.
CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": "bottom_right"},
    "causal_top_left": {"causal": "top_left"},
    "window": {"window": (5, 3), "align": "bottom_right"},
    "window_one_side": {"window": (None, 2), "align": "top_left"},
    "causal_at": {"causal": True, "align": 3},
    "window_at": {"window": (4, 1), "align": -2},
    "alibi_at": {"alibi": np.linspace(0.1, 0.7, H_Q).astype("f"), "align": 4},
    "scale": {"scale": 0.3},
    "scale_negative": {"scale": -0.3},
    "softcap": {"softcap": 2.0},
    "alibi": {"alibi": np.linspace(0.1, 0.7, H_Q).astype("f")},
    "alibi_by_batch": {"alibi": np.linspace(0.1, 0.7, B * H_Q).astype("f").reshape(B, H_Q)},
    "bias": {"bias": random(4, B, H_Q, S_Q, S_K)},
    "bias_of_heads": {"bias": random(4, H_Q, S_Q, S_K)},
    "bias_of_keys": {"bias": random(4, B, 1, 1, S_K)},
    "bias_of_keys_alone": {"bias": random(4, S_K)},
    "bias_of_rows": {"bias": random(4, S_Q, 1)},
    "mask": {"mask": random(5, B, H_Q, S_Q, S_K) > 0},
    "mask_of_keys_alone": {"mask": random(5, S_K) > 0},
    "mask_of_rows": {"mask": random(5, B, 1, S_Q, 1) > 0},
    "mask_of_keys": {"mask": random(5, B, 1, 1, S_K) > 0},
    "together": {
        "causal": "bottom_right",
        "softcap": 3.0,
        "alibi": np.linspace(0.1, 0.7, H_Q).astype("f"),
        "bias": random(4, 1, 1, S_Q, S_K),
        "mask": random(5, 1, H_Q, S_Q, S_K) > -1,
    },
}


def split(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, jax.Array]]:
    """What is static, and the arrays with a gradient."""
    moving = {name: jnp.asarray(x) for name, x in case.items() if name in ("bias", "alibi")}
    return {name: x for name, x in case.items() if name not in moving}, moving


@pytest.mark.parametrize("name", CASES)
def test_forward(name: str) -> None:
    o, lse = fj.attention(*qkv(), **CASES[name], return_lse=True)
    close((o, lse), formula(*qkv(), xp=np, **CASES[name], return_lse=True), 2e-6)
    close(fj.attention(*qkv(), **CASES[name]), o, 0)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    static, moving = split(CASES[name])

    def loss(attention: Any) -> Any:
        def of(x: tuple[jax.Array, ...], moving: dict[str, jax.Array]) -> jax.Array:
            o, lse = attention(*x, **static, **moving, return_lse=True)
            return jnp.sin(o).sum() + jnp.where(jnp.isfinite(lse), jnp.cos(lse), 0).sum()

        return jax.jit(jax.grad(of, (0, 1)))(qkv(), moving)

    close(loss(fj.attention), loss(formula), 1e-5)


@pytest.mark.parametrize(("dtype", "limit"), [("float16", 2e-3), ("bfloat16", 1.5e-2)])
def test_sixteen_bits(dtype: str, limit: float) -> None:
    def loss(attention: Any, x: Any) -> Any:
        def of(*x: Any) -> jax.Array:
            return attention(*x, causal="bottom_right").astype("f").sum()

        return jax.jit(jax.value_and_grad(of, (0, 1, 2)))(*x)

    x = qkv(dtype)
    assert fj.attention(*x).dtype == dtype
    close(fj.attention(*x), formula(*x, xp=np), limit)
    got, wanted = loss(fj.attention, x), loss(formula, tuple(y.astype("f") for y in x))
    assert [g.dtype.name for g in got[1]] == [dtype] * 3
    close(got[1], wanted[1], 3 * limit)


def test_beside_dot_product_attention() -> None:
    q, k, v = qkv(s_q=S_K)
    v = v[..., :D_QK]
    close(fj.attention(q, k, v, causal=True), jax.nn.dot_product_attention(q, k, v, is_causal=True), 2e-6)


def test_heads_first() -> None:
    x = qkv()
    turned = tuple(jnp.swapaxes(y, 1, 2) for y in x)
    o, lse = fj.attention(*turned, causal="top_left", layout="bhsd", return_lse=True)
    close((jnp.swapaxes(o, 1, 2), lse), fj.attention(*x, causal="top_left", return_lse=True), 1e-6)


def test_used_lengths_and_left_padding() -> None:
    used_q, used_k, first_k = jnp.array([7, 19]), jnp.array([33, 12]), jnp.array([4, 0])

    def loss(*x: jax.Array) -> tuple[jax.Array, Any]:
        o, lse = fj.attention(*x, used_q=used_q, used_k=used_k, first_k=first_k, return_lse=True)
        return jnp.sin(o).sum(), (o, lse)

    seen = (np.arange(S_K)[None] >= first_k[:, None]) & (np.arange(S_K)[None] < used_k[:, None])
    rows = np.arange(S_Q)[None] < used_q[:, None]

    def plain(*x: jax.Array) -> tuple[jax.Array, Any]:
        o, lse = formula(*x, mask=seen[:, None, None], return_lse=True)
        o = jnp.where(rows[:, :, None, None], o, 0)
        return jnp.sin(o).sum(), (o, jnp.where(rows[:, None], lse, -jnp.inf))

    got, wanted = (jax.jit(jax.value_and_grad(f, (0, 1, 2), has_aux=True))(*qkv()) for f in (loss, plain))
    close(got, wanted, 1e-5)


def test_packed_sequences() -> None:
    lengths = [5, 0, 11, 3]
    starts = [0, *np.cumsum(lengths).tolist()]
    rows = starts[-1] + 6  # the last six belong to no sequence
    x = tuple(random(i, rows, h, D_QK) for i, h in enumerate((H_Q, H_K, H_K)))

    def one_by_one(*x: jax.Array) -> jax.Array:
        parts = [formula(*(y[None, a:b] for y in x), causal=True)[0] for a, b in itertools.pairwise(starts) if a < b]
        return jnp.concatenate([*parts, jnp.zeros((6, H_Q, D_QK))])

    def packed(*x: jax.Array) -> jax.Array:
        return fj.varlen(*x, jnp.asarray(starts), max_q=11, causal=True)

    close(jax.jit(packed)(*x), jax.jit(one_by_one)(*x), 2e-6)
    got, wanted = (jax.jit(jax.grad(lambda *x, f=f: jnp.sin(f(*x)).sum(), (0, 1, 2)))(*x) for f in (packed, one_by_one))
    close(got, wanted, 1e-5)
    lse = fj.varlen(*x, jnp.asarray(starts), causal=True, return_lse=True)[1]
    assert lse.shape == (H_Q, rows) and bool(jnp.isneginf(lse[:, -6:]).all())


def test_dropout() -> None:
    q, k, _ = qkv()
    p, eye = 0.4, jnp.broadcast_to(jnp.eye(S_K)[None, :, None], (B, S_K, H_K, S_K))
    key = jax.random.key(5)

    def dropped(seed: Any) -> jax.Array:  # with an identity as v, o is what is left of the probabilities
        return fj.attention(q, k, eye, dropout=p, seed=seed).swapaxes(1, 2)

    kept = (dropped(key) != 0) / (1 - p)
    assert abs(float((kept == 0).mean()) - p) < 0.03
    close(dropped(key), dropped(key), 0)
    for other in (jax.random.key(6), 5, 1 << 40):
        assert float((dropped(other) != dropped(key)).mean()) > 0.2

    def loss(attention: Any, **options: Any) -> Any:
        return jax.jit(jax.grad(lambda *x: jnp.sin(attention(*x, **options)).sum(), (0, 1, 2)))(*qkv())

    close(loss(fj.attention, dropout=p, seed=key), loss(formula, kept=kept), 1e-5)


@pytest.mark.parametrize("seed", [7, -1, -(1 << 31), (1 << 32) + 1, -(1 << 40), (1 << 63) + 5])
def test_integer_seeds(seed: int) -> None:
    """An integer gives the same seed in every type that holds it, also where it is traced."""
    words = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, 0, 0]
    traced = jax.jit(_options.seed_words)
    for kind in ("int8", "int32", "int64", "uint64"):
        if np.iinfo(kind).min <= seed <= np.iinfo(kind).max:
            given = np.array(seed, kind)
            assert _options.seed_words(given).tolist() == _options.seed_words(given[()]).tolist() == words
            if given.itemsize < 8:
                assert traced(jnp.asarray(given)).tolist() == words
    assert _options.seed_words(seed).tolist() == words


def test_empty_extents() -> None:
    q, k, v = qkv(s_k=0)
    o, lse = fj.attention(q, k, v, return_lse=True)
    assert not o.any() and bool(jnp.isneginf(lse).all())
    assert fj.attention(q[:0], k[:0], v[:0]).shape == (0, S_Q, H_Q, D_V)
    assert fj.attention(q[:, :0], *qkv()[1:]).shape == (B, 0, H_Q, D_V)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="these backends want operands on the host")
@pytest.mark.parametrize("backend", ["ref", "cpu"])
def test_backends_and_threads(backend: Any) -> None:
    close(fj.attention(*qkv(), backend=backend, threads=1), formula(*qkv(), xp=np), 2e-6)
