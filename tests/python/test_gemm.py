"""falchion.gemm on NumPy: against the definition in float64, and what is refused."""

import math
import random
from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import DTYPES, distance, normal, poisoned

# A product of k numbers of f32 is off by some sqrt(k) roundings; of the other types the result's rounding counts.
LIMITS = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
ERF = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS: dict[str | None, Any] = {
    None: lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "gelu_tanh": lambda z: 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "gelu_erf": lambda z: 0.5 * z * (1 + ERF(z / math.sqrt(2))),
    "silu": lambda z: z / (1 + np.exp(-z)),
}


def exact(x: Any) -> Any:
    return np.asarray(x, np.float64)


def definition(
    a: Any,
    b: Any,
    c: Any = None,
    bias: Any = None,
    bias_m: Any = None,
    residual: Any = None,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Any:
    """activation(alpha A B^T + beta C + bias) + residual of arrays with 2 or 3 axes."""
    z = alpha * (exact(a) @ np.swapaxes(exact(b), -1, -2))
    if c is not None:
        z = z + beta * exact(c)
    if bias is not None:
        z = z + exact(bias)
    if bias_m is not None:
        z = z + exact(bias_m)[..., None]
    if activation == "swiglu":
        gate, up = np.split(z, 2, axis=-1)
        d = ACTIVATIONS["silu"](gate) * up
    else:
        d = ACTIVATIONS[activation](z)
    return d if residual is None else d + exact(residual)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [*ACTIVATIONS, "swiglu"])
def test_definition(dtype: str, activation: str | None) -> None:
    rows = 2 * 40 if activation == "swiglu" else 40
    a, b, bias, residual = normal(1, (2, 33, 70), (rows, 70), (rows,), (2, 33, 40), dtype=dtype)
    out = poisoned((2, 33, 40), DTYPES[dtype])
    made = falchion.gemm(a, b, bias=bias, residual=residual, activation=activation, alpha=0.1)
    want = definition(a, b, bias=bias, residual=residual, activation=activation, alpha=np.float32(0.1))
    assert made.dtype == a.dtype and type(made) is np.ndarray and made.flags.c_contiguous
    assert distance(made, want) < LIMITS[dtype]
    given = falchion.gemm(a, b, bias=bias, residual=residual, activation=activation, alpha=0.1, out=out)
    assert given is out and np.array_equal(out, made)


def draw_array(draw: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    """Random numbers of this shape with strides of all kinds: dense, transposed, backward, with gaps."""
    (x,) = normal(draw.randrange(2**30), shape, dtype=dtype)
    way = draw.randrange(5)
    if way == 1:
        return np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2) if x.ndim > 1 else x
    if way == 2:
        return np.flip(np.flip(x).copy())
    if way == 3:
        return np.repeat(x, 3, axis=-1)[..., 1::3]
    if way == 4:
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0)
    return x


