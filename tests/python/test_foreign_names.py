"""Keywords of other libraries: the TypeError says what the argument is called here, in each function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import falchion

X = np.ones((1, 2, 1, 8), np.float32)
Y = np.ones((2, 8), np.float32)
CORE: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, str]]] = [
    (
        falchion.attention,
        (X, X, X),
        {
            "softmax_scale": "scale",
            "sm_scale": "scale",
            "scaling": "scale",
            "is_causal": "causal",
            "attn_mask": "mask",
            "attention_mask": "mask",
            "attn_bias": "bias",
            "dropout_p": "dropout",
            "p": "dropout",
            "logits_soft_cap": "softcap",
            "query_seq_lengths": "used_q",
            "key_value_seq_lengths": "used_k",
            "seqused_k": "used_k",
            "window_size": "window",
            "local_window_size": "window",
            "alibi_slopes": "alibi",
            "implementation": "backend",
            "return_softmax_lse": "return_lse",
            "query": "q",
        },
    ),
    (
        falchion.attention_backward,
        (X,) * 5 + (X[..., 0],),
        {"softmax_scale": "scale", "dout": "grad_o", "softmax_lse": "lse"},
    ),
    (
        falchion.varlen,
        (X[0], X[0], X[0], np.array([0, 2], np.int32)),
        {"max_seqlen_q": "max_q", "max_seqlen_k": "max_k", "cu_seqlens_kv": "cu_seqlens_k", "softmax_scale": "scale"},
    ),
    (
        falchion.linear_attention,
        (X, X, X),
        {"g": "decay", "h0": "initial_state", "output_final_state": "return_state", "normalize": "normalise"},
    ),
    (falchion.gemm, (Y, Y), {"epilogue": "activation", "output_dtype": "out_dtype", "C": "c"}),
    (falchion.layer_norm, (Y,), {"epsilon": "eps", "gamma": "weight", "beta": "bias"}),
    (falchion.rms_norm, (Y,), {"variance_epsilon": "eps", "hidden_states": "x"}),
    (falchion.Plan, (X,), {"softmax_scale": "scale", "is_causal": "causal"}),
    (lambda *a, **k: falchion.explain(*a, dtype="float32", **k), ((1, 2, 1, 8),), {"softmax_scale": "scale"}),
    (falchion.verify, (), {"num_threads": "threads"}),
    (falchion.bench, (), {"num_threads": "threads", "implementation": "backend"}),
]


def check(function: Callable[..., Any], arguments: tuple[Any, ...], names: dict[str, str]) -> None:
    for foreign, own in names.items():
        with pytest.raises(TypeError, match=rf"has no argument '{foreign}': here it is {own}="):
            function(*arguments, **{foreign: None})
    with pytest.raises(TypeError, match=r"\(\) has no argument 'nobodys'$"):
        function(*arguments, nobodys=None)


@pytest.mark.parametrize("case", CORE, ids=lambda case: getattr(case[0], "__name__", "Plan"))
def test_names(case: Any) -> None:
    check(*case)


def test_names_that_need_nothing() -> None:
    with pytest.raises(
        TypeError, match="has no argument 'enable_gqa', and needs none: q may have a multiple of the heads"
    ):
        falchion.attention(X, X, X, enable_gqa=True)
    with pytest.raises(TypeError, match="has no argument 'normalized_shape', and needs none"):
        falchion.layer_norm(Y, normalized_shape=(8,))
    with pytest.raises(TypeError, match=r"""here it is causal= \(PyTorch's and JAX's are causal="top_left"\)"""):
        falchion.attention(X, X, X, is_causal=True)


def test_names_in_torch() -> None:
    torch = pytest.importorskip("torch")
    import falchion.torch as ft
    from falchion.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, v3

    x = torch.from_numpy(X)
    starts = torch.tensor([0, 2], dtype=torch.int32)
    check(ft.attention, (x, x, x), {"softmax_scale": "scale", "is_causal": "causal", "dropout_p": "dropout"})
    check(ft.varlen, (x[0], x[0], x[0], starts), {"max_seqlen_q": "max_q", "softmax_scale": "scale"})
    check(ft.linear_attention, (x, x, x), {"g": "decay"})
    check(
        ft.sdpa,
        (x, x, x),
        {"softmax_scale": "scale", "causal": "is_causal", "mask": "attn_mask", "dropout": "dropout_p"},
    )
    names = {"scale": "softmax_scale", "is_causal": "causal", "window": "window_size", "alibi": "alibi_slopes"}
    check(flash_attn_func, (x, x, x), {**names, "dropout": "dropout_p"})
    check(flash_attn_varlen_func, (x[0], x[0], x[0], starts, starts, 2, 2), names)
    check(flash_attn_with_kvcache, (x, x, x), names | {"used_k": "cache_seqlens"})
    check(v3.flash_attn_func, (x, x, x), {"scale": "softmax_scale"})
    assert "dropout_p" in inspect.signature(flash_attn_func).parameters  # the signature is still FlashAttention's
    torch._dynamo.reset()
    run = torch.compile(lambda q: flash_attn_func(q, q, q, causal=True), fullgraph=True, backend="eager")
    assert torch.equal(run(x), flash_attn_func(x, x, x, causal=True))


def test_names_in_jax() -> None:
    pytest.importorskip("jax")
    import falchion.jax as fj

    check(fj.attention, (X, X, X), {"softmax_scale": "scale", "is_causal": "causal", "query_seq_lengths": "used_q"})
    check(fj.varlen, (X[0], X[0], X[0], np.array([0, 2])), {"max_seqlen_q": "max_q"})
    check(fj.linear_attention, (X, X, X), {"g": "decay"})
    check(fj.gemm, (Y, Y), {"preferred_element_type": "out_dtype"})
    check(fj.rms_norm, (Y,), {"epsilon": "eps"})
    check(fj.layer_norm, (Y,), {"scale": "weight"})
    check(
        fj.dot_product_attention,
        (X, X, X),
        {
            "causal": "is_causal",
            "window": "local_window_size",
            "used_k": "key_value_seq_lengths",
            "softmax_scale": "scale",
        },
    )
