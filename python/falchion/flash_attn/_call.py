"""How a call of flash_attn's functions becomes one of falchion.torch."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch import Tensor

import falchion.torch as ft
from falchion.torch._options import drops_of, exact_scale, flag, last_contiguous, whole

from ._probabilities import signed_probabilities


def band(causal: bool, window_size: tuple[int, int]) -> dict[str, Any]:
    """flash_attn's band is that of the bottom right corner, and a negative side is unbounded."""
    sides = (whole(f"window_size[{i}]", side) for i, side in enumerate(window_size))
    left, right = (None if side < 0 else side for side in sides)
    if flag("causal", causal):
        return {"causal": "bottom_right", "window": (left, None)}
    if left is None and right is None:
        return {}
    return {"window": (left, right), "align": "bottom_right"}


def dense(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    """Tensors (b, s, h, d). With return_attn_probs also the LSE and S_dmask."""

    def place() -> Tensor:
        return torch.arange(k.shape[1], device=q.device).expand(k.shape[:2])

    found = _attend(ft.attention, q, k, v, place, k.shape[1], **options)
    if isinstance(found, Tensor):
        return found
    o, lse, probabilities = found
    return o, lse, q.new_empty(0) if probabilities is None else probabilities.transpose(1, 2)


def packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    **options: Any,
) -> Any:
    """Tensors (total, h, d). With return_attn_probs also the LSE (h, total_q) and S_dmask (b, h,
    max_seqlen_q, max_seqlen_k)."""
    run = functools.partial(
        ft.varlen,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_q=int(max_seqlen_q),
        max_k=int(max_seqlen_k),
        used_q=seqused_q,
        used_k=seqused_k,
    )

    def place() -> Tensor:
        return places(cu_seqlens_k, k.shape[0])[1]

    found = _attend(run, q, k, v, place, int(max_seqlen_k), **options)
    if isinstance(found, Tensor):
        return found
    o, lse, flat = found
    if flat is None:
        return o, lse, q.new_empty(0)
    sequence, row = places(cu_seqlens_q, q.shape[0])
    padded = flat.new_zeros((cu_seqlens_q.numel() - 1, int(max_seqlen_q), *flat.shape[1:]))
    padded[sequence, row] = flat
    return o, lse, padded.transpose(1, 2)


def _attend(
    attention: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    place: Callable[[], Tensor],
    keys: int,
    *,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_attn_probs: bool = False,
) -> Any:
    """O, or with return_attn_probs (O, LSE, signed probabilities of each row), the last one None
    without dropout. place() is each key's place in its sequence, and `keys` how many there are."""
    q, softmax_scale = exact_scale(last_contiguous(q), softmax_scale)
    k, v = last_contiguous(k), last_contiguous(v)
    sides = band(causal, window_size)
    score: dict[str, Any] = {
        "scale": softmax_scale,
        "softcap": softcap,
        "alibi": None if alibi_slopes is None else alibi_slopes.float(),
    }
    if not return_attn_probs:
        return attention(q, k, v, dropout=dropout_p, **score, **sides)

    def run(q: Tensor, v: Tensor, dropout: float, with_score: bool) -> Tensor:
        o: Tensor = attention(q, k, v, dropout=dropout, **(score if with_score else {}), **sides)
        return o

    with Replay(q.device) as replay:
        o, lse = attention(q, k, v, dropout=dropout_p, return_lse=True, **score, **sides)
    if not drops_of(dropout_p)[0]:
        return o, lse, None
    return o, lse, signed_probabilities(run, q, k, place(), keys, dropout_p, replay)


def places(starts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The sequence of each row of a packed tensor, and its place in it."""
    row = torch.arange(total, device=starts.device)
    sequence = torch.searchsorted(starts[1:].contiguous(), row.int(), right=True)
    sequence = sequence.clamp(max=starts.numel() - 2)
    return sequence, row - starts[sequence]


class Replay:
    """Repeats what torch's generator of a device gave to the calls inside `with`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def _get(self) -> Tensor:
        if self.device.type == "cuda":
            return torch.cuda.get_rng_state(self.device)
        return torch.get_rng_state()

    def _set(self, state: Tensor) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state, self.device)
        else:
            torch.set_rng_state(state)

    def __enter__(self) -> Replay:
        self.before = self._get()
        return self

    def __exit__(self, *_: object) -> None:
        self.after = self._get()

    def rewind(self) -> None:
        self._set(self.before)

    def end(self) -> None:
        self._set(self.after)
