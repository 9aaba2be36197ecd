"""flash_attn_with_kvcache. Appending to the cache, rotary embeddings and cache_batch_idx are done
by torch before the engine runs, so they cost kernels of their own; pages are refused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import falchion.torch as ft
from falchion import Invalid, Unsupported
from falchion.torch._options import exact_scale, last_contiguous

from ._call import band
from .rotary import rotate


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """q (b, s_q, h, d) against caches (b_cache, s_cache, h_k, d), of which cache_seqlens keys
    count. k and v (b, s_new, h_k, d) are written into the caches first. num_splits is the engine's
    to choose. There are no gradients."""
    if block_table is not None:
        raise Unsupported("block_table is given: falchion has no paged K and V yet")
    if (k is None) != (v is None):
        raise Invalid("k and v are given together or not at all")
    if rotary_cos is not None and (k is None or cache_leftpad is not None):
        what = "without k" if k is None else "with cache_leftpad"
        raise Unsupported(f"rotary_cos is given {what}: falchion.flash_attn does not offer that")
    with torch.no_grad():
        return _run(
            q,
            k_cache,
            v_cache,
            k,
            v,
            (rotary_cos, rotary_sin, rotary_interleaved),
            _lengths(cache_seqlens, q, k_cache, k),
            cache_batch_idx,
            cache_leftpad,
            {**band(causal, window_size), "scale": exact_scale(softmax_scale), "softcap": softcap},
            alibi_slopes,
            return_softmax_lse,
        )


def _lengths(given: int | Tensor | None, q: Tensor, k_cache: Tensor, k: Tensor | None) -> Tensor:
    """(b) in int32: how many keys of the cache count before anything is appended."""
    if isinstance(given, Tensor):
        return given.int()
    if given is None:
        if k is not None:
            raise Invalid("k is given without cache_seqlens: nothing says where it belongs")
        given = k_cache.shape[1]
    return torch.full((q.shape[0],), given, dtype=torch.int32, device=q.device)


def _run(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    rotary: tuple[Tensor | None, Tensor | None, bool],
    lengths: Tensor,
    batch: Tensor | None,
    leftpad: Tensor | None,
    options: dict[str, Any],
    alibi_slopes: Tensor | None,
    return_softmax_lse: bool,
) -> Any:
    rows = batch.long() if batch is not None else torch.arange(q.shape[0], device=q.device)
    if k is not None and v is not None:
        new = torch.arange(k.shape[1], device=q.device)
        places = lengths[:, None] + new
        cos, sin, interleaved = rotary
        if cos is not None and sin is not None:
            k = rotate(k, cos, sin, places, interleaved)
            local = "window" in options
            own = torch.arange(q.shape[1], device=q.device) if local else torch.zeros_like(new[:1])
            q = rotate(q, cos, sin, lengths[:, None] + own, interleaved)
        k_cache[rows[:, None], places] = k.to(k_cache.dtype)
        v_cache[rows[:, None], places] = v.to(v_cache.dtype)
        lengths = lengths + k.shape[1]
    keys, values = (k_cache, v_cache) if batch is None else (k_cache[rows], v_cache[rows])
    return ft.attention(
        last_contiguous(q),
        last_contiguous(keys),
        last_contiguous(values),
        used_k=lengths,
        first_k=None if leftpad is None else leftpad.int(),
        alibi=None if alibi_slopes is None else alibi_slopes.float(),
        return_lse=return_softmax_lse,
        **options,
    )
