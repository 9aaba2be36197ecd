"""Arrays without elements: every function takes them, with every optional operand, as arrays that have some."""

import itertools
from typing import Any

import falchion
import numpy as np
import pytest

D = 8
# b, s_q, s_k, h_q, h_k
EXTENTS = [(0, 5, 7, 4, 2), (2, 0, 7, 4, 2), (2, 5, 0, 4, 2), (2, 0, 0, 4, 2), (2, 5, 7, 0, 2), (0, 0, 0, 0, 0)]


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_attention(extents: tuple[int, ...]) -> None:
    b, s_q, s_k, h_q, h_k = extents
    q, k, v = zeros(b, s_q, h_q, D), zeros(b, s_k, h_k, D), zeros(b, s_k, h_k, D)
    options: dict[str, Any] = {"alibi": zeros(h_q), "bias": zeros(b, h_q, s_q, s_k), "dropout": 0.5, "seed": 1}
    options |= {name: np.full(b, n, np.int32) for name, n in (("used_q", s_q), ("used_k", s_k), ("first_k", 0))}
    options["mask"] = zeros(b, h_q, s_q, s_k, dtype=np.bool_)
    o, lse = falchion.attention(q, k, v, **options, return_lse=True)
    assert o.shape == q.shape
    assert not o.any()
    assert np.all(lse == -np.inf)
    grads = falchion.attention_backward(zeros(*o.shape), q, k, v, o, lse, **options, grad_lse=zeros(*lse.shape))
    assert [x.shape for x in grads[:3]] == [q.shape, k.shape, v.shape]
    assert not any(x.any() for x in grads)


@pytest.mark.parametrize(("b", "s", "h"), [(0, 5, 2), (2, 0, 2), (2, 5, 0), (0, 0, 0)])
def test_linear_attention(b: int, s: int, h: int) -> None:
    q, k, v = zeros(b, s, h, D), zeros(b, s, h, D), zeros(b, s, h, D)
    state = np.ones((b, h, D, D), np.float32)
    o, final = falchion.linear_attention(q, k, v, decay=zeros(b, s, h), initial_state=state, return_state=True)
    assert o.shape == v.shape
    assert np.all(final == 1)


@pytest.mark.parametrize("shape", [(0, 16), (3, 0, 16), (3, 2, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms(name: str, shape: tuple[int, ...]) -> None:
    x, weight = zeros(*shape), zeros(shape[-1])
    all_of = getattr(falchion, name)(x, weight, bias=weight, residual=x, zero_centered=True, return_stats=True)
    assert [y.shape for y in all_of[:2]] == [x.shape, x.shape]
    assert all(y.shape == (*shape[:-1], 1) for y in all_of[2:])


@pytest.mark.parametrize(("m", "n", "k"), [x for x in itertools.product((0, 3), (0, 4), (0, 5)) if 0 in x])
def test_gemm(m: int, n: int, k: int) -> None:
    d = falchion.gemm(zeros(m, k), zeros(n, k), bias=np.ones(n, np.float32), residual=np.ones((m, n), np.float32))
    assert d.shape == (m, n)
    assert np.all(d == 2)
