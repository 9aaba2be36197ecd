"""FlashAttention-3's functions with the signatures of its flash_attn_interface, by Falchion.

num_splits, pack_gqa and sm_margin say how FlashAttention-3 schedules its work; the engine decides
that itself, so they make no difference here. deterministic makes none either: gradients always have
the same bits. qv and attention_chunk are refused. q, k and v may be of float8_e4m3fn, with q_descale, k_descale and
v_descale, (b, h_k) in float32, and out is then bfloat16. Over a cache of float8_e4m3fn q is of another type, without
q_descale. s_aux, the attention sinks (h) or (b, h) of its forms in vLLM and in transformers' kernels, goes by its
name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from falchion import Invalid, Unsupported
from falchion._names import own_names
from falchion.torch._options import exact_scale, known_whole

from . import _bytes
from ._bounds import same_device
from ._call import dense, packed, parts_of, starts_of, truth
from ._kvcache import Cache

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]


@own_names
def flash_attn_qkvpacked_func(
    qkv: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """qkv is (b, s, 3, h, d), or (b, s, h_q + 2 h_k, d) with num_heads_q = h_q."""
    _refuse_chunk(attention_chunk)
    if qkv.dim() == 5:
        q, k, v = parts_of("qkv", qkv, 3)
    elif num_heads_q is None:
        raise Invalid("qkv has four axes: num_heads_q must say how many of its heads are q's")
    else:
        num_heads_q = known_whole("num_heads_q", num_heads_q)
        shared = (qkv.shape[2] - num_heads_q) // 2
        if not (num_heads_q > 0 and shared > 0 and num_heads_q + 2 * shared == qkv.shape[2]):
            heads = f"num_heads_q = {num_heads_q} of {qkv.shape[2]} heads of qkv"
            raise Invalid(f"{heads}: what is left is not two equal numbers of heads")
        q, k, v = torch.split(qkv, [num_heads_q, shared, shared], dim=2)
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    return _dense(q, k, v, descales, softmax_scale, causal, window_size, softcap, return_attn_probs)


@own_names
def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    s_aux: Tensor | None = None,
) -> Any:
    """q (b, s_q, h, d), k and v (b, s_k, h_k, d). Returns out, or (out, softmax_lse). Of float8_e4m3fn
    numbers of q stand for q * q_descale, and likewise those of k and v; there are no gradients."""
    _refuse(qv=qv)
    _refuse_chunk(attention_chunk)
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    return _dense(q, k, v, descales, softmax_scale, causal, window_size, softcap, return_attn_probs, s_aux)


@own_names
def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    s_aux: Tensor | None = None,
) -> Any:
    """Packed sequences, of which seqused_q and seqused_k rows count. Rows past them are 0. Of
    float8_e4m3fn as in flash_attn_func; where sequences have numbers of V of their own, out is rounded
    to bfloat16 once more."""
    _refuse(qv=qv)
    _refuse_chunk(attention_chunk)
    options: dict[str, Any] = {
        "softmax_scale": softmax_scale,
        "causal": causal,
        "window_size": window_size,
        "softcap": softcap,
        "s_aux": s_aux,
        "return_attn_probs": return_attn_probs,
    }
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    if _bytes.has_bytes(q, **descales):
        sequences = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
        starts = starts_of(q, *sequences, seqused_q, seqused_k)
        return _bytes.attend(q, k, v, descales, starts, **options)
    found = packed(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        **options,
    )
    return found if isinstance(found, Tensor) else found[:2]


@own_names
def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    qv: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    *,
    s_aux: Tensor | None = None,
) -> Any:
    """As FlashAttention-2's, whose block_table is page_table here. q may be packed by cu_seqlens_q,
    and k and v by cu_seqlens_k_new. Caches may be of float8_e4m3fn under q, k and v of another type:
    numbers of k_cache stand for k_cache * k_descale, (b, h_k) in float32."""
    _refuse(qv=qv, q_descale=q_descale)
    _refuse_chunk(attention_chunk)
    q, softmax_scale = exact_scale(q, softmax_scale)
    starts = cu_seqlens_q, cu_seqlens_k_new, max_seqlen_q
    caches = k_cache, v_cache
    descales = {"k_descale": k_descale, "v_descale": v_descale}
    cache = Cache(q, caches, ("page_table", page_table), cache_batch_idx, *starts, descales)
    rotary = rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens
    options = {
        "scale": softmax_scale,
        "softcap": softcap,
        "sinks": None if s_aux is None else s_aux.float(),
        "return_lse": truth("return_softmax_lse", return_softmax_lse),
    }
    return cache.run(
        q, (k, v), cache_seqlens, cache_leftpad, rotary, causal, window_size, options, as_v3=True
    )


@own_names
def flash_attn_combine(
    out_partial: Tensor,
    lse_partial: Tensor,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Results over disjoint sets of keys as one: (splits, b, s, h, d) in float32, float16 or bfloat16,
    and their LSEs (splits, b, s, h); without the axis b of packed tensors. Returns out (b, s, h, d)
    and the LSE (b, s, h) in float32. By torch.

    A part whose LSE is -inf has no keys. It may be unwritten, so nothing of it is taken, not even a
    NaN; without any part out is 0 and the LSE -inf. Where an LSE is NaN, so is the result."""
    _check_parts(out_partial, lse_partial, out, out_dtype)
    lse_partial = lse_partial.float()
    largest = lse_partial.amax(0)
    weight = torch.exp(lse_partial - torch.where(largest.isinf(), 0.0, largest))
    total = weight.sum(0)
    share = torch.where(weight == 0, 0.0, weight / total)[..., None]
    found = torch.where(share == 0, 0.0, share * out_partial.float()).sum(0)
    lse = total.log() + torch.where(largest.isinf(), 0.0, largest)
    if out is not None:
        return out.copy_(found), lse
    return found.to(out_dtype or out_partial.dtype), lse


