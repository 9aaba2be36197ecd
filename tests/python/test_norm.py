"""falchion.layer_norm and falchion.rms_norm on NumPy: against the definition in float64, and what is refused."""

import random
import sys
from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import DTYPES, LIMITS, distance, normal, poisoned
from test_gemm import draw_array, exact

NORMS = {"layer": falchion.layer_norm, "rms": falchion.rms_norm}


def definition(
    kind: str,
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    residual: Any = None,
    zero_centered: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """(y, x + residual, mean, rstd)"""
    v = exact(x) if residual is None else exact(x) + exact(residual)
    mean = v.mean(-1, keepdims=True)
    away = v - mean if kind == "layer" else v
    rstd = 1 / np.sqrt((away**2).mean(-1, keepdims=True) + eps)
    y = away * rstd
    if weight is not None:
        y = y * (exact(weight) + (1 if zero_centered else 0))
    return (y if bias is None else y + exact(bias)), v, mean, rstd


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NORMS)
def test_definition(kind: str, dtype: str) -> None:
    x, residual, weight, bias = normal(1, (2, 9, 40), (2, 9, 40), (40,), (40,), dtype=dtype)
    norm = NORMS[kind]
    y = norm(x, weight, bias=bias, eps=1e-3)
    assert y.dtype == x.dtype and type(y) is np.ndarray and y.flags.c_contiguous
    assert distance(y, definition(kind, x, weight, bias, 1e-3)[0]) < LIMITS[dtype]
    assert distance(norm(x), definition(kind, x)[0]) < LIMITS[dtype]
    y, summed = norm(x, weight, residual=residual)
    want = definition(kind, x, weight, residual=residual)
    assert (
        summed.dtype == x.dtype and distance(y, want[0]) < LIMITS[dtype] and distance(summed, want[1]) < LIMITS[dtype]
    )
    got = norm(x, weight, bias=bias, residual=residual, zero_centered=True, return_stats=True)
    want = definition(kind, x, weight, bias, residual=residual, zero_centered=True)
    statistics = want[2:] if kind == "layer" else want[3:]
    assert distance(got[0], want[0]) < LIMITS[dtype] and len(got) == 2 + len(statistics)
    for mine, theirs in zip(got[2:], statistics, strict=True):
        assert mine.shape == (2, 9, 1) and mine.dtype == np.float32 and distance(mine, theirs) < 1e-5
    assert len(norm(x, return_stats=True)) == 1 + len(statistics)


@pytest.mark.parametrize("seed", range(200))
def test_drawn(seed: int) -> None:
    """Shapes, strides, types and options are drawn. An extent may be 0, and each array has its own type."""
    draw = random.Random(seed)
    kind, types = draw.choice([*NORMS]), [*DTYPES]
    shape = tuple(draw.choice([0, 1, 2, 5, 6]) for _ in range(draw.randrange(4)))
    shape = (*shape, draw.choice([1, 2, 7, 16, 33, 200]))
    x = draw_array(draw, shape, draw.choice(types))
    y_type, sum_type = draw.choice(types), draw.choice(types)

    def factor() -> Any:
        axes = shape[draw.randrange(len(shape)) :]
        return draw_array(draw, (*(draw.choice([1, n]) for n in axes[:-1]), axes[-1]), draw.choice(types))

    options: dict[str, Any] = {"eps": draw.choice([1e-5, 1e-2])}
    if draw.random() < 0.6:
        options |= {"weight": factor(), "zero_centered": draw.random() < 0.5}
    if draw.random() < 0.6:
        options |= {"bias": factor()}
    if draw.random() < 0.5:
        options |= {"residual": draw_array(draw, shape, sum_type)}
    want = definition(kind, x, **options)
    outputs: dict[str, Any] = {"out_dtype": y_type}
    wholes = []
    if draw.random() < 0.5:
        wholes = [poisoned((*shape[:-1], 2 * shape[-1]), DTYPES[dtype]) for dtype in (y_type, sum_type)]
        outputs = {"out": wholes[0][..., ::2]}
        outputs |= {"residual_out": wholes[1][..., ::2]} if "residual" in options else {}
    got = NORMS[kind](x, **options, **outputs, threads=draw.choice([0, 1, 3]))
    y, *more = got if "residual" in options else (got,)
    assert y.shape == shape and y.dtype == DTYPES[y_type]
    # A row of one number, or of small ones beside eps, is a difference of numbers that are as large as v.
    assert distance(y, want[0]) < 2 * LIMITS[y_type] + (1e-5 if kind == "layer" else 0)
    if "residual" in options:
        assert more[0].dtype == DTYPES[sum_type] and distance(more[0], want[1]) < LIMITS[sum_type]
    for whole in wholes:
        assert (exact(whole[..., 1::2]) == exact(np.array(12345.0, whole.dtype))).all()
    assert not wholes or y is outputs["out"]


