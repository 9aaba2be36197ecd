"""falchion.linear_attention and its gradients, merge and validate_lengths, on NumPy."""

from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import DTYPES, distance, normal, poisoned

LIMITS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}


def recurrence(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    state: Any = None,
    z: Any = None,
    elu: bool = False,
    normalise: bool = False,
    eps: float = 1e-6,
    scale: float | None = None,
) -> tuple[Any, Any, Any]:
    """The definition, token by token in float64. g is (b, s, h_v)."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = v.shape[2] // q.shape[2]
    q, k = np.repeat(q, group, 2), np.repeat(k, group, 2)
    if elu:
        q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    b, s, h, d = q.shape
    scale = d**-0.5 if scale is None else scale
    state = np.zeros((b, h, d, v.shape[-1])) if state is None else np.asarray(state, np.float64)
    z = np.zeros((b, h, d)) if z is None else np.asarray(z, np.float64)
    o = np.empty(v.shape)
    for j in range(s):
        fade = np.ones((b, h)) if g is None else np.exp(np.asarray(g, np.float64)[:, j])
        state = state * fade[..., None, None] + k[:, j, :, :, None] * v[:, j, :, None, :]
        z = z * fade[..., None] + k[:, j]
        o[:, j] = scale * np.einsum("bhd,bhdv->bhv", q[:, j], state)
        if normalise:
            o[:, j] /= (scale * np.einsum("bhd,bhd->bh", q[:, j], z) + eps)[..., None]
    return o, state, z


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_definition(dtype: str, layout: str) -> None:
    q, k, v = normal(1, (2, 70, 2, 16), (2, 70, 2, 16), (2, 70, 4, 24), dtype=dtype)
    by_head = -np.float32(np.random.default_rng(2).random(4))
    by_token = -np.abs(normal(3, (2, 70, 4))[0]) * 0.3

    def turn(x: Any) -> Any:
        return np.swapaxes(x, 1, 2) if layout == "bhsd" else x

    for decay in (None, by_head, by_token):
        g = np.broadcast_to(decay, (2, 70, 4)) if decay is not None else None
        theirs = turn(decay) if decay is not None and decay.ndim == 3 else decay
        o, state = falchion.linear_attention(turn(q), turn(k), turn(v), decay=theirs, layout=layout, return_state=True)
        want = recurrence(q, k, v, g)
        assert o.dtype == q.dtype and state.dtype == np.float32
        assert distance(turn(o), want[0]) < LIMITS[dtype] and distance(state, want[1]) < LIMITS[dtype]


def test_normaliser_and_states() -> None:
    q, k, v = normal(4, *[(2, 40, 2, 16)] * 3)
    options: dict[str, Any] = {"feature_map": "elu_plus_one", "normalise": True}
    whole, (state, z) = falchion.linear_attention(q, k, v, return_state=True, **options)
    want = recurrence(q, k, v, elu=True, normalise=True)
    assert all(distance(a, b) < 1e-5 for a, b in zip((whole, state, z), want, strict=True))
    # Two halves are the whole, and the state is updated in place.
    first, carried = falchion.linear_attention(q[:, :15], k[:, :15], v[:, :15], return_state=True, **options)
    out = poisoned((2, 25, 2, 16))
    second, same = falchion.linear_attention(
        q[:, 15:], k[:, 15:], v[:, 15:], initial_state=carried, state_out=carried, return_state=True, out=out, **options
    )
    assert same is carried and second is out
    assert distance(np.concatenate([first, second], 1), want[0]) < 1e-5
    assert distance(carried[0], want[1]) < 1e-5 and distance(carried[1], want[2]) < 1e-5


def test_packed_and_reverse() -> None:
    starts = np.array([0, 7, 7, 40], np.int32)
    q, k, v = normal(5, *[(40, 2, 16)] * 3)
    o, state = falchion.linear_attention(q, k, v, cu_seqlens=starts, return_state=True)
    assert state.shape == (3, 2, 16, 16) and (state[1] == 0).all()
    for a, b in ((0, 7), (7, 40)):
        assert distance(o[None, a:b], recurrence(q[None, a:b], k[None, a:b], v[None, a:b])[0]) < 1e-5
    back = falchion.linear_attention(q[None, ::-1], k[None, ::-1], v[None, ::-1], reverse=True)
    assert distance(back[:, ::-1], recurrence(q[None], k[None], v[None])[0]) < 1e-5


def test_gradients() -> None:
    """Each is the derivative of sum(O grad_o) + sum(state grad_state), by central differences in float64."""
    q, k, v, grad_o = normal(6, *[(1, 6, 1, 3)] * 4)
    decay, state, grad_state = -np.abs(normal(7, (1, 6, 1))[0]), *normal(8, *[(1, 1, 3, 3)] * 2)
    inputs = [x.astype(np.float64) for x in (q, k, v, decay, state)]

    def loss() -> float:
        o, last, _ = recurrence(*inputs[:3], inputs[3], inputs[4])
        return float((o * grad_o).sum() + (last * grad_state).sum())

    grads = falchion.linear_attention_backward(grad_o, q, k, v, decay=decay, initial_state=state, grad_state=grad_state)
    for x, grad in zip(inputs, grads, strict=True):
        want = np.empty(x.shape)
        for at in np.ndindex(x.shape):
            kept = x[at]
            x[at] = kept + 1e-5
            up = loss()
            x[at] = kept - 1e-5
            want[at] = (up - loss()) / 2e-5
            x[at] = kept
        assert distance(grad, want) < 2e-5
    assert falchion.linear_attention_backward(grad_o, q, k, v)[3:] == (None, None)
    by_head = falchion.linear_attention_backward(grad_o, q, k, v, decay=decay[0, 0])
    assert by_head[3].shape == (1,)


def test_what_linear_attention_refuses() -> None:
    q, k, v = normal(9, *[(2, 6, 2, 8)] * 3)
    state = np.zeros((2, 2, 8, 8), np.float32)
    for options, kind, words in (
        ({"feature_map": "relu"}, falchion.Invalid, "feature_map = 'relu'"),
        ({"eps": -1.0, "normalise": True}, falchion.Invalid, "eps = -1"),
        ({"scale": 0}, falchion.Invalid, "scale = 0"),
        ({"decay": np.zeros(3, np.float32)}, falchion.Invalid, r"decay.shape\[0\] = 3"),
        ({"decay": np.zeros((2, 6), np.float32)}, falchion.Invalid, "decay has 2 axes"),
        ({"initial_state": state.astype(np.float16)}, falchion.Invalid, "states are float32"),
        (
            {"initial_state": state[0]},
            falchion.Invalid,
            r"initial_state has 3 axes: it must have 4, \(b, h_v, d_qk, d_v\)",
        ),
        ({"initial_state": state, "normalise": True}, TypeError, r"initial_state must be a pair \(S, z\)"),
        ({"state_out": state[:, :1]}, falchion.Invalid, "state_out.shape"),
        ({"cu_seqlens": np.array([0, 6], np.int32)}, falchion.Invalid, r"it must have 3, \(total, h, d\)"),
        ({"segments": -2}, falchion.Invalid, "segments = -2"),
        ({"v": v[:, :, :1], "k": k}, falchion.Invalid, "h_v = 1 is not a multiple of h_qk = 2"),
    ):
        with pytest.raises(kind, match=words):
            falchion.linear_attention(**({"q": q, "k": k, "v": v} | options))
    with pytest.raises(falchion.Invalid, match=r"cu_seqlens\[1\]"):
        falchion.linear_attention(q[0], k[0], v[0], cu_seqlens=np.array([0, 9], np.int32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_merge(dtype: str) -> None:
    q, k, v = normal(10, *[(2, 30, 4, 16)] * 3, dtype=dtype)
    whole, whole_lse = falchion.attention(q, k, v, return_lse=True)
    parts = [falchion.attention(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ((0, 11), (11, 30), (30, 30))]
    o, lse = falchion.merge(*parts[0], *parts[1])
    assert o.dtype == q.dtype and distance(o, whole) < {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    assert distance(lse, whole_lse) < 1e-3
    same = falchion.merge(*parts[1], *parts[0])
    assert np.array_equal(o, same[0]) and np.array_equal(lse, same[1])
    # An empty part adds nothing, and an output may be an input.
    into = falchion.merge(o, lse, *parts[2], out=o, lse=lse)
    assert into[0] is o and np.array_equal(o, same[0])
    with pytest.raises(falchion.Invalid, match="lse_a"):
        falchion.merge(o, lse + np.inf, *parts[0])


def test_validate_lengths() -> None:
    q, k, v = normal(11, *[(2, 10, 2, 8)] * 3)
    falchion.validate_lengths(q, k, v, used_k=np.array([0, 10], np.int32))
    for lengths, words in (
        ({"used_k": [11, 0]}, r"used_k\[0\] = 11"),
        ({"used_q": [0, -1]}, r"used_q\[1\] = -1"),
        ({"first_k": [11, 0]}, r"first_k\[0\] = 11"),
    ):
        with pytest.raises(falchion.Invalid, match=words):
            falchion.validate_lengths(q, k, v, **{name: np.array(x, np.int32) for name, x in lengths.items()})
    falchion.validate_lengths(q[0], k[0], v[0], np.array([0, 4, 10], np.int32))
    with pytest.raises(falchion.Invalid, match="must be sorted"):
        falchion.validate_lengths(q[0], k[0], v[0], np.array([0, 4, 3, 10], np.int32))
    with pytest.raises(falchion.Invalid, match="max_q|s_q"):
        falchion.validate_lengths(q[0], k[0], v[0], np.array([0, 4, 10], np.int32), max_q=5)