_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def _check_parts(
    parts: Tensor, lse: Tensor, out: Tensor | None, out_dtype: torch.dtype | None
) -> None:
    if parts.dim() not in (4, 5) or parts.shape[0] == 0:
        raise Invalid(
            f"out_partial has the shape {tuple(parts.shape)}; it is (splits, b, s, h, d) or "
            "(splits, total, h, d), with one part at least"
        )
    same_device(parts.device, lse_partial=lse, out=out)
    shapes = ("lse_partial", lse, parts.shape[:-1]), ("out", out, parts.shape[1:])
    for name, x, shape in shapes:
        if x is not None and x.shape != shape:
            raise Invalid(f"{name} has the shape {tuple(x.shape)}; it must be {tuple(shape)}")
    types = ("out_partial", parts.dtype), ("lse_partial", lse.dtype), ("out_dtype", out_dtype)
    for name, dtype in types:
        if dtype is not None and dtype not in _TYPES:
            raise Invalid(f"{name}: {dtype} is not one of float32, float16 and bfloat16")
    if out is not None and out_dtype not in (None, out.dtype):
        raise Invalid(f"out is of {out.dtype}, but out_dtype = {out_dtype}")


def get_scheduler_metadata(*arguments: Any, **options: Any) -> None:
    """FlashAttention-3 plans its schedule with it. The engine's plans are its own: None."""


def _dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    descales: dict[str, Tensor | None],
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    return_attn_probs: bool,
    s_aux: Tensor | None = None,
) -> Any:
    options: dict[str, Any] = {
        "softmax_scale": softmax_scale,
        "causal": causal,
        "window_size": window_size,
        "softcap": softcap,
        "s_aux": s_aux,
        "return_attn_probs": return_attn_probs,
    }
    if _bytes.has_bytes(q, **descales):
        return _bytes.attend(q, k, v, descales, {}, **options)
    found = dense(q, k, v, **options)
    return found if isinstance(found, Tensor) else found[:2]


def _refuse(**given: Tensor | None) -> None:
    for name, x in given.items():
        if x is not None:
            raise Unsupported(f"{name} is given: falchion does not offer it")


def _refuse_chunk(attention_chunk: int) -> None:
    if known_whole("attention_chunk", attention_chunk) != 0:
        raise Unsupported(f"attention_chunk = {attention_chunk}: falchion offers 0 only")