def test_rows_of_every_rank() -> None:
    for shape in ((7,), (3, 7), (2, 3, 7), (2, 2, 3, 7)):
        (x,) = normal(2, shape)
        y, mean, rstd = falchion.layer_norm(x, return_stats=True)
        want = definition("layer", x)
        assert y.shape == shape and distance(y, want[0]) < 1e-6
        assert mean.shape == rstd.shape == (*shape[:-1], 1) and distance(rstd, want[3]) < 1e-6
    # Each head with its own weight, as a norm of q and k has it.
    q, weight = normal(3, (2, 5, 4, 16), (4, 16))
    assert distance(falchion.rms_norm(q, weight), definition("rms", q, weight)[0]) < 1e-6
    turned = q.transpose(0, 2, 1, 3)
    y = falchion.rms_norm(turned, weight[:, None])
    assert y.flags.c_contiguous and distance(y.transpose(0, 2, 1, 3), definition("rms", q, weight)[0]) < 1e-6


def test_a_sum_in_float32_beside_smaller_rows() -> None:
    """The stream of residuals may be float32 where x is not, and the other way round."""
    for dtypes in (("bfloat16", "float32"), ("float32", "bfloat16"), ("float16", "bfloat16")):
        (x,), (residual,) = normal(4, (6, 20), dtype=dtypes[0]), normal(5, (6, 20), dtype=dtypes[1])
        y, summed = falchion.rms_norm(x, residual=residual)
        assert y.dtype == x.dtype and summed.dtype == residual.dtype
        want = definition("rms", x, residual=residual)
        assert distance(y, want[0]) < LIMITS[dtypes[0]] and distance(summed, want[1]) < LIMITS[dtypes[1]]


def test_rows_of_tiny_and_of_huge_numbers() -> None:
    """Their squares are below the range of float32, or past it."""
    for size in (1e-17, 1e-22, 1e-23, 1e-30, 1e-40, 1e19, 1e30):
        x = np.full((1, 4), size, np.float32)
        assert np.abs(falchion.rms_norm(x, eps=0.0) - 1).max() < 1e-6
        for dtype in ("float32", "bfloat16"):
            (x,) = normal(7, (6, 20), dtype=dtype)
            x = (x.astype(np.float32) * np.float32(size)).astype(x.dtype)
            for kind, norm in NORMS.items():
                y, *statistics = norm(x, eps=0.0, return_stats=True)
                want = definition(kind, x, eps=0.0)
                assert distance(y, want[0]) < LIMITS[dtype]
                if size > 1e-35:  # else rstd is past float32
                    assert np.abs(statistics[-1] / want[3] - 1).max() < 1e-6


def test_outputs_over_inputs() -> None:
    x, residual = normal(6, (6, 20), (6, 20))
    want = definition("layer", x, residual=residual)
    y, summed = falchion.layer_norm(x, residual=residual, out=x, residual_out=residual)
    assert y is x and summed is residual and distance(x, want[0]) < 1e-6 and distance(residual, want[1]) < 1e-6


def test_plans_are_kept() -> None:
    x, weight = normal(7, (6, 20), (20,))
    falchion.plan_cache_clear()
    options: list[dict[str, Any]] = [
        {},
        {"weight": weight},
        {"bias": weight},
        {"weight": weight, "zero_centered": True},
        {"eps": 1e-6},
        {"residual": x},
        {"return_stats": True},
        {"out_dtype": "float16"},
        {"threads": 1},
        {"backend": "ref"},
    ]
    for norm in (*NORMS.values(), *NORMS.values()):
        for option in options:
            norm(x, **option)
    count = 2 * len(options)
    assert falchion.plan_cache_info() == {"hits": count, "misses": count, "size": count, "limit": 64}
    falchion.plan_cache_clear()


