"""Nested tensors of the layout torch.jagged: their rows lie packed, so attention of them is varlen."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from falchion import Invalid, Unsupported

from ._options import Layout


def refuse_nested(function: str, *tensors: Tensor | None) -> None:
    for x in tensors:
        if x is not None and x.is_nested:
            raise Unsupported(f"{function} takes no nested tensors: give their values() and offsets()")


def refuse_beside_nested(*given: tuple[str, Any]) -> None:
    for name, x in given:
        if x is not None:
            raise Unsupported(f"{name} is given with nested tensors: falchion does not offer it")


def rows_of(name: str, x: Tensor, layout: Layout) -> Tensor:
    """(rows, h, d) of a nested (b, rows of each, h, d), in layout "bhsd" (b, h, rows of each, d)."""
    ragged = 2 if layout == "bhsd" else 1
    axes = "(b, h, s, d)" if layout == "bhsd" else "(b, s, h, d)"
    if not x.is_nested:
        raise Invalid(f"{name} is no nested tensor, but others are: all of q, k and v are, or none")
    if x.layout is not torch.jagged:
        raise Unsupported(
            f"{name} is a nested tensor of the layout torch.strided: make it with layout=torch.jagged"
        )
    found: Any = x
    if x.dim() != 4 or found._ragged_idx != ragged:
        raise Invalid(f"{name} is a nested tensor whose axes are not {axes}, with s the ragged one")
    values: Tensor = found.values()
    if layout == "bhsd":
        values = values.transpose(0, 1)
    if found.lengths() is None:
        return values
    if torch.compiler.is_compiling():
        raise Unsupported(f"{name} is a nested tensor with holes, which falchion does not take in torch.compile")
    return values[: int(found.offsets()[-1])]  # what the sequences were cut out of may be longer


def longest_of(x: Any) -> int:
    """The longest sequence, as the tensor knows it; under torch.compile all rows stand for it."""
    known = x._maybe_max_seqlen
    if known is not None:
        return int(known)
    if torch.compiler.is_compiling():
        return int(x.values().shape[x._ragged_idx - 1])
    return int(x.offsets().diff().max()) if x.offsets().numel() > 1 else 0


def nested_call(
    q: Any, k: Any, v: Any, layout: Layout
) -> tuple[tuple[Tensor, ...], dict[str, Any], Callable[[Tensor], Tensor]]:
    """The packed q, k and v, the keywords of varlen that say where sequences begin and end, and what
    makes a nested tensor of packed rows that lie as those of q."""
    rows = tuple(rows_of(name, x, layout) for name, x in (("q", q), ("k", k), ("v", v)))
    starts, starts_k, starts_v = q.offsets(), k.offsets(), v.offsets()
    if starts_k is not starts_v and not torch.equal(starts_k, starts_v):
        raise Invalid("k and v are nested tensors of different lengths: each key needs its value")
    keywords = {
        "cu_seqlens_q": starts,
        "cu_seqlens_k": None if starts_k is starts else starts_k,
        "max_q": longest_of(q),
        "max_k": longest_of(k),
        "used_q": q.lengths(),
        "used_k": k.lengths(),
    }

    def again(found: Tensor) -> Tensor:
        # With the very offsets of q, so that torch takes both for tensors of the same lengths.
        made = torch.nested.nested_tensor_from_jagged(
            found,
            offsets=starts,
            lengths=q.lengths(),
            min_seqlen=q._maybe_min_seqlen,
            max_seqlen=q._maybe_max_seqlen,
        )
        return made.transpose(1, 2) if layout == "bhsd" else made

    return rows, keywords, again
