"""attention() and varlen(): straight to C where nothing but the result is asked for, else through
autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

import falchion
from falchion import Invalid

from ._function import attention_with_gradients
from ._options import (
    Causal,
    Options,
    Window,
    autocast,
    band_of,
    draw,
    every_key,
    four_axes,
    slopes_of,
)

_TYPES = (Tensor, torch.nn.Parameter)
_dispatch_keys = torch._C._dispatch_keys
_function_modes = torch._C._len_torch_function_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_any_autocast = torch._C._is_any_autocast_enabled


def _key_sets() -> set[int]:
    """The dispatch keys of ordinary tensors: no functorch wrapper, no lazy negation, not fake, not
    sparse."""
    with torch.inference_mode():
        inference = torch.empty(0)
    ordinary = torch.empty(0)
    found = set()
    for x in (inference, ordinary):
        keys = _dispatch_keys(x)
        found.add(keys.raw_repr())
        cuda = keys.remove(torch._C.DispatchKey.CPU)
        if keys.has(torch._C.DispatchKey.AutogradCPU):
            cuda = cuda.remove(torch._C.DispatchKey.AutogradCPU).add(
                torch._C.DispatchKey.AutogradCUDA
            )
        found.add(cuda.add(torch._C.DispatchKey.CUDA).raw_repr())
    return found


_PLAIN = _key_sets()


def straight(*tensors: Tensor | None) -> bool:
    """Whether a call may go straight to C: nobody needs a gradient, all are exactly Tensor or
    Parameter with ordinary keys, and no mode, transform, autocast or compiler has to see the
    call."""
    if torch.compiler.is_compiling():
        return False
    if _function_modes() or _dispatch_modes() or _any_autocast() or forward_ad._current_level >= 0:
        return False
    recorded = torch.is_grad_enabled()
    for x in tensors:
        if x is None:
            continue
        if (
            type(x) not in _TYPES
            or _dispatch_keys(x).raw_repr() not in _PLAIN
            or (recorded and x.requires_grad)
        ):
            return False
    return True


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: Causal = False,
    window: Window = None,
    align: str | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    used_q: Tensor | None = None,
    used_k: Tensor | None = None,
    first_k: Tensor | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    any_order: bool = False,
    backend: str = "best",
) -> Tensor | tuple[Tensor, Tensor]:
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
    if dropout == 0.0 and used_q is None and straight(q, k, v, bias, alibi, mask, used_k, first_k):
        if bias is not None or mask is not None:
            s_k = k.shape[1 if layout == "bshd" else 2]
            bias, mask = every_key(bias, s_k), every_key(mask, s_k)
        return falchion.attention(
            q,
            k,
            v,
            causal=causal,
            window=window,
            align=align,
            scale=scale,
            softcap=softcap,
            alibi=alibi,
            bias=bias,
            mask=mask,
            used_k=used_k,
            first_k=first_k,
            layout=layout,
            return_lse=return_lse,
            backend=backend,
        )
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise Invalid(f"q, k and v have {q.dim()}, {k.dim()} and {v.dim()} axes; each has 4")
    if layout not in ("bshd", "bhsd"):
        raise Invalid(f"layout = {layout!r} is neither 'bshd' nor 'bhsd'")
    q, k, v, bias = autocast(q, k, v, bias)  # type: ignore[assignment]
    rows = 1 if layout == "bshd" else 2
    band = band_of(causal, window, align, q.shape[rows], k.shape[rows])
    options = Options(0, 0, *band, scale, softcap, dropout, layout, backend)
    lengths = (used_q, used_k, first_k, None, None)
    scores = (four_axes("bias", bias), slopes_of(alibi), four_axes("mask", mask))
    o, lse = attention_with_gradients(
        (q, k, v, *scores, *lengths, draw(dropout, q)), options, any_order
    )
    return (o, lse) if return_lse else o


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
    window: Window = None,
    align: str | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: Tensor | None = None,
    dropout: float = 0.0,
    used_q: Tensor | None = None,
    used_k: Tensor | None = None,
    first_k: Tensor | None = None,
    return_lse: bool = False,
    any_order: bool = False,
    backend: str = "best",
) -> Tensor | tuple[Tensor, Tensor]:
    """attention() over packed sequences: q is (total_q, h_q, d_qk), k and v are (total_k, h_k, d),
    and sequence n has the rows cu_seqlens[n] to cu_seqlens[n + 1] (int32, on the tensors' device).
    Without cu_seqlens_k both are the same.

    max_q and max_k are the longest lengths. Without them they are read from cu_seqlens, which waits
    for the device; under torch.compile they must be given. The LSE is (h_q, total_q). Rows of no
    sequence are 0."""
    if cu_seqlens_k is None:
        cu_seqlens_k, max_k = cu_seqlens_q, max_q if max_k is None else max_k
    max_q = _longest("max_q", max_q, cu_seqlens_q)
    max_k = (
        max_q
        if cu_seqlens_k is cu_seqlens_q and max_k is None
        else _longest("max_k", max_k, cu_seqlens_k)
    )
    q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    band = band_of(causal, window, align, max_q, max_k)
    options = Options(max_q, max_k, *band, scale, softcap, dropout, "bshd", backend)
    scores = (None, slopes_of(alibi), None)
    lengths = (used_q, used_k, first_k, cu_seqlens_q, cu_seqlens_k)
    tensors: tuple[Any, ...] = (q, k, v, *scores, *lengths, draw(dropout, q))
    if straight(*tensors):
        o, lse = torch.ops.falchion.attention(*tensors, *options)
    else:
        o, lse = attention_with_gradients(tensors, options, any_order)
    return (o, lse) if return_lse else o


def _longest(name: str, given: int | None, cu_seqlens: Tensor) -> int:
    if given is not None:
        return given
    if torch.compiler.is_compiling():
        raise Invalid(
            f"varlen under torch.compile needs {name}: it cannot be read from cu_seqlens there"
        )
    return int(cu_seqlens.diff().max()) if cu_seqlens.numel() > 1 else 0
