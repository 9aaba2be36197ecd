"""The gradients from Python: against differences of the definition, against ref, and the rules for their arrays."""

from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import DTYPES, POISON, definition, distance, normal, poisoned, visible


def both(q: Any, k: Any, v: Any, grad_o: Any, **options: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    o, lse = falchion.attention(q, k, v, return_lse=True, **options)
    return o, lse, falchion.attention_backward(grad_o, q, k, v, o, lse, **options)


@pytest.mark.parametrize(
    ("options", "band"),
    [
        ({}, ()),
        ({"causal": "bottom_right"}, (None, 0)),
        ({"window": (2, 1), "align": "top_left"}, (2, 1, "top_left")),
        ({"softcap": 1.5}, ()),
    ],
)
def test_derivative(options: dict[str, Any], band: tuple[Any, ...]) -> None:
    """Each gradient is the derivative of sum(O grad_o) + sum(LSE grad_lse), by central differences in float64."""
    q, k, v, grad_o = normal(1, (1, 5, 4, 6), (1, 7, 2, 6), (1, 7, 2, 3), (1, 5, 4, 3))
    grad_lse = normal(2, (1, 4, 5))[0]
    seen = visible(5, 7, *band) if band else np.ones((5, 7), bool)
    grad_lse[..., ~seen.any(-1)] = 0  # a row without keys has an LSE of -inf
    score = {"softcap": options["softcap"]} if "softcap" in options else {}

    def loss(*x: Any) -> float:
        o, lse = definition(*x, seen, **score)
        return float((o * grad_o).sum() + (np.where(np.isfinite(lse), lse, 0) * grad_lse).sum())

    o, lse = falchion.attention(q, k, v, return_lse=True, **options)
    grads = falchion.attention_backward(grad_o, q, k, v, o, lse, grad_lse=grad_lse, **options)
    inputs = [x.astype(np.float64) for x in (q, k, v)]
    for x, grad in zip(inputs, grads, strict=True):
        want = np.empty(x.shape)
        for at in np.ndindex(x.shape):
            kept = x[at]
            x[at] = kept + 1e-5
            up = loss(*inputs)
            x[at] = kept - 1e-5
            want[at] = (up - loss(*inputs)) / 2e-5
            x[at] = kept
        assert distance(grad, want) < 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_ref(dtype: str, layout: str) -> None:
    q, k, v, grad_o = normal(3, (2, 4, 33, 32), (2, 4, 33, 32), (2, 4, 33, 32), (2, 4, 33, 32), dtype=dtype)
    limit = {"float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    *_, grads = both(q, k, v, grad_o, causal=True, layout=layout)
    *_, want = both(*(x.astype(np.float32) for x in (q, k, v, grad_o)), causal=True, layout=layout, backend="ref")
    for a, b in zip(grads, want, strict=True):
        assert a.dtype == q.dtype and distance(a, b) < limit


def test_given_arrays() -> None:
    q, k, v, grad_o = normal(4, *[(2, 9, 2, 16)] * 4)
    o, lse, want = both(q, k, v, grad_o)
    given = tuple(poisoned(q.shape) for _ in range(3))
    grads = falchion.attention_backward(grad_o, q, k, v, o, lse, grads=given)
    assert all(a is b and np.array_equal(a, c) for a, b, c in zip(grads, given, want, strict=True))
    # None is frozen. grad_k and grad_v come together: one that is not given is made.
    frozen = falchion.attention_backward(grad_o, q, k, v, o, lse, grads=(given[0], None, None))
    assert frozen[0] is given[0] and frozen[1:] == (None, None)
    half = falchion.attention_backward(grad_o, q, k, v, o, lse, grads=(None, given[1], None))
    assert half[0] is None and half[1] is given[1] and np.array_equal(half[2], want[2])
    assert falchion.attention_backward(grad_o, q, k, v, o, lse, grads=(None, None, None)) == (None, None, None)


def test_float32_and_accumulate() -> None:
    q, k, v, grad_o = normal(5, *[(1, 9, 2, 16)] * 4, dtype="bfloat16")
    o, lse, rounded = both(q, k, v, grad_o)
    exact = falchion.attention_backward(grad_o, q, k, v, o, lse, f32=True)
    assert all(x.dtype == np.float32 for x in exact)
    assert all(distance(a.astype(np.float32), b) < 1e-2 for a, b in zip(rounded, exact, strict=True))
    sums = tuple(np.ones_like(x) for x in exact)
    falchion.attention_backward(grad_o, q, k, v, o, lse, grads=sums, accumulate=True)
    assert all(distance(a, b + 1) < 2e-6 for a, b in zip(sums, exact, strict=True))
    with pytest.raises(falchion.Invalid, match="accumulate=True needs grads"):
        falchion.attention_backward(grad_o, q, k, v, o, lse, accumulate=True)


def test_bias_and_slopes() -> None:
    q, k, v, grad_o = normal(6, *[(2, 9, 4, 16)] * 4)
    bias = normal(7, (1, 4, 9, 9))[0]
    slopes = np.float32(np.random.default_rng(8).random(4))
    o, lse = falchion.attention(q, k, v, bias=bias, alibi=slopes, return_lse=True)
    results = []
    for backend in ("best", "ref"):
        grad_bias, grad_slopes = poisoned(bias.shape), poisoned(slopes.shape)
        falchion.attention_backward(
            grad_o,
            q,
            k,
            v,
            o,
            lse,
            bias=bias,
            alibi=slopes,
            grad_bias=grad_bias,
            grad_alibi=grad_slopes,
            backend=backend,
        )
        results.append((grad_bias, grad_slopes))
    assert all(distance(a, b) < 2e-6 for a, b in zip(*results, strict=True))
    whole = poisoned((2, 4, 9, 9))
    falchion.attention_backward(grad_o, q, k, v, o, lse, bias=bias, alibi=slopes, grad_bias=whole)
    assert distance(whole.sum(0, keepdims=True), results[0][0]) < 2e-6


def test_unused_rows() -> None:
    """Rows past used lengths: 0 in arrays that are made, left alone in given ones unless zero_unused says otherwise."""
    q, k, v, grad_o = normal(9, *[(2, 9, 2, 16)] * 4)
    used = {"used_q": np.array([9, 4], np.int32), "used_k": np.array([9, 6], np.int32)}
    o, lse, grads = both(q, k, v, grad_o, **used)
    assert (grads[0][1, 4:] == 0).all() and (grads[1][1, 6:] == 0).all() and (grads[2][1, 6:] == 0).all()
    given = tuple(poisoned(q.shape) for _ in range(3))
    falchion.attention_backward(grad_o, q, k, v, o, lse, grads=given, **used)
    assert (given[0][1, 4:] == POISON).all() and (given[1][1, 6:] == POISON).all()
    falchion.attention_backward(grad_o, q, k, v, o, lse, grads=given, zero_unused=True, **used)
    assert all(np.array_equal(a, b) for a, b in zip(given, grads, strict=True))


def test_unused_rows_beside_a_gradient_that_is_made() -> None:
    """One gradient that is made has 0 there; the given one beside it is left alone."""
    q, k, v, grad_o = normal(9, *[(2, 9, 2, 16)] * 4)
    used = {"used_q": np.array([9, 4], np.int32), "used_k": np.array([9, 6], np.int32)}
    o, lse, grads = both(q, k, v, grad_o, **used)
    given = (poisoned(q.shape), poisoned(q.shape), None)
    got = falchion.attention_backward(grad_o, q, k, v, o, lse, grads=given, **used)
    assert (given[0][1, 4:] == POISON).all() and (given[1][1, 6:] == POISON).all()
    assert np.array_equal(got[2], grads[2]) and np.array_equal(got[0][0], grads[0][0])


def test_varlen() -> None:
    starts = np.array([0, 5, 5, 20], np.int32)
    q, k, v, grad_o = normal(10, *[(20, 2, 16)] * 4)
    o, lse = falchion.varlen(q, k, v, starts, causal=True, return_lse=True)
    grads = falchion.varlen_backward(grad_o, q, k, v, o, lse, starts, causal=True)
    for a, b in ((0, 5), (5, 20)):
        *_, want = both(*(x[None, a:b] for x in (q, k, v, grad_o)), causal=True)
        assert all(distance(x[None, a:b], y) < 2e-6 for x, y in zip(grads, want, strict=True))


def test_a_gradient_of_one_number() -> None:
    """grad_o of a plain sum has strides of 0; grad_o with gaps is taken too."""
    q, k, v = normal(11, *[(1, 9, 2, 16)] * 3)
    ones = np.ones(q.shape, np.float32)
    *_, want = both(q, k, v, ones)
    *_, grads = both(q, k, v, np.broadcast_to(np.float32(1), q.shape))
    assert all(np.array_equal(a, b) for a, b in zip(grads, want, strict=True))
