"""Each option that is a number of Python may be a scalar of NumPy or an array without axes, of each function; lengths on
the host may be lists and whole numbers of any type; arrays with a mask are refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import falchion

draw = np.random.default_rng(40)
Q = draw.standard_normal((2, 6, 2, 16)).astype(np.float32)
ROWS = np.ascontiguousarray(Q[0])
STARTS = np.array([0, 4, 6], np.int32)
A = draw.standard_normal((6, 16)).astype(np.float32)
WEIGHT = draw.standard_normal(16).astype(np.float32)
O, LSE = falchion.attention(Q, Q, Q, return_lse=True)

SCORE = {"scale": 0.25, "softcap": 3.0, "dropout": 0.5, "seed": 7, "offset": 3, "threads": 1}
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "attention": (lambda **x: falchion.attention(Q, Q, Q, **x), {**SCORE, "causal": True, "return_lse": True}),
    "window": (
        lambda left, right, **x: falchion.attention(Q, Q, Q, window=(left, right), **x),
        {"left": 2, "right": 1},
    ),
    "backward": (
        lambda **x: falchion.attention_backward(Q, Q, Q, Q, O, LSE, **x),
        {**SCORE, "causal": True, "any_order": True, "f32": True, "zero_unused": False},
    ),
    "varlen": (
        lambda **x: falchion.varlen(ROWS, ROWS, ROWS, STARTS, **x),
        {**SCORE, "max_q": 4, "max_k": 4, "causal": True},
    ),
    "linear": (
        lambda **x: falchion.linear_attention(Q, Q, Q, feature_map="elu_plus_one", **x),
        {
            "normalise": True,
            "eps": 1e-5,
            "scale": 0.5,
            "reverse": True,
            "threads": 1,
            "segments": 1,
            "return_state": True,
        },
    ),
    "gemm": (
        lambda **x: falchion.gemm(A, A, c=np.ones((6, 6), np.float32), **x),
        {"alpha": 2.0, "beta": 0.5, "threads": 1},
    ),
    "layer_norm": (
        lambda **x: falchion.layer_norm(A, WEIGHT, **x),
        {"eps": 1e-3, "zero_centered": True, "return_stats": True, "threads": 1},
    ),
    "rms_norm": (lambda **x: falchion.rms_norm(A, WEIGHT, **x), {"eps": 1e-3, "zero_centered": True}),
    "Plan": (
        lambda **x: falchion.Plan(Q, **x).describe(),
        {"scale": 0.5, "softcap": 2.0, "dropout": 0.5, "causal": True, "return_lse": True, "bias": True, "threads": 1},
    ),
    "Plan backward": (
        lambda **x: falchion.Plan(Q, backward=True, **x).describe(),
        {"frozen": 1, "any_order": True, "grad_lse": True},
    ),
    "Plan packed": (lambda **x: falchion.Plan(ROWS, **x).describe(), {"sequences": 2, "max_q": 4, "max_k": 4}),
    "explain": (
        lambda b, **x: str(falchion.explain((b, 6, 2, 16), dtype="float32", target="cpu", **x)),
        {"b": 2, "causal": True, "scale": 0.5},
    ),
    "explain gemm": (
        lambda m, **x: str(falchion.explain((m, 16), (8, 16), op="gemm", dtype="float32", target="cpu", **x)),
        {"m": 4, "alpha": 2.0},
    ),
}


def forms(value: Any) -> list[Any]:
    """The same number in other forms, without those that would round it."""
    if isinstance(value, bool):
        return [np.bool_(value), int(value), np.int64(value), np.array(value)]
    if isinstance(value, int):
        return [np.int64(value), np.int32(value), np.uint8(value), np.array(value)]
    return [np.float64(value), np.array(value)] + ([np.float32(value)] if float(np.float32(value)) == value else [])


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_in_every_form(name: str) -> None:
    call, options = FUNCTIONS[name]
    want = call(**options)
    for option, value in options.items():
        for form in forms(value):
            assert same(call(**{**options, option: form}), want), (option, type(form))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensors_without_axes(name: str) -> None:
    torch = pytest.importorskip("torch")
    call, options = FUNCTIONS[name]
    want = call(**options)
    for option, value in options.items():
        assert same(
            call(**{**options, option: torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)}),
            want,
        ), option


def test_a_number_that_needs_a_gradient_is_refused() -> None:
    """torch's own function does so too: the gradient would be lost without a word."""
    torch = pytest.importorskip("torch")
    with pytest.raises(falchion.Invalid, match="scale requires a gradient, and falchion computes none of an option"):
        falchion.attention(Q, Q, Q, scale=torch.tensor(0.5, requires_grad=True))