@pytest.mark.parametrize("seed", range(200))
def test_drawn(seed: int) -> None:
    """Shapes, strides, types and options are drawn. An extent may be 0."""
    draw = random.Random(seed)
    dtype = draw.choice([*DTYPES])
    m, n, k, batch = (draw.choice([0, 1, 2, 5, 16, 17, 33, 65]) for _ in range(4))
    batch = min(batch, 5)
    activation = draw.choice([*ACTIVATIONS, "swiglu"])
    rows = 2 * n if activation == "swiglu" else n
    sides = [draw.random() < 0.5 for _ in range(2)]
    a = draw_array(draw, (batch, m, k) if sides[0] else (m, k), dtype)
    b = draw_array(draw, (batch, rows, k) if sides[1] else (rows, k), dtype)
    shape = (batch, m, n) if any(sides) else (m, n)
    wide = draw.random() < 0.3  # a float32 result of smaller types
    options: dict[str, Any] = {"activation": activation, "alpha": draw.choice([1, 0, 0.5, -2])}
    if draw.random() < 0.5 and activation != "swiglu":
        options |= {"c": draw_array(draw, shape, draw.choice([dtype, "float32"]))}
        options |= {"beta": draw.choice([1, 0, -0.25])} if draw.random() < 0.5 else {}
    if draw.random() < 0.5:
        options |= {"bias": draw_array(draw, (rows,), draw.choice([dtype, "float32"]))}
    if draw.random() < 0.5:
        options |= {"bias_m": draw_array(draw, draw.choice([(m,), shape[:-1]]), draw.choice([dtype, "float32"]))}
    if draw.random() < 0.5:
        options |= {"residual": draw_array(draw, draw.choice([shape, shape[-2:]]), "float32" if wide else dtype)}
    want = definition(a, b, **options)
    if draw.random() < 0.5:
        options |= {"out_dtype": "float32"} if wide else {}
        d = falchion.gemm(a, b, **options, threads=draw.choice([0, 1, 3]))
    else:
        whole = poisoned((*shape[:-1], 2 * n), np.float32 if wide else DTYPES[dtype])
        d = whole[..., ::2]
        assert falchion.gemm(a, b, **options, out=d) is d
        assert (exact(whole[..., 1::2]) == exact(np.array(12345.0, whole.dtype))).all()
    assert d.shape == shape == want.shape and d.dtype == (np.float32 if wide else DTYPES[dtype])
    assert distance(d, want) < (LIMITS["float32"] if wide else LIMITS[dtype]) * 2


def test_the_way_b_lies() -> None:
    """B is (n, k), as a layer's weight. A matrix (k, n) is given as its transpose, also a batch of them."""
    a, w = normal(2, (5, 8), (8, 3))
    assert distance(falchion.gemm(a, w.T), exact(a) @ exact(w)) < 1e-6
    a, w = normal(3, (2, 5, 8), (2, 8, 3))
    assert distance(falchion.gemm(a, w.swapaxes(1, 2)), exact(a) @ exact(w)) < 1e-6
    # The gradients of a linear layer are products of other views.
    x, weight, grad_y = normal(4, (7, 6), (4, 6), (7, 4))
    assert distance(falchion.gemm(grad_y, weight.T), exact(grad_y) @ exact(weight)) < 1e-6
    assert distance(falchion.gemm(grad_y.T, x.T), exact(grad_y).T @ exact(x)) < 1e-6


def test_heads_are_two_axes() -> None:
    """The o of attention is an a, and its q is an out, in either layout and without a copy."""
    x, to_q, to_x = normal(5, (2, 9, 20), (24, 20), (20, 24))
    want = exact(x) @ exact(to_q).T
    for layout in ("bshd", "bhsd"):
        q = poisoned((2, 9, 3, 8)) if layout == "bshd" else poisoned((2, 3, 9, 8)).transpose(0, 2, 1, 3)
        assert falchion.gemm(x, to_q, out=q) is q
        assert distance(q, want.reshape(2, 9, 3, 8)) < 1e-6
        back = falchion.gemm(q, to_x, residual=x)
        assert back.shape == x.shape and distance(back, want @ exact(to_x).T + exact(x)) < 2e-6
    # The columns of a weight that is a transpose lie apart, and so do their halves.
    apart = np.ascontiguousarray(to_x.T).T
    assert distance(falchion.gemm(q, apart), want @ exact(to_x).T) < 2e-6
    # Four axes of b, and of c and residual: those of three axes are cut likewise.
    keys = normal(6, (2, 5, 3, 8))[0]
    s = falchion.gemm(q, keys)
    assert distance(s, want @ exact(keys).reshape(2, 5, 24).swapaxes(1, 2)) < 1e-6
    assert distance(falchion.gemm(np.ascontiguousarray(q).reshape(2, 9, 24), keys), s) < 1e-6
    same = falchion.gemm(x, to_q, residual=q, c=np.ascontiguousarray(q).reshape(2, 9, 24))
    assert same.shape == (2, 9, 24) and distance(same, 3 * want) < 1e-6


def test_out_over_its_inputs() -> None:
    a, b, c = normal(7, (6, 8), (5, 8), (6, 5))
    want = exact(a) @ exact(b).T + exact(c)
    for name in ("c", "residual"):
        x = c.copy()
        assert falchion.gemm(a, b, **{name: x}, out=x) is x and distance(x, want) < 1e-6


