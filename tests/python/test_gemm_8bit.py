"""falchion.gemm of int8 and float8_e4m3fn on NumPy: sums, scales, types of the result, and what is refused."""

from typing import Any

import falchion
import ml_dtypes
import numpy as np
import pytest
from numpy_support import distance, normal, poisoned
from test_gemm import LIMITS, definition, exact

E4M3 = ml_dtypes.float8_e4m3fn
RESULTS: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def draw(seed: int, *shapes: tuple[int, ...], dtype: Any) -> list[Any]:
    if dtype is E4M3:
        return [x.astype(E4M3) for x in normal(seed, *shapes)]
    random = np.random.default_rng(seed)
    return [random.integers(-128, 128, shape, np.int8) for shape in shapes]


@pytest.mark.parametrize("dtype", [np.int8, E4M3], ids=["int8", "e4m3"])
def test_everything(dtype: Any) -> None:
    """A scale by row, a bias, an activation and a residual, with strides of all kinds, into each type of result."""
    a, b = draw(1, (2, 33, 70), (40, 70), dtype=dtype)
    scale_a, scale_b, bias, residual = normal(2, (2, 33), (40,), (40,), (2, 33, 40))
    scale_a, scale_b = np.abs(scale_a) / 64, np.abs(scale_b) / 64
    product = [exact(a) * scale_a[..., None], exact(b) * scale_b[:, None]]
    want = definition(*product, bias=bias, residual=residual, activation="silu")
    options: dict[str, Any] = {"scale_a": scale_a, "scale_b": scale_b, "bias": bias, "activation": "silu"}
    for x, y in ((a, b), (np.flip(np.flip(a).copy()), np.ascontiguousarray(b.T).T), (a, np.repeat(b, 3, 1)[:, ::3])):
        made = falchion.gemm(x, y, residual=residual, **options)
        assert made.dtype == np.float32 and distance(made, want) < LIMITS["float32"]
    for name, result in RESULTS.items():
        rounded = residual.astype(result)
        want = definition(*product, bias=bias, residual=rounded, activation="silu")
        out = poisoned((2, 33, 40), result)
        assert falchion.gemm(a, b, residual=rounded, out=out, **options) is out and distance(out, want) < LIMITS[name]
        made = falchion.gemm(a, b, residual=rounded, out_dtype=result, **options)
        assert made.dtype == result and np.array_equal(made, out)


def test_sums_of_int8_are_exact() -> None:
    a, b = draw(3, (17, 1000), (9, 1000), dtype=np.int8)
    a[0] = b[0] = -128
    want = a.astype(np.int32) @ b.astype(np.int32).T
    d = falchion.gemm(a, b, out_dtype="int32")
    assert d.dtype == np.int32 and np.array_equal(d, want) and d[0, 0] == 1000 * 128 * 128
    out = np.zeros_like(want)
    assert falchion.gemm(a, b, out=out) is out and np.array_equal(out, want)
    assert np.array_equal(falchion.gemm(a, b), want.astype(np.float32))


def test_every_number_of_e4m3() -> None:
    codes = np.arange(256, dtype=np.uint8).view(E4M3)[:, None]
    got = falchion.gemm(codes, np.ones((1, 1), E4M3))
    assert np.array_equal(got, codes.astype(np.float32), equal_nan=True) and np.isnan(got).sum() == 2


@pytest.mark.parametrize("dtype", [np.int8, E4M3], ids=["int8", "e4m3"])
def test_forms_of_scales(dtype: Any) -> None:
    a, b = draw(4, (2, 5, 8), (2, 6, 8), dtype=dtype)
    product = exact(a) @ exact(b).swapaxes(1, 2)
    (numbers,) = normal(5, (2, 7))
    for scale_a in (numbers[0, 0], numbers[0, :1], numbers[:, :1], numbers[0, :5], numbers[:, :5], numbers[:, 4::-1]):
        for scale_b in (numbers[1, 1], numbers[1, :1], numbers[:, 1:2], numbers[0, :6], numbers[:, 1:]):
            one, other = (
                np.broadcast_to(x, (2, x.shape[-1] if x.ndim else 1)) for x in map(np.asarray, (scale_a, scale_b))
            )
            d = falchion.gemm(a, b, scale_a=np.asarray(scale_a), scale_b=np.asarray(scale_b))
            assert distance(d, exact(one)[:, :, None] * exact(other)[:, None] * product) < LIMITS["float32"]


