"""falchion.attention and varlen on NumPy against the definition in float64, and the edge rules of docs/contract.md."""

from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import DTYPES, LIMITS, POISON, definition, distance, normal, poisoned, visible

PROBLEMS: list[tuple[str, tuple[int, ...], dict[str, Any], tuple[Any, ...]]] = [
    # name, (b, s_q, s_k, h_q, h_k, d, d_v), options, what is visible
    ("full", (2, 33, 33, 4, 4, 32, 32), {}, ()),
    ("one key", (1, 1, 1, 1, 1, 1, 1), {}, ()),
    ("causal", (2, 33, 33, 4, 4, 32, 32), {"causal": True}, (None, 0)),
    ("more keys", (1, 5, 40, 2, 2, 16, 16), {"causal": "bottom_right"}, (None, 0)),
    ("more queries", (1, 40, 5, 2, 2, 16, 16), {"causal": "bottom_right"}, (None, 0)),
    ("top left", (1, 40, 5, 2, 2, 16, 16), {"causal": "top_left"}, (None, 0, "top_left")),
    ("window", (1, 50, 50, 2, 2, 16, 16), {"window": (7, 3)}, (7, 3)),
    (
        "window of one side",
        (1, 20, 50, 2, 2, 16, 16),
        {"window": (7, None), "align": "top_left"},
        (7, None, "top_left"),
    ),
    ("causal window", (1, 50, 50, 2, 2, 16, 16), {"causal": True, "window": (7, None)}, (7, 0)),
    ("GQA", (1, 33, 33, 6, 2, 16, 16), {"causal": True}, (None, 0)),
    ("MQA, decode", (3, 1, 200, 8, 1, 64, 64), {}, ()),
    ("odd head dims", (1, 17, 19, 2, 1, 7, 13), {}, ()),
    ("scale", (1, 17, 19, 2, 1, 16, 16), {"scale": -0.5}, ()),
    ("softcap", (1, 17, 19, 2, 1, 16, 16), {"softcap": 2.0}, ()),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "options", "band"), [p[1:] for p in PROBLEMS], ids=[p[0] for p in PROBLEMS])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_definition(
    dtype: str, shape: tuple[int, ...], options: dict[str, Any], band: tuple[Any, ...], layout: str
) -> None:
    b, s_q, s_k, h_q, h_k, d, d_v = shape
    q, k, v = normal(1, (b, s_q, h_q, d), (b, s_k, h_k, d), (b, s_k, h_k, d_v), dtype=dtype)
    score = {name: options[name] for name in ("scale", "softcap") if name in options}
    want_o, want_lse = definition(q, k, v, visible(s_q, s_k, *band) if band else None, **score)
    out, lse = poisoned(want_o.shape, q.dtype), poisoned((b, h_q, s_q))
    if layout == "bshd":
        o, l = falchion.attention(q, k, v, return_lse=True, out=out, lse=lse, **options)
        made = falchion.attention(q, k, v, **options)
    else:
        turned = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
        o, l = falchion.attention(
            *turned, return_lse=True, layout="bhsd", out=out.transpose(0, 2, 1, 3), lse=lse, **options
        )
        made = falchion.attention(*turned, layout="bhsd", **options).transpose(0, 2, 1, 3)
        assert o.base is out
    assert l is lse
    assert distance(out, want_o) <= LIMITS[dtype]
    assert distance(lse, want_lse) <= (1e-6 if dtype == "float32" else 2e-3)
    assert made.dtype == q.dtype and np.array_equal(made, out)


def test_bias_mask_and_slopes() -> None:
    q, k, v = normal(2, (2, 9, 4, 8), (2, 11, 2, 8), (2, 11, 2, 8))
    bias = normal(3, (2, 4, 9, 11))[0]
    assert distance(falchion.attention(q, k, v, bias=bias), definition(q, k, v, add=bias)[0]) < 2e-6
    parts = [bias[0, 0], bias[:1, :, :1], bias[0], np.broadcast_to(bias[:, :1], bias.shape)]
    of_keys_or_rows = [bias[0, 0, 0], bias[..., :1], bias[0, 0, :, :1]]
    for part in parts + of_keys_or_rows:
        assert distance(falchion.attention(q, k, v, bias=part), definition(q, k, v, add=part)[0]) < 2e-6
    mask = np.random.default_rng(4).random((2, 4, 9, 11)) < 0.5
    for some in (mask, mask[0, 0], mask[0, 0, 0], mask[..., :1], mask[0, 0, :, :1], mask[:, :1, :1]):
        assert distance(falchion.attention(q, k, v, mask=some), definition(q, k, v, seen=some)[0]) < 2e-6
    away = np.abs(np.arange(11)[None, :] - (np.arange(9)[:, None] + 2))
    for slopes in (np.array([0.5, 0.25, 0.125, 0], np.float32), np.float32(np.random.default_rng(5).random((2, 4)))):
        add = -(slopes if slopes.ndim == 2 else slopes[None])[:, :, None, None] * away
        assert distance(falchion.attention(q, k, v, alibi=slopes), definition(q, k, v, add=add)[0]) < 2e-6


