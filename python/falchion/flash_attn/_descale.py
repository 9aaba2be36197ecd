"""k_descale and v_descale of FlashAttention-3, one number for each sequence and head of a cache of 8 bits, as the
engine's scales, which belong to keys."""

from __future__ import annotations

import torch
from torch import Tensor

from falchion import Invalid

from ._bounds import same_device

BYTES = torch.float8_e4m3fn


def check_descale(name: str, x: Tensor | None, cache: Tensor, b: int) -> None:
    if x is None:
        return
    if cache.dtype != BYTES:
        raise Invalid(f"{name} is given, and the caches are of {cache.dtype}; those of {BYTES} have it")
    same_device(cache.device, **{name: x})
    if tuple(x.shape) != (b, cache.shape[2]) or x.dtype != torch.float32:
        wanted = f"({b}, {cache.shape[2]}) and torch.float32"
        raise Invalid(f"{name} is {tuple(x.shape)} of {x.dtype}; it must be {wanted}")


def key_scales(x: Tensor, table: Tensor | None, lengths: Tensor, caches: Tensor) -> Tensor:
    """x (b, h_k) as (b or pages, 1, h_k). Where sequences have pages and numbers of their own, each page gets
    that of the sequence whose keys it holds; nobody waits for the device."""
    if table is None:
        return x[:, None]
    if x.shape[0] == 1 or x.stride(0) == 0:
        return x[:1, None]
    pages, size = caches.shape[:2]
    begin = torch.arange(table.shape[1], device=x.device) * size
    holds = (begin < lengths[:, None]) & (table >= 0) & (table < pages)
    out = x.new_ones(pages + 1, x.shape[1])
    out[torch.where(holds, table, pages).long()] = x[:, None].expand(-1, table.shape[1], -1)
    return out[:pages, None]
