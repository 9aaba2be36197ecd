"""torch.compile with fullgraph of calls whose options are scalars of NumPy, arrays and tensors without axes: made inside of
the program, from around it, and given as its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("falchion.torch")

import falchion  # noqa: E402
import falchion.torch as ft  # noqa: E402
from falchion.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, rotary  # noqa: E402

Q = torch.from_numpy(np.random.default_rng(40).standard_normal((2, 6, 2, 16)).astype(np.float32))
ROWS, STARTS = Q[0].contiguous(), torch.tensor([0, 4, 6], dtype=torch.int32)
ANGLES = torch.rand(9, 8)


def compiled(function: Callable[..., Any], backend: str = "aot_eager") -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


MADE_INSIDE: dict[str, Callable[..., Any]] = {
    "attention": lambda q: ft.attention(
        q, q, q, scale=1 / np.sqrt(q.shape[-1]), softcap=np.float32(3), causal=np.bool_(True), window=(np.int64(2), np.int32(0))
    ),
    "off": lambda q: ft.attention(q, q, q, causal=np.bool_(False), used_k=[2, 5], dropout=np.float64(0)),
    "causal is 1": lambda q: ft.attention(q, q, q, causal=1),
    "sdpa": lambda q: ft.sdpa(q, q, q, scale=1 / np.sqrt(32)),
    "sdpa, a tensor": lambda q: ft.sdpa(q, q, q, scale=q[0, 0, 0, 0].detach() * 0 + 0.5),
    "linear": lambda q: ft.linear_attention(q, q, q, scale=1 / np.sqrt(32), eps=np.float32(0.25)),
}


@pytest.mark.parametrize("name", MADE_INSIDE)
def test_numbers_made_inside(name: str) -> None:
    """Also with gradients."""
    run = MADE_INSIDE[name]
    whole = compiled(run)
    x, y = Q.clone().requires_grad_(), Q.clone().requires_grad_()
    assert torch.equal(whole(x), run(y))
    whole(x).square().sum().backward()
    run(y).square().sum().backward()
    assert torch.equal(x.grad, y.grad)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "attention": (
        lambda q, **x: ft.attention(q, q, q, **x),
        (Q,),
        {
            "causal": True,
            "window": (3, 0),
            "scale": 0.25,
            "softcap": 2.0,
            "dropout": 0.0,
            "return_lse": True,
            "any_order": False,
        },
    ),
    "sdpa": (
        lambda q, **x: ft.sdpa(q, q, q, **x),
        (Q,),
        {"dropout_p": 0.0, "is_causal": True, "scale": 0.25, "enable_gqa": False},
    ),
    "varlen": (
        lambda q, starts, **x: ft.varlen(q, q, q, starts, **x),
        (ROWS, STARTS),
        {"max_q": 4, "max_k": 4, "causal": True, "window": (2, 0), "scale": 0.25, "dropout": 0.0, "return_lse": True},
    ),
    "linear": (
        lambda q, **x: ft.linear_attention(q, q, q, feature_map="elu_plus_one", **x),
        (Q,),
        {"normalise": True, "eps": 0.25, "scale": 0.5, "reverse": True, "return_state": True, "segments": 1},
    ),
    "flash_attn": (
        lambda q, **x: flash_attn_func(q, q, q, **x),
        (Q,),
        {
            "dropout_p": 0.0,
            "softmax_scale": 0.25,
            "causal": False,
            "window_size": (3, 0),
            "softcap": 2.0,
            "return_attn_probs": True,
        },
    ),
    "flash_attn packed": (
        lambda q, starts, **x: flash_attn_varlen_func(q, q, q, starts, starts, **x),
        (ROWS, STARTS),
        {"max_seqlen_q": 4, "max_seqlen_k": 4, "softmax_scale": 0.25, "causal": True, "window_size": (3, -1)},
    ),
    "a cache": (
        lambda q, angles, **x: flash_attn_with_kvcache(
            q, torch.zeros(2, 9, 2, 16), torch.zeros(2, 9, 2, 16), q, q, angles, angles, **x
        ),
        (Q, ANGLES),
        {"cache_seqlens": 3, "softmax_scale": 0.25, "causal": True, "rotary_interleaved": False, "return_softmax_lse": True},
    ),
    "rotary": (
        lambda q, angles, **x: rotary.apply_rotary_emb(q, angles, angles, **x),
        (Q, ANGLES),
        {"interleaved": True, "seqlen_offsets": 2},
    ),
}


def small(value: Any) -> Any:
    """NumPy's scalars that torch.compile does not look at by itself."""
    if isinstance(value, tuple):
        return tuple(small(x) for x in value)
    return {bool: np.bool_, int: np.int32, float: np.float32}[type(value)](value)


def tensors(value: Any) -> Any:
    return tuple(torch.tensor(x) for x in value) if isinstance(value, tuple) else torch.tensor(value)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("form", [small, tensors])
def test_numbers_from_outside(name: str, form: Callable[[Any], Any]) -> None:
    function, inputs, options = FUNCTIONS[name]
    want = function(*inputs, **options)
    given = {option: form(value) for option, value in options.items()}
    torch.testing.assert_close(function(*inputs, **given), want, rtol=0, atol=0)
    around = compiled(lambda *x: function(*x, **given))
    torch.testing.assert_close(around(*inputs), want)
    arguments = compiled(lambda x, y: function(*x, **y), "eager")
    torch.testing.assert_close(arguments(inputs, given), want)


def test_numbers_that_change() -> None:
    """No program runs with an option that it was not traced with."""
    run = compiled(
        lambda q, left, causal, share, scale=0.25: ft.attention(
            q, q, q, window=(left, None), causal=causal, dropout=share, scale=scale
        )
    )
    for left, scale in ((2, np.float64(0.5)), (1, np.float64(0.125)), (3, np.float32(0.25))):
        got = run(Q, np.int64(left), True, 0.0, scale)
        assert torch.equal(got, ft.attention(Q, Q, Q, window=(left, None), causal=True, scale=float(scale)))
    run(Q, 2, np.bool_(True), np.float32(0))
    with pytest.raises(RuntimeError, match="causal was 1 when torch.compile traced the call, and is another now"):
        run(Q, 2, np.bool_(False), np.float32(0))
    with pytest.raises(RuntimeError, match="dropout was 0.0 when torch.compile traced the call"):
        run(Q, 2, np.bool_(True), np.float32(0.5))


def test_what_is_no_number() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"scale": np.ones(2)}, "scale must be a number"),
        ({"causal": np.float32(1)}, "causal must be True or False"),
        ({"window": (np.float32(1), 0)}, r"window\[0\] must be a whole number"),
        ({"causal": 2}, "causal = 2: it must be True or False"),
    ]
    for options, words in cases:
        with pytest.raises(Exception, match=words):
            compiled(lambda q: ft.attention(q, q, q, **options), "eager")(Q)
    with pytest.raises(falchion.Invalid, match=r"scale = 0 would"):
        ft.attention(Q, Q, Q, scale=np.float32(0))
