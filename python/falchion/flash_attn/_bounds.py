"""Bounds of lengths, places and page numbers that lie in tensors.

On the host what is out of bounds is refused by name before anything is written. On a GPU that would
have to wait for it at each call, so there the engine's contract holds (docs/contract.md): a length is
clamped, a page that is not there is masked and not written. check_bounds() asks there too, all rules of
a call at once. While torch.compile traces or a CUDA graph is captured nothing can be asked."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from falchion import Invalid

Words = Callable[[tuple[int, ...], int], str]
_asks_gpus = False


class OutOfBounds(Invalid, RuntimeError):
    """FlashAttention raises a RuntimeError, and code around it goes on catching it."""


def check_bounds(on: bool = True) -> None:
    """Whether the caches' lengths, places and pages are looked at on a GPU too, in this process. Each call
    then waits for it, and raises where one is out of bounds."""
    global _asks_gpus
    _asks_gpus = on


def same_device(device: torch.device, **tensors: Tensor | None) -> None:
    """Every tensor that is given lies where q does."""
    for name, x in tensors.items():
        if x is not None and x.device != device:
            raise Invalid(f"{name} is on {x.device}; it must be on {device}, as the others are")


def whole_numbers(name: str, x: Tensor, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """The tensor, of int32 or, where it is of another type, of int64."""
    same_device(device, **{name: x})
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise Invalid(f"{name} is of {x.dtype}; it must be of whole numbers, such as torch.int32")
    if tuple(x.shape) != shape:
        raise Invalid(f"{name} has the shape {tuple(x.shape)}; it must be {shape}")
    return x if x.dtype is torch.int32 else x.long()


def table_of(name: str, x: Tensor, rows: int, device: torch.device) -> Tensor:
    """A table of pages (rows, most)."""
    return whole_numbers(name, x, (rows, x.shape[1] if x.dim() > 1 else 0), device)


class Bounds:
    """Rules of one call."""

    def __init__(self, device: torch.device) -> None:
        self.asks = not torch.compiler.is_compiling() and device.type != "meta"
        if self.asks and device.type == "cuda":
            self.asks = _asks_gpus and not torch.cuda.is_current_stream_capturing()
        self.rules: list[tuple[Tensor, Tensor, Words]] = []

    def within(self, x: Tensor, low: int | Tensor, high: int | Tensor, words: Words) -> None:
        """Each number of x must be in [low, high]. words(index, number) says what is wrong."""
        if self.asks and x.numel() > 0:
            self.rules.append((((x < low) | (x > high)), x, words))

    def check(self) -> None:
        """Raises OutOfBounds with the words of the first rule that is broken."""
        if not self.rules:
            return
        broken = torch.stack([bad.any() for bad, _, _ in self.rules]).tolist()
        for found, (bad, x, words) in zip(broken, self.rules):
            if found:
                index = tuple(bad.nonzero()[0].tolist())
                raise OutOfBounds(words(index, int(x[index])))
