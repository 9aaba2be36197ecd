"""Rotary embeddings in torch operations, with the signature of flash_attn.layers.rotary."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor, places: Tensor, interleaved: bool) -> Tensor:
    """x (b, s, h, d) with its first 2 * cos.shape[1] numbers rotated by the angles of the rows
    `places` (b, s or 1) of cos and sin (s_rotary, d_rotary / 2)."""
    half = cos.shape[-1]
    c, s = (table[places.long()][:, :, None].float() for table in (cos, sin))
    turned = x[..., : 2 * half].float()
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)
    else:
        a, b = turned[..., :half], turned[..., half:]
        turned = torch.cat([a * c - b * s, a * s + b * c], -1)
    return torch.cat([turned.to(x.dtype), x[..., 2 * half :]], -1)


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
) -> Tensor:
    """x (b, s, h, d), rotated from seqlen_offsets on, which is a number or one for each of b."""
    own = torch.arange(x.shape[1], device=x.device)
    offsets = torch.as_tensor(seqlen_offsets, device=x.device).reshape(-1, 1)
    places = (offsets + own).expand(x.shape[0], -1)
    turned = rotate(x, cos, sin, places, interleaved)
    return x.copy_(turned) if inplace else turned
