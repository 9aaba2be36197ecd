"""Keys and values in pages (pages, size, h, d), which a table (b, most) names for each sequence. torch
copies them into one piece. A table may name any page behind a sequence's end: such numbers are
moved into range, and what they name is never read by the engine."""

from __future__ import annotations

import torch
from torch import Tensor


def place_in_pages(
    table: Tensor, sequence: Tensor, place: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """The page of each place of a sequence, and where in that page it is."""
    column = torch.div(place, size, rounding_mode="floor").long()
    return table[sequence, column].long(), place.long() % size


def dense_from_pages(table: Tensor, pages: Tensor) -> Tensor:
    """(b, most * size, h, d)."""
    return pages[table.long().clamp(0, pages.shape[0] - 1)].flatten(1, 2)


def packed_from_pages(table: Tensor, pages: Tensor, sequence: Tensor, place: Tensor) -> Tensor:
    """(rows, h, d): the row at each place of a sequence."""
    place = place.clamp(max=table.shape[1] * pages.shape[1] - 1)
    page, row = place_in_pages(table, sequence, place, pages.shape[1])
    return pages[page.clamp(0, pages.shape[0] - 1), row]