def test_numbers_that_are_none() -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"scale": np.ones(2)}, TypeError, "scale must be a number, not numpy.ndarray"),
        ({"scale": np.complex64(0.5)}, TypeError, "scale must be a number, not numpy.complex64"),
        ({"scale": np.ma.masked}, falchion.Unsupported, "scale is a MaskedConstant"),
        ({"threads": np.float64(1)}, TypeError, "threads must be a whole number"),
        ({"causal": np.array([True])}, TypeError, "causal must be True"),
        ({"causal": np.int64(2)}, TypeError, "causal must be True"),
        ({"window": (np.float32(1), 0)}, TypeError, r"window\[0\] must be a whole number"),
    ]
    for options, kind, words in cases:
        with pytest.raises(kind, match=words):
            falchion.attention(Q, Q, Q, **options)


LENGTHS = [np.int64, np.uint64, np.int32, np.uint32, np.int16, np.uint8, np.int8]


@pytest.mark.parametrize("kind", [*LENGTHS, list, tuple])
def test_lengths_of_any_whole_type(kind: Any) -> None:
    def made(*numbers: int) -> Any:
        return kind(numbers) if kind in (list, tuple) else np.array(numbers, kind)

    def int32(*numbers: int) -> Any:
        return np.array(numbers, np.int32)

    for name in ("used_q", "used_k", "first_k"):
        want = falchion.attention(Q, Q, Q, **{name: int32(2, 5)})
        assert same(falchion.attention(Q, Q, Q, **{name: made(2, 5)}), want), name
    want = falchion.varlen(ROWS, ROWS, ROWS, STARTS)
    assert same(falchion.varlen(ROWS, ROWS, ROWS, made(0, 4, 6)), want)
    assert same(falchion.varlen(ROWS, ROWS, ROWS, made(0, 4, 6), made(0, 4, 6)), want)
    falchion.validate_lengths(ROWS, ROWS, ROWS, cu_seqlens_q=made(0, 4, 6))
    assert same(falchion.Plan(ROWS, sequences=2, max_q=4)(ROWS, ROWS, ROWS, cu_seqlens_q=made(0, 4, 6)), want)
    assert same(
        falchion.Plan(Q, used_k=made(2, 5))(Q, Q, Q, used_k=made(2, 5)), falchion.attention(Q, Q, Q, used_k=int32(2, 5))
    )
    linear = falchion.linear_attention(ROWS, ROWS, ROWS, cu_seqlens=STARTS)
    assert same(falchion.linear_attention(ROWS, ROWS, ROWS, cu_seqlens=made(0, 4, 6)), linear)


def test_lengths_that_int32_does_not_hold() -> None:
    for value in (1 << 32, (1 << 32) + 5, -(1 << 40), 1 << 63):
        with pytest.raises(falchion.Invalid, match=r"used_k\[1\] ="):
            falchion.attention(Q, Q, Q, used_k=[5, value])
        dtype = np.uint64 if value > 0 else np.int64
        with pytest.raises(falchion.Invalid, match=r"used_k\[1\] ="):
            falchion.attention(Q, Q, Q, used_k=np.array([5, value], dtype))
    gaps = np.array([5, 0, 3, 0])[::2]
    assert same(falchion.attention(Q, Q, Q, used_k=gaps), falchion.attention(Q, Q, Q, used_k=[5, 3]))


