"""falchion.quantise: beside NumPy, its outputs, what is given to it, and what is refused."""

from typing import Any

import numpy as np
import pytest

import falchion

ml_dtypes = pytest.importorskip("ml_dtypes")
E4M3 = ml_dtypes.float8_e4m3fn
X = np.random.default_rng(5).standard_normal((2, 70, 3, 64)).astype(np.float32)


def blocks(scale: Any, rows: int, s: int) -> Any:
    """The scale of each token."""
    return np.repeat(scale, rows, axis=1)[:, :s, :, None]


@pytest.mark.parametrize("rows", [1, 32, 0])
@pytest.mark.parametrize(("dtype", "bound", "step"), [("float8_e4m3fn", 448, 2**-4), ("int8", 127, 0.5 / 127)])
def test_scales_are_the_largest_of_their_blocks(rows: int, dtype: str, bound: float, step: float) -> None:
    y, scale = falchion.quantise(X, dtype, rows=rows)
    assert y.shape == X.shape and str(y.dtype) == dtype
    of = rows or X.shape[1]
    most = np.stack([np.abs(X[:, i : i + of]).max(axis=(1, 3)) for i in range(0, X.shape[1], of)], axis=1)
    assert np.array_equal(scale, most / np.float32(bound))
    back = y.astype(np.float32) * blocks(scale, of, X.shape[1])
    limit = step * (np.abs(back) if dtype != "int8" else bound * blocks(scale, of, X.shape[1]))
    assert np.all(np.abs(back - X) <= limit * 1.001 + bound * 2**-18 * blocks(scale, of, X.shape[1]))


def test_e4m3_is_that_of_ml_dtypes() -> None:
    y, scale = falchion.quantise(X, rows=16, scale=np.ones((1, 1, 1), np.float32))
    assert np.array_equal(y.view(np.uint8), X.astype(E4M3).view(np.uint8))
    assert scale.shape == (1, 1, 1)


def test_smooth_gives_the_mean_and_takes_it() -> None:
    y, scale, mean = falchion.quantise(X + 7, "int8", smooth=True)
    np.testing.assert_allclose(mean, (X + 7).mean(axis=1), rtol=1e-6)
    again, same_scale = falchion.quantise(X + 7, "int8", mean=mean)
    assert np.array_equal(y, again) and np.array_equal(scale, same_scale)


def test_rotation_keeps_products() -> None:
    q, k = X[:, :, :1], X[:, :, 1:2]
    (qy, qs), (ky, ks) = (falchion.quantise(x, "int8", rotate=True) for x in (q, k))
    wanted = np.einsum("bihd,bjhd->bhij", q, k)
    got = np.einsum("bihd,bjhd->bhij", qy * qs[..., None], ky * ks[..., None])
    assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()
    assert not np.array_equal(qy, falchion.quantise(q, "int8")[0])


def test_powers_of_two_and_out() -> None:
    out = np.zeros(X.shape, np.int8)
    y, scale = falchion.quantise(X, "int8", powers_of_two=True, out=out)
    assert y is out and out.any()
    assert np.array_equal(np.exp2(np.round(np.log2(scale))), scale)


@pytest.mark.parametrize(
    ("words", "x", "options"),
    [
        ("x has 3 axes: it must have 4, \\(b, s, h, d\\)", X[0], {}),
        ("dtype = float16: out must be float8_e4m3fn or int8", X, {"dtype": "float16"}),
        ("rows = -1: a size must be 0 or more", X, {"rows": -1}),
        ("powers_of_two with scale_given", X, {"scale": np.ones((1, 1, 1), np.float32), "powers_of_two": True}),
        ("mean.shape\\[1\\] = 2", X, {"mean": np.ones((2, 2, 64), np.float32)}),
        ("scale.shape\\[1\\] = 9", X, {"scale": np.ones((2, 9, 3), np.float32)}),
    ],
)
def test_what_is_refused(words: str, x: Any, options: dict[str, Any]) -> None:
    with pytest.raises(falchion.Invalid, match=words):
        falchion.quantise(x, **{"dtype": "int8", **options})


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X)
    y, scale = falchion.quantise(x, rows=0)
    assert y.dtype is torch.float8_e4m3fn and scale.shape == (2, 1, 3)
    mine, theirs = falchion.quantise(X, rows=0)
    assert np.array_equal(y.view(torch.uint8).numpy(), mine.view(np.uint8)) and np.array_equal(scale.numpy(), theirs)