def test_used_lengths_and_left_padding() -> None:
    q, k, v = normal(6, (3, 8, 2, 16), (3, 10, 2, 16), (3, 10, 2, 16))
    used_q, used_k, first = (np.array(x, np.int32) for x in ([8, 3, 0], [10, 4, 7], [0, 2, 7]))
    k[1, 4:], v[1, 4:], k[1, :2] = np.nan, np.nan, np.nan  # what is not used is never read
    o, lse = falchion.attention(q, k, v, used_q=used_q, used_k=used_k, first_k=first, return_lse=True)
    for i in range(3):
        n, keys = used_q[i], slice(first[i], used_k[i])
        want_o, want_lse = definition(q[i : i + 1, :n], k[i : i + 1, keys], v[i : i + 1, keys])
        assert n == 0 or distance(o[i : i + 1, :n], want_o) < 2e-6
        assert n == 0 or distance(lse[i : i + 1, :, :n], want_lse) < 2e-6
        assert (o[i, n:] == 0).all() and (lse[i, :, n:] == -np.inf).all()
    out = poisoned(o.shape)
    falchion.attention(q, k, v, used_q=used_q, used_k=used_k, out=out)
    assert (out[1, 3:] == POISON).all() and (out[2] == POISON).all()


def test_strides() -> None:
    """Contract.StridesOfInputs: any stride is taken, 0 and negative too; outputs may lie with gaps."""
    q, k, v = normal(7, (2, 12, 4, 16), (2, 12, 4, 16), (2, 12, 4, 16))
    want = definition(q[:, ::-1], k[:, ::2], v[:, ::2])[0]
    assert distance(falchion.attention(q[:, ::-1], k[:, ::2], v[:, ::2]), want) < 2e-6
    one = np.broadcast_to(k[:, :, :1], k.shape)
    assert distance(falchion.attention(q, one, v), definition(q, one, v)[0]) < 2e-6
    wide = poisoned((2, 12, 4, 40))
    falchion.attention(q, k, v, out=wide[..., 8:24])
    assert distance(wide[..., 8:24], definition(q, k, v)[0]) < 2e-6
    assert (wide[..., :8] == POISON).all() and (wide[..., 24:] == POISON).all()
    with pytest.raises(falchion.Invalid, match=r"q\.stride\[3\] = 2"):
        falchion.attention(q[..., ::2], k[..., :8], v)
    with pytest.raises(falchion.Invalid, match=r"^out\.stride\[1\] = -64"):
        falchion.attention(q, k, v, out=poisoned(q.shape)[:, ::-1])


def test_rows_without_keys() -> None:
    """Contract.RowThatSeesNoKey, NoKeysAtAll: O = 0 and LSE = -inf."""
    q, k, v = normal(8, (1, 6, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8))
    out, lse = poisoned(q.shape), poisoned((1, 2, 6))
    falchion.attention(q, k, v, causal="bottom_right", out=out, lse=lse)
    assert (out[:, :2] == 0).all() and (lse[..., :2] == -np.inf).all() and (out[:, 2:] != POISON).all()
    o, lse = falchion.attention(q, k[:, :0], v[:, :0], return_lse=True)
    assert (o == 0).all() and (lse == -np.inf).all()
    assert (falchion.attention(q, k, v, mask=np.zeros((6, 4), bool)) == 0).all()


@pytest.mark.parametrize("empty", [(0, 6, 2, 8), (1, 0, 2, 8), (1, 6, 0, 8)])
def test_empty_extents(empty: tuple[int, ...]) -> None:
    """Contract.EmptyProblemsAreLegal."""
    q = np.zeros(empty, np.float32)
    k = np.zeros((empty[0], 4, empty[2], 8), np.float32)
    o, lse = falchion.attention(q, k, k, return_lse=True)
    assert o.shape == empty and lse.shape == (empty[0], empty[2], empty[1])