def test_torch_numbers_and_lengths() -> None:
    torch = pytest.importorskip("torch")
    import falchion.torch as ft

    q = torch.from_numpy(Q)
    rows = torch.from_numpy(ROWS)
    leaf = q.clone().requires_grad_()
    for x in (q, leaf):  # straight to C, and through autograd
        want = ft.attention(x, x, x, scale=0.25, causal=True, window=(2, 0), softcap=3.0)
        for causal in (np.bool_(True), 1, torch.tensor(True)):
            window = (np.int64(2), torch.tensor(0))
            got = ft.attention(x, x, x, scale=np.float64(0.25), causal=causal, window=window, softcap=torch.tensor(3.0))
            assert torch.equal(got, want)
        want = ft.attention(x, x, x, used_k=torch.tensor([2, 5], dtype=torch.int32))
        for used in ([2, 5], torch.tensor([2, 5]), torch.tensor([2, 5], dtype=torch.uint8)):
            assert torch.equal(ft.attention(x, x, x, used_k=used), want)
        with pytest.raises(falchion.Invalid, match=r"used_k\[1\] = 4294967296"):
            ft.attention(x, x, x, used_k=torch.tensor([2, 1 << 32]))
        with pytest.raises(TypeError, match=r"used_k\[1\] must be a whole number, not float"):
            ft.attention(x, x, x, used_k=[2, 3.0])
        with pytest.raises(falchion.Invalid, match="used_k must have one axis"):
            ft.attention(x, x, x, used_k=torch.tensor(3))
        before = torch.get_rng_state()
        assert torch.equal(ft.attention(x, x, x, dropout=None), ft.attention(x, x, x, dropout=np.float32(0)))
        assert torch.equal(before, torch.get_rng_state())  # nothing was drawn
        for share in (np.ones(2), "0.5", torch.tensor(0.5, device="meta")):
            with pytest.raises(TypeError, match="dropout must be a number"):
                ft.attention(x, x, x, dropout=share)
    want = ft.varlen(rows, rows, rows, torch.from_numpy(STARTS), causal=True)
    for starts in ([0, 4, 6], torch.tensor([0, 4, 6])):
        assert torch.equal(ft.varlen(rows, rows, rows, starts, causal=np.True_, max_q=np.int64(4)), want)
    want = ft.sdpa(q, q, q, scale=0.25, is_causal=True)
    assert torch.equal(
        ft.sdpa(q, q, q, scale=np.float32(0.25), is_causal=np.bool_(True), dropout_p=np.float64(0)), want
    )
    want = ft.linear_attention(q, q, q, scale=0.5, reverse=True, eps=0.25)
    assert torch.equal(
        ft.linear_attention(q, q, q, scale=np.float64(0.5), reverse=np.True_, eps=torch.tensor(0.25)), want
    )


def test_a_scale_of_zero() -> None:
    """Falchion's own functions refuse it; those with the signature of another library give the mean of V."""
    torch = pytest.importorskip("torch")
    import falchion.torch as ft
    from falchion.flash_attn import flash_attn_func, flash_attn_varlen_func

    q = torch.from_numpy(Q) * 1e18
    v = torch.from_numpy(Q)
    calls: list[Callable[[], Any]] = [
        lambda: falchion.attention(Q, Q, Q, scale=0.0),
        lambda: falchion.linear_attention(Q, Q, Q, scale=np.float32(0)),
        lambda: ft.attention(q, q, v, scale=0.0),
        lambda: ft.attention(q, q, v.clone().requires_grad_(), scale=np.float64(0)),
        lambda: ft.linear_attention(q, q, v, scale=0.0),
        lambda: falchion.Plan(Q, scale=0.0),
    ]
    for call in calls:
        with pytest.raises(falchion.Invalid, match="scale = 0 would"):
            call()
    mean = v.mean(1, keepdim=True).expand(v.shape)
    for zero in (0.0, -0.0, 0, np.float64(0), torch.tensor(0.0)):
        assert torch.allclose(flash_attn_func(q, q, v, softmax_scale=zero), mean, atol=1e-6)
        heads = ft.sdpa(*(x.transpose(1, 2) for x in (q, q, v)), scale=zero).transpose(1, 2)
        assert torch.allclose(heads, mean, atol=1e-6)
    starts = torch.tensor([0, 6], dtype=torch.int32)
    packed = flash_attn_varlen_func(q[0], q[0], v[0], starts, starts, 6, 6, softmax_scale=0.0)
    assert torch.allclose(packed, mean[0], atol=1e-6)
    x = [x.transpose(1, 2).clone().requires_grad_() for x in (v, v, v)]
    ft.sdpa(*x, scale=0.0).square().sum().backward()
    y = [x.transpose(1, 2).clone().requires_grad_() for x in (v, v, v)]
    torch.nn.functional.scaled_dot_product_attention(*y, scale=0.0).square().sum().backward()
    for ours, theirs in zip(x, y, strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)


def masked(x: Any) -> Any:
    return np.ma.array(x, mask=np.zeros(x.shape, bool))


