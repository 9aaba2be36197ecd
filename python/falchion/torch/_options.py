"""What a call asks for besides its tensors, in the form that the operators take."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch

import falchion
from falchion import Invalid, Unsupported
from falchion.types import Align, Backend, Causal, Layout, Window

__all__ = ["Align", "Backend", "Causal", "Layout", "Window"]

# The functions of falchion, for calls that hand options on as they came. Their own types are for
# people who write options down.
engine: Any = falchion

UNBOUNDED = -1
ALIGNMENTS = ("bottom_right", "top_left")


class Options(NamedTuple):
    """The options of falchion::attention and falchion::attention_backward, in the order of their
    schema."""

    max_q: int  # packed: the longest sequence of queries; else 0
    max_k: int
    left: int  # UNBOUNDED or >= 0
    right: int
    align: str  # one of ALIGNMENTS, or "" where both sides are unbounded
    scale: Optional[float]
    softcap: float
    dropout: float
    layout: str
    backend: str

    @property
    def band(self) -> dict[str, object]:
        """The same band as keywords of falchion.attention."""
        if not self.align:
            return {}
        sides = (self.left, self.right)
        left, right = (None if side == UNBOUNDED else side for side in sides)
        return {"window": (left, right), "align": self.align}


# The schema of Options, for torch.library.
SCHEMA = (
    "SymInt max_q, SymInt max_k, SymInt left, SymInt right, str align, float? scale, "
    "float softcap, float dropout, str layout, str backend"
)


def word(name: str, given: str, words: tuple[str, ...]) -> str:
    if given not in words:
        allowed = ", ".join(f'"{x}"' for x in words)
        raise Invalid(f"{name} = {given!r}: it is one of {allowed}")
    return given


def _sides(window: Any) -> tuple[int, int]:
    """(left, right) of a window, UNBOUNDED for None."""
    if not isinstance(window, (tuple, list)):
        raise TypeError("window must be a pair (left, right), where None is unbounded")
    if len(window) != 2:
        raise TypeError("window must have two sides, (left, right)")
    for i, side in enumerate(window):
        if isinstance(side, (float, str)):
            kind = type(side).__name__
            raise TypeError(f"window[{i}] must be a whole number, not {kind}")
    left, right = (UNBOUNDED if side is None else side for side in window)
    return left, right


def band_of(
    causal: Any,
    window: Any,
    align: str | None,
    s_q: int,
    s_k: int,
    same_lengths: bool,
) -> tuple[int, int, str]:
    """(left, right, align) of a call, by the rules and with the texts of the engine's own options.c.
    same_lengths: no used_q, used_k or first_k lets the lengths of a sequence differ."""
    if align is not None:
        word("align", align, ALIGNMENTS)
    left, right = (UNBOUNDED, UNBOUNDED) if window is None else _sides(window)
    is_causal = causal is not None and causal is not False
    if is_causal:
        right = 0
    if is_causal and causal is not True:
        if not isinstance(causal, str):
            raise TypeError('causal must be True, False, "bottom_right" or "top_left"')
        word("causal", causal, ALIGNMENTS)
        if align is not None and align != causal:
            raise Invalid(f'causal = {causal!r}, but align = "{align}"')
        align = causal
    if left == UNBOUNDED and right == UNBOUNDED:
        return UNBOUNDED, UNBOUNDED, ""
    if align is None:
        asked = "causal=True" if is_causal else "a window without align"
        corner = (
            'say "bottom_right" (the last query sees the last key) or "top_left" (query 0 sees '
            "key 0)"
        )
        if s_q != s_k:
            raise Invalid(
                f"{asked} does not say how the diagonal lies where s_q = {s_q} and s_k = {s_k} "
                f"differ: {corner}"
            )
        if not same_lengths:
            raise Invalid(
                f"{asked} does not say how the diagonal lies where lengths of q and k may differ "
                f"(used_q, used_k or first_k): {corner}"
            )
        align = "bottom_right"
    for i, side in enumerate((left, right)):
        if side < UNBOUNDED:
            raise Invalid(f"window[{i}] = {side}: it must be 0 or more, or unbounded (-1)")
    return left, right, align


def four_axes(name: str, x: torch.Tensor | None) -> torch.Tensor | None:
    """A bias or mask as (b, h_q, s_q, s_k): leading axes that are missing have extent 1."""
    if x is None or x.dim() == 4:
        return x
    if x.dim() > 4:
        raise Invalid(f"{name} has {x.dim()} axes; it has at most 4, (b, h_q, s_q, s_k)")
    return x[(None,) * (4 - x.dim())]


def last_contiguous(x: torch.Tensor) -> torch.Tensor:
    """The tensor with a last axis that lies without gaps, as the engine wants it."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def longest(name: str, given: int | None, cu_seqlens: torch.Tensor) -> int:
    """The longest of packed sequences: as given, or read from cu_seqlens."""
    if given is not None:
        return given
    if torch.compiler.is_compiling():
        raise Invalid(
            f"packed sequences under torch.compile need {name}: it cannot be read from cu_seqlens"
        )
    return int(cu_seqlens.diff().max()) if cu_seqlens.numel() > 1 else 0


def slopes_of(alibi: torch.Tensor | None) -> torch.Tensor | None:
    """ALiBi slopes as (b or 1, h_q)."""
    if alibi is None or alibi.dim() == 2:
        return alibi
    if alibi.dim() != 1:
        raise Invalid(f"alibi has {alibi.dim()} axes; its shape is (h_q) or (b, h_q)")
    return alibi[None]


# The engine's scale of 0 asks for 1/sqrt(d). PyTorch's means that all scores are 0, which this
# number does too: it is the smallest normal f32, so that a score is below 1e-30 where q and k are
# below 1e3.
_ZERO_SCALE = torch.finfo(torch.float32).tiny


def exact_scale(scale: float | None) -> float | None:
    """The scale for the engine of a scale that means what it says, 0 too."""
    return _ZERO_SCALE if scale == 0.0 else scale


def draw(q: torch.Tensor) -> torch.Tensor:
    """Seed and offset of one run, drawn from torch's default generator of q's device. They stay in
    that device's memory, so that a captured graph draws new ones at each replay."""
    return torch.randint(-(2**63), 2**63 - 1, (2,), dtype=torch.int64, device=q.device)


def autocast(*tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """The tensors as torch's own scaled_dot_product_attention would get them under autocast:
    floating point tensors other than float64 are cast to autocast's type."""
    first = tensors[0]
    assert first is not None
    device = first.device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        x.to(dtype) if x is not None and x.is_floating_point() and x.dtype != torch.float64 else x
        for x in tensors
    )


def no_second_derivative() -> Unsupported:
    return Unsupported(
        "falchion has no second derivative of attention: its backward pass cannot be "
        "differentiated. Where one is needed (a gradient penalty, a Hessian), use torch's math "
        "backend there."
    )


def no_forward_mode() -> Unsupported:
    return Unsupported(
        "falchion has no forward-mode derivative (jvp) of attention; only the backward pass is "
        "there. Where one is needed, use torch's math backend there."
    )