def test_types() -> None:
    a, b = normal(8, (6, 8), (5, 8), dtype="float16")
    for dtype in ("float32", np.float32, np.dtype("float32")):
        d = falchion.gemm(a, b, out_dtype=dtype)
        assert d.dtype == np.float32 and distance(d, exact(a) @ exact(b).T) < 1e-6
    assert falchion.gemm(a, b, out_dtype="float16").dtype == np.float16
    out = poisoned((6, 5))
    assert falchion.gemm(a, b, out=out) is out and distance(out, d) < 1e-6


def test_numbers_that_are_not_read() -> None:
    a, b, c = normal(9, (3, 4), (5, 4), (3, 5))
    nan = np.full_like(c, np.nan)
    assert np.array_equal(falchion.gemm(a, b, c=nan, beta=0), falchion.gemm(a, b))
    assert (falchion.gemm(a * np.nan, b, c=c, alpha=0) == c).all()
    assert (falchion.gemm(a[:, :0], b[:, :0], c=c, activation="relu") == np.maximum(c, 0)).all()


def test_plans_are_kept() -> None:
    """A problem is what its plan is found by: sizes, types and options, but no strides."""
    a, b = normal(10, (6, 8), (6, 8))
    falchion.plan_cache_clear()
    options: list[dict[str, Any]] = [
        {},
        {"activation": "relu"},
        {"alpha": 2},
        {"bias": b[:, 0]},
        {"bias_m": b[:, 0]},
        {"residual": a[:, :6]},
        {"c": a[:, :6]},
        {"c": a[:, :6], "beta": 2},
        {"threads": 1},
        {"backend": "ref"},
    ]
    for turn in range(2):
        for option in options:
            falchion.gemm(a, b if turn else b[::-1], **option)
    assert falchion.plan_cache_info() == {
        "hits": len(options),
        "misses": len(options),
        "size": len(options),
        "limit": 64,
    }
    falchion.plan_cache_clear()