def test_arrays_with_a_mask_are_refused() -> None:
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: falchion.attention(masked(Q), Q, Q), "q"),
        (lambda: falchion.attention(Q, masked(Q), Q), "k"),
        (lambda: falchion.attention(Q, Q, Q, out=masked(Q.copy())), "out"),
        (lambda: falchion.attention(Q, Q, Q, bias=masked(np.zeros((6, 6), np.float32))), "bias"),
        (lambda: falchion.attention(Q, Q, Q, used_k=masked(np.array([1, 2], np.int32))), "used_k"),
        (lambda: falchion.linear_attention(Q, Q, masked(Q)), "v"),
        (lambda: falchion.gemm(A, masked(A)), "b"),
        (lambda: falchion.rms_norm(masked(A)), "x"),
        (lambda: falchion.Plan(masked(Q)), "q"),
        (lambda: falchion.merge(O, LSE, masked(O), LSE), "o_b"),
    ]
    for call, name in calls:
        with pytest.raises(falchion.Unsupported, match=f"^{name} is a MaskedArray of numpy, an array with a mask"):
            call()

    class Column(np.ndarray):
        """As astropy's Masked."""

        mask = unmasked = None

    with pytest.raises(falchion.Unsupported, match="q is a .*Column of numpy, an array with a mask"):
        falchion.attention(Q.view(Column), Q, Q)


def test_masked_tensors_of_torch_are_refused() -> None:
    torch = pytest.importorskip("torch")
    x = torch.masked.masked_tensor(torch.from_numpy(Q), torch.from_numpy(Q > 0))
    with pytest.raises(falchion.Unsupported, match="q is a MaskedTensor of torch, an array with a mask"):
        falchion.attention(x, x, x)


PLANS: dict[str, dict[str, Any]] = {
    "shapes": {"q": (1, 64, 4, 32), "dtype": "float32", "causal": True, "scale": 0.5},
    "a level": {"q": (1, 64, 4, 32), "dtype": "float32", "target": "generic"},
    "ref": {"q": (1, 4, 2, 8), "dtype": "float16", "backend": "ref", "bias": True, "dropout": 0.5},
    "backward": {"q": (1, 8, 2, 16), "dtype": "float32", "backward": True, "frozen": 1, "window": (3, 0)},
    "packed": {"q": (40, 4, 32), "dtype": "bfloat16", "sequences": 3, "max_q": 20, "used_k": True},
    "heads first": {
        "q": (2, 2, 6, 16),
        "dtype": "float32",
        "layout": "bhsd",
        "return_lse": True,
        "threads": 1,
        "backend": "cpu",
    },
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_copied_and_pickled(name: str) -> None:
    plan = falchion.Plan(**PLANS[name])
    copies = [copy.copy(plan), copy.deepcopy(plan)]
    copies += [pickle.loads(pickle.dumps(plan, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in copies:
        assert type(other) is falchion.Plan and other is not plan
        assert other.explain() == plan.explain() and other.workspace_bytes == plan.workspace_bytes
    if name == "heads first":
        x = np.ascontiguousarray(Q.swapaxes(1, 2))
        assert same(copies[-1](x, x, x), plan(x, x, x))


def test_a_pickle_that_is_none_of_a_plan() -> None:
    plan = falchion.Plan((1, 64, 4, 32), dtype="float32")
    make, (kind,), (version, *rest) = plan.__reduce__()
    with pytest.raises(falchion.Invalid, match="pickled by version 0.0.0 of Falchion"):
        make(kind).__setstate__(("0.0.0", *rest))
    for state in (None, (), (version,), (version, 0, 0, None, b"", b"")):
        with pytest.raises((TypeError, falchion.Invalid)):
            make(kind).__setstate__(state)
    with pytest.raises(TypeError, match="made once"):
        plan.__setstate__((version, *rest))
    with pytest.raises(RuntimeError, match="was not made"):
        pickle.dumps(make(kind))


@pytest.mark.parametrize(("name", "as_name"), [("a100", "sm80"), ("h100", "sm90"), ("h200", "sm90"), ("b200", "sm100")])
def test_gpus_by_name(name: str, as_name: str) -> None:
    options: dict[str, Any] = {"dtype": "bfloat16", "causal": True}
    assert falchion.explain((1, 4096, 8, 128), target=name, **options) == falchion.explain(
        (1, 4096, 8, 128), target=as_name, **options
    )
    gemm = falchion.explain((64, 64), (64, 64), op="gemm", dtype="bfloat16", target=name)
    assert gemm == falchion.explain((64, 64), (64, 64), op="gemm", dtype="bfloat16", target=as_name)
    for other in ("sm86", "sm89", "sm100", "sm120"):
        assert falchion.explain((1, 64, 8, 128), target=other, **options).json["problem"]["d_qk"] == 128
