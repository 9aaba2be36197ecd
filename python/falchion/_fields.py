"""The options of attention by what they are, as the extension has them from src/base/fields.def. falchion.torch and
falchion.jax go over these names, so that an option of one of these kinds needs no line there."""

from __future__ import annotations

from falchion import _fal

TYPE_CHECKING = False  # as typing's, whose import would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["CACHE_TENSORS", "FLAGS", "GAPS", "GRADIENT_FLAGS", "LENGTHS", "NUMBERS", "SCALES", "SHAPES", "TENSORS", "differing_lengths"]


def _of(rows: tuple[tuple[str, str], ...], wanted: str) -> tuple[str, ...]:
    return tuple(name for kind, name in rows if kind == wanted)


NUMBERS = _of(_fal._options, "number")
TENSORS = _of(_fal._options, "tensor")
LENGTHS = _of(_fal._options, "lengths")  # one number for each sequence
FLAGS = _of(_fal._options, "flag")
SCALES = _of(_fal._forwards, "scale")  # of q, k and v of 8 bits
# Of a KV cache, in the order of options.def.
CACHE_TENSORS = tuple(name for kind, name in _fal._forwards if kind in ("tensor", "starts", "scale") and name != "q_scale")
GRADIENT_FLAGS = _of(_fal._gradients, "flag")  # of the backward pass alone
SHAPES = {name: shape for shape, name in _fal._operands}  # "scores", "head_numbers": src/base/fields.hpp says what they are
GAPS = {"zero_unused": True}  # rows that nobody uses get gradients of 0, whatever memory was there


def differing_lengths(given: Mapping[str, Any]) -> str:
    """The name of lengths that may leave more rows of q than of k, or fewer; "" where there are none. One array that says
    it of both leaves as many."""
    names = [name for name in LENGTHS if given.get(name) is not None]
    same = given.get("used_q") is given.get("used_k") and set(names) <= {"used_q", "used_k"}
    return "" if same else names[-1]
