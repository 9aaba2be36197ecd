"""How a call of flash_attn's functions becomes one of falchion.torch."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

import falchion.torch as ft
from falchion import Invalid, Unsupported
from falchion.torch._function import attention_with_gradients
from falchion.torch._ops import LEARNED, operator_arguments
from falchion.torch._options import (
    autocast,
    draw,
    drops_of,
    exact_scale,
    flag,
    known_whole,
    last_contiguous,
    lengths,
    number,
    whole,
)

from ._bounds import Bounds, table_of
from ._pages import check_keys
from ._probabilities import signed_probabilities


def parts_of(name: str, x: Tensor, count: int) -> tuple[Tensor, ...]:
    """q, k and v, or k and v, of a tensor (..., count, h, d)."""
    if x.dim() < 4 or x.shape[-3] != count:
        raise Invalid(f"{name} has the shape {tuple(x.shape)}; its third last axis must be {count}")
    return x.unbind(-3)


def truth(name: str, x: Any) -> bool:
    """True or False in any form, where None is False as in FlashAttention."""
    return x is not None and flag(name, x)


def _side_of(name: str, side: Any) -> int:
    if type(side) is not int:
        side = -1 if side is None else known_whole(name, side)
    return -1 if side < 0 else side


def sides_of(window_size: Any) -> tuple[int, int]:
    """(left, right) of a window, -1 where a side is unbounded: below 0, or None."""
    if isinstance(window_size, Tensor):  # FlashAttention's own tests give one
        window_size = window_size.tolist()
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise Invalid(f"window_size = {window_size!r}: it is a pair (left, right), -1 unbounded")
    left, right = window_size
    return _side_of("window_size[0]", left), _side_of("window_size[1]", right)


def band(causal: bool, window_size: tuple[int, int]) -> dict[str, Any]:
    """flash_attn's band is that of the bottom right corner, and a negative side is unbounded."""
    sides = sides_of(window_size)
    left, right = (None if sides[0] < 0 else sides[0]), (None if sides[1] < 0 else sides[1])
    if truth("causal", causal):
        return {"causal": "bottom_right", "window": (left, None)}
    if left is None and right is None:
        return {}
    return {"window": (left, right), "align": "bottom_right"}


def dense(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    """Tensors (b, s, h, d). With return_attn_probs also the LSE and S_dmask."""

    def place() -> Tensor:
        return torch.arange(k.shape[1], device=q.device).expand(k.shape[:2])

    found = _attend({}, q, k, v, place, k.shape[1], **options)
    if isinstance(found, Tensor):
        return found
    o, lse, probabilities = found
    return o, lse, q.new_empty(0) if probabilities is None else probabilities.transpose(1, 2)


def starts_of(
    q: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None = None,
) -> dict[str, Any]:
    """What says of packed tensors which rows are a sequence, as falchion.torch.varlen has it."""
    max_seqlen_q = whole("max_seqlen_q", max_seqlen_q)
    max_seqlen_k = whole("max_seqlen_k", max_seqlen_k)
    same = cu_seqlens_k is cu_seqlens_q
    cu_seqlens_q = lengths("cu_seqlens_q", cu_seqlens_q, q)
    return {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_q if same else lengths("cu_seqlens_k", cu_seqlens_k, q),
        "max_q": max_seqlen_q,
        "max_k": max_seqlen_k,
        "used_q": seqused_q,
        "used_k": seqused_k,
        "first_k": leftpad_k,
    }


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
    leftpad_k: Tensor | None = None,
    block_table: Tensor | None = None,
    **options: Any,
) -> Any:
    """Tensors (total, h, d). With return_attn_probs also the LSE (h, total_q) and S_dmask (b, h,
    max_seqlen_q, max_seqlen_k). With a block_table k and v are pages (pages, size, h, d)."""
    sequences = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    starts = starts_of(q, *sequences, seqused_q, seqused_k, leftpad_k)
    if block_table is not None:
        return _in_pages(starts, q, k, v, block_table, **options)

    def place() -> Tensor:
        return places(starts["cu_seqlens_k"], k.shape[0])[1]

    found = _attend(starts, q, k, v, place, starts["max_k"], **options)
    if isinstance(found, Tensor):
        return found
    o, lse, flat = found
    if flat is None:
        return o, lse, q.new_empty(0)
    return o, lse, _padded(flat, starts["cu_seqlens_q"], starts["max_q"]).transpose(1, 2)