X, W = normal(8, (2, 5, 8), (8,))
READ_ONLY = np.zeros(X.shape, np.float32)
READ_ONLY.flags.writeable = False
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": [1.0]}, TypeError, "x must be an array .* not list"),
    ({"x": X.astype(np.float64)}, falchion.Invalid, "x has the type float64: it must be float32, float16 or bfloat16"),
    ({"x": X[0, 0, 0:1].reshape(())}, falchion.Invalid, "x has 0 axes: it must have 1 to 4"),
    ({"x": X[None, None]}, falchion.Invalid, "x has 5 axes: no argument has more than 4"),
    ({"weight": W[:7]}, falchion.Invalid, r"^weight.shape\[0\] = 7, but it must be 8\n"),
    ({"weight": W[:1]}, falchion.Invalid, r"^weight.shape\[0\] = 1, but it must be 8\n"),
    ({"weight": X[:, :4]}, falchion.Invalid, r"^weight.shape\[1\] = 4, but it must be 5 \(or 1\)"),
    ({"weight": W.astype(np.int32)}, falchion.Invalid, "weight has the type int32"),
    ({"bias": X[:1, :1, :7]}, falchion.Invalid, r"^bias.shape\[2\] = 7, but it must be 8"),
    ({"bias": 1e-5}, TypeError, "bias must be an array .* not float"),
    ({"eps": -1e-5}, falchion.Invalid, "^eps = -1e-05: it must be finite and 0 or more"),
    ({"eps": "x"}, TypeError, "eps must be a number, not str"),
    ({"residual": X[:1]}, falchion.Invalid, r"^residual.shape\[0\] = 1, but it must be 2"),
    ({"residual": W}, falchion.Invalid, r"^residual.shape\[-3\] = 1, but it must be 2"),
    ({"residual_out": READ_ONLY.copy()}, falchion.Invalid, "residual_out is given without residual"),
    ({"residual": X, "residual_out": READ_ONLY}, falchion.Invalid, "residual_out is read-only"),
    ({"residual": X, "residual_out": poisoned(X.shape, np.float16)}, falchion.Invalid, "residual_out.dtype = float16"),
    ({"zero_centered": True}, falchion.Invalid, "zero_centered without weight"),
    ({"zero_centered": 2}, falchion.Invalid, "zero_centered = 2: it must be True or False"),
    ({"return_stats": "1"}, TypeError, "return_stats must be True or False, not str"),
    ({"backend": "gpu"}, falchion.Invalid, "backend = 'gpu'"),
    ({"threads": -1}, falchion.Invalid, "threads = -1"),
    ({"stream": 1}, falchion.Invalid, "stream is given, but x lies in the host's memory"),
    ({"out_dtype": "float64"}, falchion.Invalid, "out_dtype = 'float64': it is one of"),
    ({"out": READ_ONLY}, falchion.Invalid, "out is read-only"),
    ({"out": poisoned((2, 5, 7))}, falchion.Invalid, r"^out.shape\[2\] = 7, but it must be 8"),
    (
        {"out": poisoned(X.shape), "out_dtype": "float16"},
        falchion.Invalid,
        "^out.dtype = float32, but it must be float16",
    ),
    ({"out": X[:, ::-1]}, falchion.Invalid, r"^out.stride\[1\] = -8"),
    ({"gamma": W}, TypeError, r"_norm\(\) has no argument 'gamma'"),
]


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize(
    ("options", "kind", "words"), REFUSED, ids=[f"{i}-{next(iter(r[0]))}" for i, r in enumerate(REFUSED)]
)
def test_refused(norm: Any, options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        norm(**({"x": X} | options))


def test_bfloat16_of_numpy_needs_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert falchion.rms_norm(X, out_dtype="bfloat16").dtype.name == "bfloat16"
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(
        falchion.Unsupported, match="^out_dtype = bfloat16: numpy has this type by the package ml_dtypes"
    ):
        falchion.rms_norm(X, out_dtype="bfloat16")


def test_arguments_by_position() -> None:
    x, weight, bias = normal(9, (3, 8), (8,), (8,))
    assert np.array_equal(
        falchion.layer_norm(x, weight, bias, 1e-3), falchion.layer_norm(x, weight=weight, bias=bias, eps=1e-3)
    )
    assert np.array_equal(falchion.rms_norm(x, weight), falchion.rms_norm(x, weight=weight))
    with pytest.raises(TypeError, match="rms_norm.* takes at most 2 positional arguments"):
        falchion.rms_norm(x, weight, 1e-6)  # type: ignore[call-overload]
