"""Keys and values in pages (pages, size, h, d), which a table (b, most) names for each sequence. A table
may name any page behind a sequence's end, -1 too: what they name is never read."""

from __future__ import annotations

import torch
from torch import Tensor

from falchion import Invalid

from ._bounds import Bounds


def check_pages(
    name: str, table: Tensor, pages: int, size: int, first: int | Tensor, end: Tensor, to: Bounds
) -> None:
    """The keys [first, end) of each sequence lie in pages that exist. There is one page at least, so
    that a number can be moved into range."""
    if pages < 1 or size < 1:
        raise Invalid(f"k_cache has {pages} pages of {size} keys; {name} needs one of one key")
    if not to.asks:
        return
    column = torch.arange(table.shape[1], device=table.device) * size
    first = first[:, None] if isinstance(first, Tensor) else first
    used = (column + size > first) & (column < end[:, None])
    to.within(
        torch.where(used, table, 0),
        0,
        pages - 1,
        lambda at, x: (
            f"{name}[{at[0]}, {at[1]}] = {x}: sequence {at[0]} has keys in it, and there are "
            f"{pages} pages, 0 to {pages - 1}"
        ),
    )


def place_in_pages(
    table: Tensor, sequence: Tensor, place: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """The page of each place of a sequence, -1 past the table, and where in that page it is."""
    column = torch.div(place, size, rounding_mode="floor")
    inside = (place >= 0) & (column < table.shape[1])
    column = torch.where(inside, column, 0)
    return torch.where(inside, table[sequence, column], -1), place % size


def check_keys(table: Tensor, lengths: Tensor, k: Tensor, v: Tensor, bounds: Bounds) -> None:
    """Packed queries against pages: each sequence has so many keys, and a page for each."""
    pages, size = k.shape[:2]
    if v.shape[:2] != k.shape[:2]:
        raise Invalid(f"k has {pages} pages of {size} keys; v has {tuple(v.shape[:2])}")
    most = size * table.shape[1]
    bounds.within(
        lengths,
        0,
        most,
        lambda at, x: (
            f"cu_seqlens_k gives sequence {at[0]} {x} keys; block_table has places for {most}"
        ),
    )
    check_pages("block_table", table, pages, size, 0, lengths, bounds)
    bounds.check()
