"""Bounds of lengths, places and page numbers that lie in tensors.

Each rule is an interval. All rules of a call are asked at once, so that a GPU is waited for once,
and what breaks one is refused by name before anything is written. While torch.compile traces or a
CUDA graph is captured nothing can be waited for: there what is outside is neither read nor
written."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from falchion import Invalid

Words = Callable[[tuple[int, ...], int], str]


def same_device(device: torch.device, **tensors: Tensor | None) -> None:
    """Every tensor that is given lies where q does."""
    for name, x in tensors.items():
        if x is not None and x.device != device:
            raise Invalid(f"{name} is on {x.device}; it must be on {device}, as the others are")


def whole_numbers(name: str, x: Tensor, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """The tensor as int64, which holds what any other type of whole numbers does."""
    same_device(device, **{name: x})
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise Invalid(f"{name} is of {x.dtype}; it must be of whole numbers, such as torch.int32")
    if tuple(x.shape) != shape:
        raise Invalid(f"{name} has the shape {tuple(x.shape)}; it must be {shape}")
    return x.long()


def table_of(name: str, x: Tensor, rows: int, device: torch.device) -> Tensor:
    """A table of pages (rows, most)."""
    return whole_numbers(name, x, (rows, x.shape[1] if x.dim() > 1 else 0), device)


class Bounds:
    """Rules of one call."""

    def __init__(self, device: torch.device) -> None:
        self.asks = not torch.compiler.is_compiling() and device.type != "meta"
        if self.asks and device.type == "cuda":
            self.asks = not torch.cuda.is_current_stream_capturing()
        self.rules: list[tuple[Tensor, Tensor, Words]] = []

    def within(self, x: Tensor, low: int | Tensor, high: int | Tensor, words: Words) -> None:
        """Each number of x must be in [low, high]. words(index, number) says what is wrong."""
        if self.asks and x.numel() > 0:
            self.rules.append((((x < low) | (x > high)), x, words))

    def check(self) -> None:
        """Raises Invalid with the words of the first rule that is broken."""
        if not self.rules:
            return
        broken = torch.stack([bad.any() for bad, _, _ in self.rules]).tolist()
        for found, (bad, x, words) in zip(broken, self.rules):
            if found:
                index = tuple(bad.nonzero()[0].tolist())
                raise Invalid(words(index, int(x[index])))
