"""Rotary embeddings in torch operations, with the signature of flash_attn.layers.rotary."""

from __future__ import annotations

import torch
from torch import Tensor

from falchion import Invalid
from falchion.torch._options import known_whole

from ._bounds import same_device, whole_numbers
from ._call import places, truth


def check_tables(
    x: Tensor, cos: Tensor | None, sin: Tensor | None, names: str
) -> tuple[Tensor, Tensor]:
    """cos and sin (s_rotary, d_rotary / 2) belong together and to the head dim of x."""
    if cos is None or sin is None:
        given, other = ("sin", "cos") if cos is None else ("cos", "sin")
        raise Invalid(f"{names}{given} is given without {names}{other}")
    same_device(x.device, **{f"{names}cos": cos, f"{names}sin": sin})
    if cos.dim() != 2 or cos.shape != sin.shape:
        shapes = f"{tuple(cos.shape)} and {tuple(sin.shape)}"
        raise Invalid(f"{names}cos and {names}sin have the shapes {shapes}; both are one of two axes")
    if 2 * cos.shape[1] > x.shape[-1]:
        raise Invalid(
            f"{names}cos has {cos.shape[1]} columns, which turn {2 * cos.shape[1]} numbers; the "
            f"head dim is {x.shape[-1]}"
        )
    return cos, sin


def rotate(x: Tensor, cos: Tensor, sin: Tensor, place: Tensor, interleaved: bool) -> Tensor:
    """x (b, s, h, d) with its first 2 * cos.shape[1] numbers rotated by the angles of the rows
    `place` (b, s or 1) of cos and sin (s_rotary, d_rotary / 2). A row of x whose place is not in the
    tables stays as it is, as in FlashAttention."""
    rows, half = cos.shape
    if rows == 0:
        return x.clone()
    inside = ((place >= 0) & (place < rows))[..., None]
    at = place.long().clamp(0, rows - 1)
    c = torch.where(inside, cos[at].float(), 1.0)[:, :, None]
    s = torch.where(inside, sin[at].float(), 0.0)[:, :, None]
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
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """x (b, s, h, d), or packed (total, h, d) with cu_seqlens, rotated from seqlen_offsets on, which
    is a number or one for each of b. Where the offsets are a tensor, rows past the end of cos and
    sin stay as they are; a number that leads there is refused."""
    cos, sin = check_tables(x, cos, sin, "")
    if cu_seqlens is not None and max_seqlen is None:
        raise Invalid("cu_seqlens is given without max_seqlen")
    same_device(x.device, cu_seqlens=cu_seqlens)
    if x.dim() != (4 if cu_seqlens is None else 3):
        raise Invalid(f"x has {x.dim()} axes; it has 4, (b, s, h, d), or 3 with cu_seqlens")
    interleaved, inplace = truth("interleaved", interleaved), truth("inplace", inplace)
    b = x.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
    longest = x.shape[1] if cu_seqlens is None else known_whole("max_seqlen", max_seqlen)
    if isinstance(seqlen_offsets, Tensor):
        if seqlen_offsets.dim() == 0:
            seqlen_offsets = seqlen_offsets.expand(b)
        offsets: int | Tensor = whole_numbers("seqlen_offsets", seqlen_offsets, (b,), x.device)
        first = 0
    else:
        offsets = first = known_whole("seqlen_offsets", seqlen_offsets)
    if not 0 <= first <= cos.shape[0] - longest:
        raise Invalid(
            f"cos has {cos.shape[0]} rows; x has {longest} places from seqlen_offsets = {first} on"
        )
    if cu_seqlens is not None:
        sequence, own = places(cu_seqlens, x.shape[0])
        own = own + (offsets[sequence] if isinstance(offsets, Tensor) else offsets)
        turned = rotate(x[:, None], cos, sin, own[:, None], interleaved)[:, 0]
    else:
        own = torch.arange(x.shape[1], device=x.device)
        own = own + (offsets[:, None] if isinstance(offsets, Tensor) else offsets)
        turned = rotate(x, cos, sin, own.expand(b, -1), interleaved)
    return x.copy_(turned) if inplace else turned


apply_rotary_emb_func = apply_rotary_emb