def _in_pages(
    starts: dict[str, Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    *,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    s_aux: Tensor | None = None,
    return_attn_probs: bool = False,
) -> Any:
    """Packed queries against pages, which the engine reads where they lie. cu_seqlens_k says how many keys
    each sequence has, unless used_k does."""
    if drops_of(dropout_p)[0]:
        raise Unsupported(f"dropout_p = {dropout_p} is given with block_table, which has no dropout")
    used = starts["used_k"]
    if used is None:
        used = starts["cu_seqlens_k"].diff()
    bounds = Bounds(q.device)
    table = table_of("block_table", table, len(used), q.device)
    check_keys(table, used, k, v, bounds)
    q, softmax_scale = exact_scale(last_contiguous(q), softmax_scale)
    with torch.no_grad():
        found = ft.decode(
            q,
            last_contiguous(k),
            last_contiguous(v),
            used_k=used,
            first_k=starts["first_k"],
            page_table=table,
            cu_seqlens_q=starts["cu_seqlens_q"],
            max_q=starts["max_q"],
            max_k=starts["max_k"],
            scale=softmax_scale,
            softcap=number("softcap", softcap),
            alibi=None if alibi_slopes is None else alibi_slopes.float(),
            sinks=None if s_aux is None else s_aux.float(),
            return_lse=truth("return_attn_probs", return_attn_probs),
            **{"causal": False, **band(causal, window_size)},
        )
    return found if isinstance(found, Tensor) else (*found, q.new_empty(0))


def _padded(flat: Tensor, starts: Tensor, longest: int) -> Tensor:
    """(b, longest, ...) of packed rows, with zeros behind each sequence's end."""
    own = torch.arange(longest, device=flat.device)
    row = starts[:-1, None].long() + own
    inside = (row < starts[1:, None]) & (row >= 0) & (row < flat.shape[0])
    # A row of zeros at the end, so that there is one to read where there are none.
    flat = torch.nn.functional.pad(flat, (0, 0, 0, 0, 0, 1))
    return flat[torch.where(inside, row, -1)]


def _attend(
    starts: dict[str, Any],
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
    s_aux: Tensor | None = None,
    return_attn_probs: bool = False,
) -> Any:
    """O, or with return_attn_probs (O, LSE, signed probabilities of each row), the last one None
    without dropout. starts is empty, or what says of packed tensors which rows are a sequence.
    place() is each key's place in its sequence, and `keys` how many there are."""
    q, softmax_scale = exact_scale(last_contiguous(q), softmax_scale)
    k, v = last_contiguous(k), last_contiguous(v)
    options: dict[str, Any] = {
        "scale": softmax_scale,
        "softcap": number("softcap", softcap),
        "alibi": None if alibi_slopes is None else alibi_slopes.float(),
        "sinks": None if s_aux is None else s_aux.float(),
        **band(causal, window_size),
    }
    drops, share = drops_of(dropout_p)
    return_attn_probs = truth("return_attn_probs", return_attn_probs)
    if not return_attn_probs or not drops:
        attention: Any = ft.varlen if starts else ft.attention
        options.update(starts, dropout=share, return_lse=return_attn_probs)
        found = attention(q, k, v, **options)
        return (*found, None) if return_attn_probs else found

    q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    drawn = draw(q)  # each of the runs below drops the same

    def run(q: Tensor, v: Tensor, dropout: float, with_score: bool) -> tuple[Tensor, Tensor]:
        given = options if with_score else band(causal, window_size)
        numbers = {n: whole(n, x) for n, x in starts.items() if n in ("max_q", "max_k")}
        tensors = {n: x for n, x in starts.items() if n not in numbers and x is not None}
        if dropout != 0.0:
            tensors["seed"] = drawn
        chosen = {**given, **numbers, "dropout": dropout}
        learned = [chosen.pop(name, None) for name in LEARNED]
        inputs, found = operator_arguments(q, k, v, learned, tensors, chosen)
        return attention_with_gradients(inputs, found)

    o, lse = run(q, v, share, True)
    return o, lse, signed_probabilities(run, q, k, place(), keys, share)


def places(starts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The sequence of each row of a packed tensor, and its place in it."""
    row = torch.arange(total, device=starts.device)
    sequence = torch.searchsorted(starts[1:].contiguous(), row.to(starts.dtype), right=True)
    sequence = sequence.clamp(max=starts.numel() - 2)
    return sequence, row - starts[sequence]