def test_scales_of_blocks() -> None:
    """(rows, blocks) and (batch, rows, blocks), in any order in memory; a k of one block too."""
    for k, blocks in ((300, 3), (100, 1)):
        a, b = draw(7, (2, 5, k), (200, k), dtype=E4M3)
        scale_a, scale_b = normal(8, (2, 5, blocks), (2, blocks))
        of_a, of_b = np.repeat(scale_a, 128, 2)[:, :, :k], np.repeat(np.repeat(scale_b, 128, 0)[:200], 128, 1)[:, :k]
        want = (exact(a) * of_a) @ (exact(b) * of_b).T
        options: dict[str, Any] = {"scale_b": scale_b, "scaling": "block128"}
        for scales in (scale_a, np.ascontiguousarray(scale_a.swapaxes(1, 2)).swapaxes(1, 2)):
            assert distance(falchion.gemm(a, b, scale_a=scales, **options), want) < LIMITS["float32"]
        one = falchion.gemm(a[0], b, scale_a=scale_a[0], **options)
        assert one.shape == (5, 200) and distance(one, want[0]) < LIMITS["float32"]


A, B = draw(6, (2, 5, 8), (6, 8), dtype=np.int8)
ONE = np.ones(1, np.float32)
BLOCKS: dict[str, Any] = {
    "a": np.ones((5, 300), E4M3),
    "b": np.ones((200, 300), E4M3),
    "scale_a": np.ones((5, 3), np.float32),
    "scale_b": np.ones((2, 3), np.float32),
    "scaling": "block128",
}
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"b": B.astype(np.float32)}, falchion.Invalid, "^b.dtype = float32, but the problem's is int8"),
    ({"b": B.astype(E4M3)}, falchion.Invalid, "^b.dtype = float8_e4m3fn, but the problem's is int8"),
    (
        {"a": A.astype(np.int32), "b": B.astype(np.int32)},
        falchion.Invalid,
        "a has the type int32: it must be float32, float16, bfloat16, int8 or float8_e4m3fn",
    ),
    ({"scale_a": ONE}, falchion.Invalid, "scale_a is given without scale_b: both are needed"),
    ({"scale_b": ONE}, falchion.Invalid, "scale_b is given without scale_a: both are needed"),
    ({"scale_a": 0.5, "scale_b": ONE}, TypeError, "scale_a must be an array .* not float"),
    ({"scale_a": ONE.astype(np.float16), "scale_b": ONE}, falchion.Invalid, "scale_a.dtype = float16, .* float32"),
    (
        {"scale_a": A[0, :4, 0].astype(np.float32), "scale_b": ONE},
        falchion.Invalid,
        r"^scale_a.shape\[0\] = 4, but .* 5",
    ),
    ({"scale_a": ONE, "scale_b": np.ones((2, 7), np.float32)}, falchion.Invalid, r"^scale_b.shape\[1\] = 7, but .* 6"),
    ({"scale_a": ONE, "scale_b": np.ones((3, 6), np.float32)}, falchion.Invalid, r"^scale_b.shape\[0\] = 3, but .* 2"),
    ({"scale_a": ONE, "scale_b": np.ones((1, 2, 6), np.float32)}, falchion.Invalid, "scale_b has 3 axes"),
    (BLOCKS | {"scale_a": np.ones((4, 3), np.float32)}, falchion.Invalid, r"^scale_a.shape\[0\] = 4, but .* 5"),
    (BLOCKS | {"scale_a": np.ones((5, 2), np.float32)}, falchion.Invalid, r"^scale_a.shape\[1\] = 2, but .* 3"),
    (BLOCKS | {"scale_b": np.ones((1, 2, 2), np.float32)}, falchion.Invalid, r"^scale_b.shape\[2\] = 2, but .* 3"),
    (BLOCKS | {"scale_b": np.ones((1, 3, 3), np.float32)}, falchion.Invalid, r"^scale_b.shape\[1\] = 3, but .* 2"),
    ({"scaling": "block128"}, falchion.Invalid, "^scaling is given without scale_a and scale_b"),
    ({"scaling": "blocks", "scale_a": ONE, "scale_b": ONE}, falchion.Invalid, "^scaling = 'blocks'"),
    (
        {"scaling": "block128", "scale_a": ONE, "scale_b": ONE},
        falchion.Invalid,
        "scale_a has 1 axes: with scaling=\"block128\" it must have 2 or 3",
    ),
    (
        {"scaling": "block128", "scale_a": ONE[:, None], "scale_b": ONE[:, None]},
        falchion.Unsupported,
        "^scaling = block128 with dtype = int8: scales of blocks are for float8_e4m3fn; nearest: row_col",
    ),
    (
        {"scaling": "tensor", "scale_a": np.ones(5, np.float32), "scale_b": ONE},
        falchion.Invalid,
        r"^scale_a.shape\[0\] = 5, but .* 1",
    ),
    ({"out_dtype": "int8"}, falchion.Invalid, "out_dtype = 'int8': it is one of .*\"int32\""),
    ({"out_dtype": "int32", "alpha": 2}, falchion.Unsupported, "the type of out = int32 is for the sums alone"),
    ({"out_dtype": "int32", "scale_a": ONE, "scale_b": ONE}, falchion.Unsupported, "is for the sums alone"),
    (
        {"out": np.zeros((2, 5, 6), np.int8)},
        falchion.Invalid,
        "out has the type int8: it must be float32, float16, bfloat16 or, of a product of int8, int32",
    ),
    (
        {"c": np.zeros((2, 5, 6), np.float16)},
        falchion.Unsupported,
        "the type of c = float16 with the type of out = float32",
    ),
    (
        {"a": np.zeros((2, 131072), np.int8), "b": np.zeros((2, 131072), np.int8)},
        falchion.Unsupported,
        "k = 131072 with dtype = int8: sums in int32 could overflow; the limit is 131071",
    ),
    (
        {"a": A.astype(np.float32), "b": B.astype(np.float32), "scale_a": ONE, "scale_b": ONE},
        falchion.Unsupported,
        "with dtype = float32: scales are for float8_e4m3fn and int8",
    ),
]


@pytest.mark.parametrize(
    ("options", "kind", "words"), REFUSED, ids=[f"{i}-{next(iter(r[0]))}" for i, r in enumerate(REFUSED)]
)
def test_refused(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        falchion.gemm(**({"a": A, "b": B} | options))


def test_8_bits_are_not_of_norms() -> None:
    with pytest.raises(falchion.Invalid, match="x has the type float8_e4m3fn"):
        falchion.rms_norm(np.zeros((4, 8), E4M3))
    story = falchion.explain((64, 512), (64, 512), op="gemm", dtype="int8", target="avx2")
    assert story.json["problem"]["dtype"] == "i8" and story.json["status"]["code"] == "ok"
    # Of shapes only a and b have 8 bits.
    more: dict[str, Any] = {"scale_a": (64,), "scale_b": (1,), "bias": (64,), "residual": (64, 64), "out": (64, 64)}
    story = falchion.explain((64, 512), (64, 512), op="gemm", dtype="float8_e4m3fn", target="cpu", **more)
    assert story.json["status"]["code"] == "ok" and "s_a[row] s_b[column] A B^T + bias of each column, + R" in story