def test_nan() -> None:
    """Contract.NanInMaskedK, NanInOwnData: a NaN reaches the rows that see it, and no others."""
    q, k, v = normal(9, (1, 6, 1, 8), (1, 6, 1, 8), (1, 6, 1, 8))
    clean = falchion.attention(q, k, v, causal=True)
    k[0, 4] = v[0, 4] = np.nan
    o = falchion.attention(q, k, v, causal=True)
    assert np.array_equal(o[:, :4], clean[:, :4]) and np.isnan(o[:, 4:]).all()
    bias = np.zeros((6, 6), np.float32)
    bias[:, 4] = -np.inf
    assert np.isfinite(falchion.attention(q, k, v, bias=bias)).all()


def test_dropout() -> None:
    q, k, v = normal(10, (1, 64, 2, 16), (1, 64, 2, 16), (1, 64, 2, 16))
    one = falchion.attention(q, k, v, dropout=0.5, seed=3, offset=4)
    assert np.array_equal(one, falchion.attention(q, k, v, dropout=0.5, seed=3, offset=4, backend="cpu"))
    assert not np.array_equal(one, falchion.attention(q, k, v, dropout=0.5, seed=3, offset=5))
    assert distance(falchion.attention(q, k, v, dropout=0.5, seed=3, offset=4, backend="ref"), one) < 2e-6
    for kind in (np.uint64, np.int64):
        assert np.array_equal(one, falchion.attention(q, k, v, dropout=0.5, seed=np.array([3, 4], kind)))
    assert np.array_equal(one, falchion.attention(q, k, v, dropout=0.5, seed=np.array([3, 1], np.uint64), offset=3))
    assert np.array_equal(one, falchion.attention(q, k, v, dropout=0.5, seed=np.int64(3), offset=np.uint8(4)))
    assert (falchion.attention(q, k, v, dropout=1.0, seed=2**64 - 1) == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_varlen_is_dense(dtype: str) -> None:
    """Packed sequences give what each sequence gives alone."""
    lengths = [5, 0, 31, 1]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    total = int(starts[-1])
    q, k, v = normal(11, (total, 4, 16), (total, 2, 16), (total, 2, 16), dtype=dtype)
    out, lse = poisoned(q.shape, q.dtype), poisoned((4, total))
    o, l = falchion.varlen(q, k, v, starts, causal=True, return_lse=True, out=out, lse=lse)
    assert o is out and l is lse
    for i, length in enumerate(lengths):
        rows = slice(starts[i], starts[i + 1])
        want_o, want_lse = falchion.attention(q[None, rows], k[None, rows], v[None, rows], causal=True, return_lse=True)
        assert length == 0 or distance(out[None, rows], want_o) <= LIMITS[dtype]
        assert length == 0 or distance(lse[None, :, rows], want_lse) <= 1e-3
    turned = falchion.varlen(*(x.transpose(1, 0, 2) for x in (q, k, v)), starts, causal=True, layout="bhsd")
    assert np.array_equal(turned.transpose(1, 0, 2), out)
    other = falchion.varlen(q, k, v, starts, starts.copy(), max_q=31, max_k=31, causal="bottom_right")
    assert np.array_equal(other, out)


def test_varlen_of_unequal_lengths() -> None:
    q, k, v = normal(12, (7, 2, 16), (9, 2, 16), (9, 2, 16))
    cu_q, cu_k = np.array([0, 3, 7], np.int32), np.array([0, 8, 9], np.int32)
    o = falchion.varlen(q, k, v, cu_q, cu_k, causal="bottom_right")
    for i in range(2):
        a, b = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        seen = visible(a.stop - a.start, b.stop - b.start, None, 0)
        assert distance(o[None, a], definition(q[None, a], k[None, b], v[None, b], seen)[0]) < 2e-6


def test_backends_agree() -> None:
    q, k, v = normal(13, (2, 40, 4, 32), (2, 40, 4, 32), (2, 40, 4, 32))
    ref = falchion.attention(q, k, v, causal=True, backend="ref")
    for options in ({"backend": "best"}, {"backend": "cpu", "threads": 1}, {"backend": "cpu", "threads": 3}):
        assert distance(falchion.attention(q, k, v, causal=True, **options), ref) < 2e-6
