"""torch.nn.functional.scaled_dot_product_attention, with its signature and its meaning."""

# mypy: allow-untyped-calls
from __future__ import annotations

import math
from typing import Never

import torch
from torch import Tensor

from falchion import Invalid, Unsupported
from falchion._names import refuse

from ._attention import attention
from ._options import drops_of, exact_scale, flag, last_contiguous


class Refused(Invalid, RuntimeError):
    """What torch's function refuses by a RuntimeError. Code around that one goes on catching it."""


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    **foreign: Never,
) -> Tensor:
    """What torch.nn.functional.scaled_dot_product_attention computes, by Falchion.

    query is (..., h_q, s_q, d_qk), key (..., h_k, s_k, d_qk) and value (..., h_k, s_k, d_v).
    is_causal is PyTorch's: query i sees the keys up to i (top-left). A bool mask says which keys
    count, a float mask is added to the scores and may need a gradient; both are broadcast to (...,
    h_q, s_q, s_k). enable_gqa lets h_q be a multiple of h_k and of value's heads. A row that sees
    no key is 0. Raises falchion.Invalid and falchion.Unsupported (float64, a head dim above 256), both
    of which are a RuntimeError here, as torch's own."""
    if foreign:
        refuse(sdpa, foreign)
    try:
        return _sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except Invalid as why:
        refused = Refused(*why.args)
        for note in getattr(why, "__notes__", ()):
            refused.add_note(note)
        raise refused from None


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    is_causal, enable_gqa = flag("is_causal", is_causal), flag("enable_gqa", enable_gqa)
    query, scale = exact_scale(query, scale)
    if is_causal and attn_mask is not None:
        raise Invalid(
            "is_causal = True and attn_mask are both given; "
            "the mask would have to hold the causal part itself"
        )
    drops, dropout_p = drops_of(dropout_p)
    if query.is_nested or key.is_nested or value.is_nested:
        if attn_mask is not None:
            raise Unsupported("attn_mask is given with nested tensors: PyTorch takes none either")
        packed: Tensor = attention(
            query,
            key,
            value,
            causal="top_left" if is_causal else False,
            scale=scale,
            dropout=dropout_p,
            layout="bhsd",
        )
        return packed
    if attn_mask is None and not drops and _is_usual(query, key, value, enable_gqa):
        short: Tensor = attention(
            query,
            key,
            value,
            causal="top_left" if is_causal else False,
            scale=scale,
            layout="bhsd",
        )
        return short
    q, k, v, mask = query, key, value, attn_mask
    rank = max(query.dim(), key.dim(), value.dim())
    if mask is not None or not _is_usual(q, k, v, enable_gqa):
        if min(query.dim(), key.dim(), value.dim()) < 2:
            axes = [x.dim() for x in (query, key, value)]
            raise Invalid(f"query, key and value have {axes} axes; each needs at least 2")
        batch, (q, k, v, mask) = _four_axes(query, key, value, attn_mask, enable_gqa)
    additive = mask is not None and mask.dtype is not torch.bool
    o = attention(
        q,
        k,
        v,
        causal="top_left" if is_causal else False,
        scale=scale,
        bias=mask if additive else None,
        mask=None if additive else mask,
        dropout=dropout_p,
        layout="bhsd",
    )
    assert isinstance(o, Tensor)
    if rank == 4:
        return o
    return o.reshape((*batch, *o.shape[-3:])[-rank:])


def _is_usual(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> bool:
    """Whether the tensors are what attention() takes as they are."""
    shape = q.shape
    if shape == k.shape == v.shape:
        return len(shape) == 4 and q.stride(3) == k.stride(3) == v.stride(3) == 1
    if not len(shape) == k.dim() == v.dim() == 4:
        return False
    (b, h, _, _), (b_k, h_k, _, _), (b_v, h_v, _, _) = q.shape, k.shape, v.shape
    if not (b == b_k == b_v and h_k == h_v):
        return False
    if h != h_k and not (enable_gqa and h_k and h % h_k == 0):
        return False
    return q.stride(3) == k.stride(3) == v.stride(3) == 1


def _four_axes(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, enable_gqa: bool
) -> tuple[tuple[int, ...], tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    """The axes of the result before those of the heads, and the tensors as (b, h, s, d), the mask
    with extents of 1 where it is shared."""
    tensors = [last_contiguous(x) for x in (query, key, value)]
    rank = max(4, *(x.dim() for x in tensors))
    q, k, v = (x[(None,) * (rank - x.dim())] for x in tensors)
    heads = q.shape[-3]
    if enable_gqa:
        for name, x in (("key", k), ("value", v)):
            if x.shape[-3] == 0 or heads % x.shape[-3]:
                raise Invalid(
                    f"enable_gqa: query has {heads} heads, which is no multiple of {name}'s "
                    f"{x.shape[-3]}"
                )
        # The engine takes as many of values as of keys, so that some may be there twice.
        both = math.lcm(k.shape[-3], v.shape[-3])
        k, v = (_repeated(x, both // x.shape[-3]) for x in (k, v))
    elif not (k.shape[-3] == v.shape[-3] == heads):
        heads = max(heads, k.shape[-3], v.shape[-3])
        counts = [x.shape[-3] for x in (q, k, v)]
        if any(count not in (1, heads) for count in counts):
            raise Invalid(
                f"query, key and value have {counts} heads; "
                "enable_gqa = True lets query have more than key"
            )
        q, k, v = (x.expand(*x.shape[:-3], heads, *x.shape[-2:]) for x in tensors)
    batch = tuple(q.shape[:-3])
    if not (batch == tuple(k.shape[:-3]) == tuple(v.shape[:-3])):
        leading = [tuple(x.shape[:-3]) for x in (q, k, v)]
        for extents in zip(*leading):
            if len({*extents} - {1}) > 1:
                raise Invalid(
                    f"query, key and value have the batches {leading}, which do not broadcast"
                )
        batch = tuple(torch.broadcast_shapes(*leading))
        q, k, v = (x.expand(*batch, *x.shape[-3:]) for x in (q, k, v))
    mask = _mask_of(mask, (*batch, q.shape[-3], q.shape[-2], k.shape[-2]), q.dtype)
    if len(batch) > 1:
        q, k, v = (x.flatten(0, len(batch) - 1) for x in (q, k, v))
        if mask is not None:
            mask = mask.expand(*batch, *mask.shape[-3:]).flatten(0, len(batch) - 1)
    return batch, (q, k, v, mask)


def _repeated(x: Tensor, times: int) -> Tensor:
    return x if times == 1 else x.repeat_interleave(times, dim=-3)


def _mask_of(mask: Tensor | None, scores: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    """The mask with the rank of the scores, in a type that the engine adds."""
    if mask is None:
        return None
    if mask.dtype is not torch.bool and not mask.is_floating_point():
        raise Invalid(
            f"attn_mask has the type {mask.dtype}; it is bool, float32 or query's type, {dtype}"
        )
    fits = all(extent in (1, s) for extent, s in zip(reversed(mask.shape), reversed(scores)))
    if mask.dim() > len(scores) or not fits:
        raise Invalid(
            f"attn_mask has the shape {tuple(mask.shape)}, which does not broadcast to {scores}"
        )
    mask = mask[(None,) * (len(scores) - mask.dim())]
    if mask.dtype in (torch.bool, torch.float32, dtype):
        return mask
    return mask.to(torch.float32)
