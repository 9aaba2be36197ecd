"""What the tests on NumPy share: the definition in float64, random arrays, outputs filled with numbers that are wrong."""

from typing import Any

import ml_dtypes
import numpy as np

POISON = 12345.0
# The types, and how far a tensor may be off: a share of its largest number. These are a few units of each type, as P
# and O are rounded to it. tests/judge_test.cpp has the strict rule; here it is the way through Python that is tested.
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LIMITS = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def normal(seed: int, *shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape, dtype=np.float32).astype(DTYPES[dtype]) for shape in shapes]


def poisoned(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return np.full(shape, POISON, dtype)


def distance(got: Any, want: Any) -> float:
    """The largest difference, as a share of the largest number of `want`. NaN counts as infinitely far."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    infinite = ~np.isfinite(want)
    np.testing.assert_array_equal(got[infinite], want[infinite])
    difference = np.abs(got[~infinite] - want[~infinite])
    assert not np.isnan(difference).any()
    return float(difference.max(initial=0) / np.abs(want[~infinite]).max(initial=1e-30))


def visible(s_q: int, s_k: int, left: int | None = None, right: int | None = None, align: str = "bottom_right") -> Any:
    """Which query (rows) sees which key (columns)."""
    shift = s_k - s_q if align == "bottom_right" else 0
    away = np.arange(s_k)[None, :] - (np.arange(s_q)[:, None] + shift)
    return (away >= (-np.inf if left is None else -left)) & (away <= (np.inf if right is None else right))


def scores(q: Any, k: Any, scale: float | None = None, softcap: float = 0.0) -> Any:
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    k = np.repeat(k, q.shape[2] // k.shape[2], axis=2)
    s = np.einsum("bihd,bjhd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return softcap * np.tanh(s / softcap) if softcap else s


def definition(q: Any, k: Any, v: Any, seen: Any = None, add: Any = 0.0, **score: Any) -> tuple[Any, Any]:
    """(O, LSE) of arrays (b, s, h, d) in float64. `seen` says which pairs count; `add` is added to the scores."""
    s = scores(q, k, **score) + add
    if seen is not None:
        s = np.where(seen, s, -np.inf)
    top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.where(np.isfinite(top), top, 0) + np.log(total))[..., 0]
    v = np.repeat(np.asarray(v, np.float64), q.shape[2] // v.shape[2], axis=2)
    o = np.einsum("bhij,bjhd->bihd", p / np.where(total == 0, 1, total), v)
    return o, lse
