"""attention() and varlen(): straight to C where nothing but the result is asked for, else through
autograd."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Never

import torch
from torch import Tensor

from falchion import Invalid, _fal
from falchion._names import refuse

from ._eager import are_ordinary, is_recorded, record, straight
from ._function import attention_with_gradients
from ._nested import nested_call, refuse_beside_nested, refuse_nested
from ._ops import operator_arguments
from ._options import (
    Align,
    Backend,
    Causal,
    Layout,
    Window,
    autocast,
    causal_of,
    draw,
    drops_of,
    flag,
    four_axes,
    lengths,
    longest,
    number,
    slopes_of,
)

_straight = _fal._torch_attention
_is_compiling = torch.compiler.is_compiling


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    used_q: Tensor | None = None,
    used_k: Tensor | None = None,
    first_k: Tensor | None = None,
    layout: Layout = "bshd",
    return_lse: bool = False,
    any_order: bool = False,
    backend: Backend = "best",
    **foreign: Never,
) -> Any:
    """Softmax attention with gradients in q, k, v, bias and alibi. The options are those of
    falchion.attention.

    q is (b, s_q, h_q, d_qk), k (b, s_k, h_k, d_qk), v (b, s_k, h_k, d_v) in float32, float16 or
    bfloat16; with layout="bhsd" they are (b, h, s, d), which is the order of torch's own attention.
    The result lies as q does. With return_lse=True the second result is the LSE, (b, h_q, s_q) in
    float32, and it is differentiable too.

    dropout draws seed and offset from torch's generator of q's device, so torch.manual_seed repeats
    a run. The backward pass gives the same bits each time; any_order=True lets sums of the gradient
    of q be made in any order, which is faster on GPUs, unless torch.use_deterministic_algorithms is
    on. Rows past used_q are 0 in the result.

    Raises falchion.Invalid, falchion.Unsupported (also for second derivatives and for forward-mode
    AD), falchion.Device and falchion.Workspace, each with the argument, its value and the limit."""
    if foreign:
        refuse(attention, foreign)
    ordinary = False
    if not (used_q is used_k is first_k is None):
        same = used_q is used_k  # the same tensor says that they do not differ
        used_q, first_k = lengths("used_q", used_q, q), lengths("first_k", first_k, q)
        used_k = used_q if same else lengths("used_k", used_k, q)
    if not _is_compiling() and (dropout if type(dropout) is float else drops_of(dropout)[1]) == 0.0:
        found = _straight(
            q,
            k,
            v,
            alibi=alibi,
            bias=bias,
            mask=mask,
            used_q=used_q,
            used_k=used_k,
            first_k=first_k,
            causal=causal,
            window=window,
            align=align,
            scale=scale,
            softcap=softcap,
            layout=layout,
            backend=backend,
            return_lse=return_lse,
        )
        ordinary = found is NotImplemented
        if not (ordinary or found is None):
            return found
    scale, softcap = number("scale", scale), number("softcap", softcap)
    drops, dropout = drops_of(dropout)
    causal, return_lse = causal_of(causal), flag("return_lse", return_lse)
    if q.is_nested or k.is_nested or v.is_nested:
        refused = ("bias", bias), ("mask", mask), ("used_q", used_q), ("used_k", used_k)
        refuse_beside_nested(*refused, ("first_k", first_k), ("return_lse", return_lse or None))
        (q, k, v), sequences, again = nested_call(q, k, v, layout)
        o = varlen(
            q,
            k,
            v,
            **sequences,
            causal=causal,
            window=window,
            align=align,
            scale=scale,
            softcap=softcap,
            alibi=alibi,
            dropout=dropout,
            any_order=any_order,
            backend=backend,
        )
        return again(o)
    options: dict[str, Any] = {"causal": causal} if causal is not False else {}
    # C gets only what is not its default, because each keyword takes time.
    if window is not None or align is not None:
        options.update(window=window, align=align)
    if scale is not None or type(softcap) is not float or softcap != 0.0:
        options.update(scale=scale, softcap=softcap)
    if layout != "bshd" or backend != "best":
        options.update(layout=layout, backend=backend)
    any_order = flag("any_order", any_order) and not torch.are_deterministic_algorithms_enabled()
    if not ordinary:
        q, k, v, bias = autocast(q, k, v, bias)  # type: ignore[assignment]
    tensors: dict[str, Tensor] = {}
    if not (bias is alibi is mask is used_q is used_k is first_k is None):
        bias, mask, alibi = four_axes("bias", bias), four_axes("mask", mask), slopes_of(alibi)
        given = ("mask", mask), ("used_q", used_q), ("used_k", used_k), ("first_k", first_k)
        tensors.update((name, x) for name, x in given if x is not None)
    if drops:
        tensors["seed"] = draw(q)
        options["dropout"] = dropout
    if ordinary:
        return record(q, k, v, bias, alibi, (tensors, options, any_order, return_lse))
    if not _is_compiling():
        ordinary = are_ordinary(q, k, v, bias, alibi, *tensors.values())
    return _run(q, k, v, bias, alibi, tensors, options, any_order, ordinary, return_lse)


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    alibi: Tensor | None,
    tensors: dict[str, Tensor],
    options: dict[str, Any],
    any_order: bool,
    ordinary: bool,
    return_lse: bool,
) -> Any:
    """One of the three ways: through the operators, through autograd alone, straight to C."""
    if not ordinary:
        inputs, chosen = operator_arguments(q, k, v, bias, alibi, tensors, options)
        o, lse = attention_with_gradients(inputs, chosen, any_order)
        return (o, lse) if return_lse else o
    if is_recorded(q, k, v, bias, alibi):
        return record(q, k, v, bias, alibi, (tensors, options, any_order, return_lse))
    return straight(q, k, v, bias, alibi, tensors, options, return_lse)


def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    causal: Causal = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: Tensor | None = None,
    dropout: float = 0.0,
    used_q: Tensor | None = None,
    used_k: Tensor | None = None,
    first_k: Tensor | None = None,
    return_lse: bool = False,
    any_order: bool = False,
    backend: Backend = "best",
    **foreign: Never,
) -> Any:
    """attention() over packed sequences: q is (total_q, h_q, d_qk), k and v are (total_k, h_k, d),
    and sequence n has the rows cu_seqlens[n] to cu_seqlens[n + 1] (int32, on the tensors' device).
    Without cu_seqlens_k both are the same.

    max_q and max_k are the longest lengths. Without them they are read from cu_seqlens, which waits
    for the device; under torch.compile they must be given. The LSE is (h_q, total_q). Rows of no
    sequence are 0."""
    if foreign:
        refuse(varlen, foreign)
    refuse_nested("varlen", q, k, v)
    causal, (drops, dropout) = causal_of(causal), drops_of(dropout)
    cu_seqlens_k = None if cu_seqlens_k is cu_seqlens_q else lengths("cu_seqlens_k", cu_seqlens_k, q)
    cu_seqlens_q = lengths("cu_seqlens_q", cu_seqlens_q, q)
    if cu_seqlens_k is None:
        if align is None and not isinstance(causal, str):
            align = "bottom_right"
    elif align is None and (causal is True or (causal is False and window is not None)):
        asked = "causal = True" if causal is True else f"window = {window}"
        raise Invalid(
            f"{asked}, and cu_seqlens_k is another tensor than cu_seqlens_q, so that lengths may "
            "differ: say which corner is meant, 'bottom_right' or 'top_left'"
        )
    if cu_seqlens_k is None:
        cu_seqlens_k, max_k = cu_seqlens_q, max_q if max_k is None else max_k
    max_q = longest("max_q", max_q, cu_seqlens_q)
    max_k = (
        max_q
        if cu_seqlens_k is cu_seqlens_q and max_k is None
        else longest("max_k", max_k, cu_seqlens_k)
    )
    q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    alibi = slopes_of(alibi)
    given = (
        ("cu_seqlens_q", cu_seqlens_q),
        ("cu_seqlens_k", cu_seqlens_k),
        ("used_q", lengths("used_q", used_q, q)),
        ("used_k", lengths("used_k", used_k, q)),
        ("first_k", lengths("first_k", first_k, q)),
        ("seed", draw(q) if drops else None),
    )
    tensors = {name: x for name, x in given if x is not None}
    options: dict[str, Any] = {
        "max_q": max_q,
        "max_k": max_k,
        "causal": causal,
        "window": window,
        "align": align,
        "scale": number("scale", scale),
        "softcap": number("softcap", softcap),
        "dropout": dropout,
        "backend": backend,
    }
    return_lse = flag("return_lse", return_lse)
    any_order = flag("any_order", any_order) and not torch.are_deterministic_algorithms_enabled()
    ordinary = not _is_compiling() and are_ordinary(q, k, v, alibi, *tensors.values())
    return _run(q, k, v, None, alibi, tensors, options, any_order, ordinary, return_lse)
