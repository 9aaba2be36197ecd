"""A KV cache in JAX: rows and pages, packed queries, jit, vmap, and what has no gradient."""

from typing import Any

import falchion
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy
fj = pytest.importorskip("falchion.jax")

RNG = np.random.default_rng(3)
TABLE = RNG.permutation(12).reshape(3, 4).astype(np.int32)
USED = np.array([13, 1, 16], np.int32)
BAND = {"causal": "bottom_right", "backend": "cpu"}


def normal(*shape: int) -> Any:
    return jnp.asarray(RNG.standard_normal(shape, np.float32))


Q, K, V = normal(3, 2, 4, 8), normal(12, 4, 2, 8), normal(12, 4, 2, 8)
ROWS = tuple(x[TABLE].reshape(3, 16, 2, 8) for x in (K, V))
WANTED, LSE = fj.attention(Q, *ROWS, used_k=USED, return_lse=True, **BAND)


def test_pages_are_rows() -> None:
    o, lse = fj.attention(Q, K, V, page_table=TABLE, used_k=USED, return_lse=True, **BAND)
    assert np.array_equal(o, WANTED) and np.array_equal(lse, LSE)
    assert np.array_equal(fj.attention(Q, *ROWS, cache=True, used_k=USED, **BAND), WANTED)
    first = tuple(x.swapaxes(1, 2) for x in (Q, K, V))
    o = fj.attention(*first, page_table=TABLE.astype(np.int64), used_k=USED, layout="bhsd", **BAND)
    assert np.array_equal(o.swapaxes(1, 2), WANTED)


def test_lengths_and_pages_are_traced() -> None:
    @jax.jit
    def step(table: Any, used: Any) -> Any:
        return fj.attention(Q, K, V, page_table=table, used_k=used, **BAND)

    assert np.array_equal(step(TABLE, USED), WANTED)
    other = TABLE[::-1], USED[::-1].copy()
    rows = (x[TABLE[::-1]].reshape(3, 16, 2, 8) for x in (K, V))
    assert np.array_equal(step(*other), fj.attention(Q, *rows, used_k=other[1], **BAND))
    assert step._cache_size() == 1


def test_packed_queries_and_starts() -> None:
    q, starts = Q.reshape(6, 4, 8), np.array([0, 2, 4, 6])
    cut = {"page_table": TABLE.ravel(), "page_starts": [0, 4, 8, 12]}
    for cache in {"page_table": TABLE}, cut:
        for most in {}, {"max_q": 2, "max_k": 16}:
            o, lse = fj.varlen(q, K, V, starts, used_k=USED, return_lse=True, **cache, **most, **BAND)
            assert np.allclose(o.reshape(WANTED.shape), WANTED, atol=1e-6)
            assert np.allclose(lse.reshape(4, 3, 2).swapaxes(0, 1), LSE, atol=1e-6)
    o = fj.varlen(q, *ROWS, starts, cache=True, used_k=USED, **BAND)
    assert np.allclose(o.reshape(WANTED.shape), WANTED, atol=1e-6)


def test_vmap_goes_one_by_one() -> None:
    both = jnp.stack([Q, 2 * Q])
    o = jax.vmap(lambda q: fj.attention(q, K, V, page_table=TABLE, used_k=USED, **BAND))(both)
    assert np.array_equal(o[0], WANTED) and not np.array_equal(o[1], WANTED)


def test_refused() -> None:
    with pytest.raises(falchion.Unsupported, match="a cache has no gradients"):
        jax.grad(lambda q: fj.attention(q, K, V, page_table=TABLE, used_k=USED, **BAND).sum())(Q)
    with pytest.raises(falchion.Invalid, match=r"page_table is float32 \(3, 4\): it must be integers"):
        fj.attention(Q, K, V, page_table=TABLE.astype(np.float32), used_k=USED)
    with pytest.raises(Exception, match="cache without used_k"):
        fj.attention(Q, K, V, page_table=TABLE, backend="cpu")
    with pytest.raises(Exception, match=r"page_starts has 3 numbers; it must have b \+ 1, and b = 3"):
        fj.attention(Q, K, V, page_table=TABLE.ravel(), page_starts=[0, 4, 8], used_k=USED, backend="cpu")
    with pytest.raises(falchion.Invalid, match="does not say how the diagonal lies"):
        fj.attention(Q[:, :1].repeat(4, 1), K, V, page_table=TABLE, used_k=USED, causal=True)
    starts = np.array([0, 2, 4, 6])
    with pytest.raises(falchion.Invalid, match="cu_seqlens_k is given, but k and v are a cache"):
        fj.varlen(Q.reshape(6, 4, 8), K, V, starts, starts, page_table=TABLE, used_k=USED)
    with pytest.raises(falchion.Unsupported, match="used_k is given without a cache"):
        fj.varlen(Q.reshape(6, 4, 8), *(x.reshape(48, 2, 8) for x in ROWS), starts, used_k=USED)
