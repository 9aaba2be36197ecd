"""Keys and values in pages (pages, size, h, d), which a table (b, most) names for each sequence. torch
copies them into one piece. A table may name any page behind a sequence's end, -1 too: such numbers
are moved into range, and what they name is never read by the engine."""

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


def dense_from_pages(table: Tensor, pages: Tensor) -> Tensor:
    """(b, most * size, h, d)."""
    return pages[table.clamp(0, pages.shape[0] - 1)].flatten(1, 2)


def packed_from_pages(table: Tensor, pages: Tensor, sequence: Tensor, place: Tensor) -> Tensor:
    """(rows, h, d): the row at each place of a sequence."""
    page, row = place_in_pages(table, sequence, place, pages.shape[1])
    return pages[page.clamp(0, pages.shape[0] - 1), row]
