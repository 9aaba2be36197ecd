"""FlashAttention-3's attention of float8_e4m3fn: q, k and v of 8 bits with q_descale, k_descale and v_descale, (b, h_k) in
float32, one number for each sequence and K/V head. The engine's scales belong to rows of q, to keys and to heads of v."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import falchion.torch as ft
from falchion import Invalid, Unsupported
from falchion.torch._eager import is_recorded
from falchion.torch._ops import BYTES
from falchion.torch._options import is_traced, last_contiguous, number

from ._bounds import same_device
from ._call import band, places, truth

_KEYS = 128  # how many keys share a scale where packed sequences have scales of their own


def has_bytes(q: Tensor, **descales: Tensor | None) -> bool:
    """Whether the call is one of 8 bits. Descales of other numbers are refused."""
    if q.dtype in BYTES:
        return True
    for name, x in descales.items():
        if x is not None:
            raise Invalid(f"{name} is given, and q is of {q.dtype}; q of {BYTES[0]} has it")
    return False


class _ForwardAlone(torch.autograd.Function):
    """O as it is. FlashAttention-3 records it too, and has no gradient of 8 bits either."""

    @staticmethod
    def forward(ctx: Any, o: Tensor, *inputs: Tensor) -> Tensor:
        return o.view_as(o)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise Unsupported("attention of 8 bits has no gradients: its backward pass is not built")


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    descales: dict[str, Tensor | None],
    starts: dict[str, Any],
    *,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    s_aux: Tensor | None,
    return_attn_probs: bool,
    **others: Any,
) -> Any:
    """O in bfloat16, or (O, LSE). `starts` is empty or has the arguments of falchion.torch.varlen, and `others` are options
    of both."""
    recorded = tuple(x for x in (q, k, v) if is_recorded(x))
    q, k, v = (last_contiguous(x.detach()) for x in (q, k, v))
    wants_lse = truth("return_attn_probs", return_attn_probs)
    options: dict[str, Any] = {
        **others,
        "sinks": None if s_aux is None else s_aux.float(),
        "return_lse": wants_lse,
        **band(causal, window_size),
    }
    scales, factor = _scales(q, k, descales, starts)
    scale = number("scale", softmax_scale)
    if scale is not None and not is_traced(softmax_scale) and scale == 0.0:
        scale, scales["q_scale"] = None, q.new_zeros((1, 1, 1), dtype=torch.float32)
    run: Any = ft.varlen if starts else ft.attention
    found = run(q, k, v, scale=scale, **starts, **scales, **options)
    o, lse = found if wants_lse else (found, None)
    if factor is not None:
        o = (o * factor[..., None]).to(o.dtype)
    if recorded:
        o = _ForwardAlone.apply(o, *recorded)
    return (o, lse) if wants_lse else o


def _scales(
    q: Tensor, k: Tensor, descales: dict[str, Tensor | None], starts: dict[str, Any]
) -> tuple[dict[str, Any], Tensor | None]:
    """The engine's scales, and what rows of O are multiplied by where sequences that are packed have scales of V of
    their own: the engine has one of V for all of them."""
    h_q, h_k = q.shape[-2], k.shape[-2]
    if h_k == 0 or h_q % h_k != 0:
        raise Invalid(f"h_q = {h_q} is not a multiple of h_k = {h_k}")
    b = len(starts["cu_seqlens_q"]) - 1 if starts else q.shape[0]
    given = {name[0]: x for name, x in descales.items() if x is not None}
    for name, x in descales.items():
        _check(name, x, q.device, (b, h_k))
    own = {of for of, x in given.items() if starts and b > 1 and x.stride(0) != 0}
    found: dict[str, Any] = {}
    factor = None
    for of, x in given.items():
        if of not in own:
            x = x[:1] if starts else x
            found[f"{of}_scale"] = (_of_heads(x, h_q) if of == "q" else x)[:, None]
    if own - {"k"}:
        sequence = places(starts["cu_seqlens_q"], q.shape[0])[0]
        if "q" in own:
            found["q_scale"] = _of_heads(given["q"], h_q)[sequence]
        if "v" in own:
            factor = _of_heads(given["v"], h_q)[sequence]
    if "k" in own:
        found.update(k_scale=_of_blocks(given["k"], starts["cu_seqlens_k"], k.shape[0]))
        found["k_scale_rows"] = _KEYS
    return found, factor


def _check(name: str, x: Tensor | None, device: torch.device, shape: tuple[int, int]) -> None:
    if x is None:
        return
    same_device(device, **{name: x})
    if tuple(x.shape) != shape or x.dtype != torch.float32:
        raise Invalid(f"{name} is {tuple(x.shape)} of {x.dtype}; it must be {shape}, (b, h_k), and torch.float32")


def _of_heads(x: Tensor, h_q: int) -> Tensor:
    """(b, h_k) as (b, h_q): query heads of a group have the number of their K/V head. A view where strides can say it."""
    b, h_k = x.shape
    return x[:, :, None].expand(b, h_k, h_q // h_k).reshape(b, h_q)


def _of_blocks(x: Tensor, starts: Tensor, total: int) -> Tensor:
    """(b, h_k) as (total // _KEYS + b, h_k): a row for each block of keys, those of sequence i from
    starts[i] // _KEYS + i on."""
    b = x.shape[0]
    first = starts[:-1].long() // _KEYS + torch.arange(b, device=x.device)
    block = torch.arange(total // _KEYS + b, device=x.device)
    return x[(torch.searchsorted(first, block, right=True) - 1).clamp(min=0)]