A, B = normal(11, (2, 5, 8), (6, 8))
READ_ONLY = np.zeros((2, 5, 6), np.float32)
READ_ONLY.flags.writeable = False
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"a": [1.0]}, TypeError, "a must be an array .* not list"),
    (
        {"a": A.astype(np.float64)},
        falchion.Invalid,
        "a has the type float64: it must be float32, float16, bfloat16, int8 or",
    ),
    ({"b": B.astype(np.int16)}, falchion.Invalid, "b has the type int16"),
    ({"b": B.astype(np.float16)}, falchion.Invalid, "^b.dtype = float16, but the problem's is float32"),
    ({"a": A[0, 0]}, falchion.Invalid, r"a has 1 axes: it must have 2, \(rows, columns\)"),
    ({"a": A[None, None]}, falchion.Invalid, "a has 5 axes: no argument has more than 4"),
    (
        {"b": B[:, :7]},
        falchion.Invalid,
        r"b has \(batch, n, k\) = \(1, 6, 7\): it must have \(2, 6, 8\), as a has it \(of a matrix \(k, n\) give .* b.T\)",
    ),
    (
        {"a": A[None].swapaxes(0, 1)},
        falchion.Invalid,
        r"b has \(batch, n, k\) = \(1, 6, 8\): it must have \(2, 6, 40\), as a has it \(the last two of four axes are",
    ),
    ({"b": np.stack([B, B, B])}, falchion.Invalid, r"b has \(batch, n, k\) = \(3, 6, 8\): it must have \(2, 6, 8\)"),
    ({"b": B[:5], "activation": "swiglu"}, falchion.Invalid, 'b has 5 rows: with activation="swiglu" it must have 2 n'),
    (
        {"c": np.zeros((2, 5, 3), np.float32), "b": B, "activation": "swiglu"},
        falchion.Unsupported,
        "beta = 1 with swiglu",
    ),
    (
        {"c": A[:, :, :5]},
        falchion.Invalid,
        r"c has \(batch, m, n\) = \(2, 5, 5\): it must have \(2, 5, 6\), or a batch",
    ),
    ({"c": A[:, :, :6].astype(np.float16)}, falchion.Unsupported, "the type of c = float16 with dtype = float32"),
    ({"residual": A[:, :4, :6]}, falchion.Invalid, r"residual has \(batch, m, n\) = \(2, 4, 6\)"),
    ({"residual": A[:, :, :6].astype(np.float16)}, falchion.Invalid, "residual.dtype = float16, but .* float32"),
    ({"bias": A[0, :, 0]}, falchion.Invalid, r"bias.shape\[0\] = 5, but the problem's is 6"),
    ({"bias": B[:, :6]}, falchion.Invalid, r"bias.shape\[0\] = 6, but the problem's is 1"),
    ({"bias": B[0, 0].reshape(())}, falchion.Invalid, r"bias.shape\[-1\] = 1, but the problem's is 6"),
    ({"bias": B[:, 0].astype(np.float16)}, falchion.Invalid, "bias.dtype = float16"),
    ({"bias_m": B[:, 0]}, falchion.Invalid, r"bias_m.shape\[0\] = 6, but the problem's is 5"),
    ({"bias_m": A[:, :4, 0]}, falchion.Invalid, r"bias_m.shape\[1\] = 4, but the problem's is 5"),
    ({"bias_m": A}, falchion.Invalid, r"bias_m has 3 axes: it must have 1 or 2, \(rows\) or \(batch, rows\)"),
    ({"activation": "gelu"}, falchion.Invalid, 'activation = \'gelu\': it is one of "relu", "gelu_tanh"'),
    ({"activation": 1}, TypeError, "activation must be a string, not int"),
    ({"alpha": "1"}, TypeError, "alpha must be a number, not str"),
    ({"alpha": float("inf")}, falchion.Invalid, "alpha = inf: it must be finite"),
    ({"beta": 1.0}, falchion.Invalid, "beta is given without c"),
    ({"c": READ_ONLY, "beta": float("nan")}, falchion.Invalid, "beta = nan: it must be finite"),
    ({"backend": "gpu"}, falchion.Invalid, "backend = 'gpu'"),
    ({"threads": -1}, falchion.Invalid, "threads = -1"),
    ({"stream": 1}, falchion.Invalid, "stream is given, but a lies in the host's memory"),
    ({"out_dtype": "float16"}, falchion.Unsupported, "the type of out = float16 with dtype = float32"),
    ({"out_dtype": "float64"}, falchion.Invalid, "out_dtype = 'float64': it is one of"),
    ({"out": READ_ONLY}, falchion.Invalid, "out is read-only"),
    ({"out": poisoned((5, 6))}, falchion.Invalid, r"out has \(batch, m, n\) = \(1, 5, 6\): it must have \(2, 5, 6\)\n"),
    (
        {"out": poisoned((2, 5, 6)), "out_dtype": "float16", "a": A.astype(np.float16), "b": B.astype(np.float16)},
        falchion.Invalid,
        "^out.dtype = float32, but the problem's is float16",
    ),
    ({"out": A[:, :, :6]}, falchion.Invalid, "^out overlaps a"),
    ({"out": poisoned((2, 5, 6))[:, ::-1]}, falchion.Invalid, r"^out.stride\[1\] = -6: strides of an output must be"),
    ({"out": poisoned((2, 5, 6))[..., ::-1]}, falchion.Invalid, r"^out.stride\[2\] = -1: strides of an output must be"),
    ({"a": A[0], "out": poisoned((5, 6))[:, ::-1]}, falchion.Invalid, r"^out.stride\[1\] = -1"),
    ({"w": B}, TypeError, r"gemm\(\) has no argument 'w'"),
]


@pytest.mark.parametrize(
    ("options", "kind", "words"), REFUSED, ids=[f"{i}-{next(iter(r[0]))}" for i, r in enumerate(REFUSED)]
)
def test_refused(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        falchion.gemm(**({"a": A, "b": B} | options))
