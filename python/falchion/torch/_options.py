"""What a call asks for besides its tensors, in the form that the operators take."""

from __future__ import annotations

import collections
from typing import Any, Mapping

import torch

import falchion
from falchion import Invalid, Unsupported, _fal
from falchion._fields import FLAGS, GRADIENT_FLAGS, LENGTHS, NUMBERS, SHAPES
from falchion.types import Backend, Layout
from falchion.types import Options as Keywords

__all__ = ["Backend", "Layout"]

# The functions of falchion, for calls that hand options on as they came. Their own types are for
# people who write options down.
engine: Any = falchion

UNBOUNDED = -1
ALIGNMENTS = ("bottom_right", "top_left")


# The options of falchion::attention and falchion::attention_backward with their types in the schema, in
# its order. max_q and max_k are the longest of packed sequences, else 0; a side is UNBOUNDED or >= 0;
# align is one of ALIGNMENTS, "at", where diagonal is the key of query 0, or "" where nobody says it and
# both sides are unbounded. A number is a Scalar, so that torch.compile may leave it to the run.
_ROWS = (
    ("max_q", "SymInt"),
    ("max_k", "SymInt"),
    ("left", "SymInt"),
    ("right", "SymInt"),
    ("align", "str"),
    ("diagonal", "SymInt"),
    *((name, "Scalar?" if name == "scale" else "Scalar") for name in NUMBERS),
    *((name, "bool") for name in FLAGS),
    ("layout", "str"),
    ("backend", "str"),
)
SCHEMA = ", ".join(f"{kind} {name}" for name, kind in _ROWS)
_make: Any = collections.namedtuple
Options = _make("Options", [name for name, _ in _ROWS])

# The flags of the backward pass that a caller chooses, and none of them.
CHOSEN_FLAGS = tuple(name for name in GRADIENT_FLAGS if name in Keywords.__annotations__)
NO_FLAGS = (False,) * len(CHOSEN_FLAGS)


def numbers_and_flags(options: Mapping[str, Any]) -> list[Any]:
    """Those of Options."""
    numbers = [options.get(name, None if name == "scale" else 0.0) for name in NUMBERS]
    return [*numbers, *(options.get(name, False) for name in FLAGS)]


def band_keywords(options: Any) -> dict[str, object]:
    """The band of Options as keywords of falchion.attention."""
    if not options.align:
        return {}
    sides = (options.left, options.right)
    left, right = (None if side == UNBOUNDED else side for side in sides)
    align = options.diagonal if options.align == "at" else options.align
    return {"window": (left, right), "align": align}


def number(name: str, x: Any) -> Any:
    """A number of Python, of NumPy or without axes as one of Python. torch.compile traces NumPy's as
    arrays. It specialises on those of 64 bits, and leaves what others and tensors hold to the run."""
    if x is None or type(x) is float or type(x) is int:
        return x
    if not torch.compiler.is_compiling():
        return _fal._number(name, x)
    return float(_traced(name, x, "a number"))


def _traced(name: str, x: Any, wanted: str) -> torch.Tensor:
    """A number as torch.compile sees it."""
    if x is None or isinstance(x, (str, bytes, list, tuple)):
        raise TypeError(f"{name} must be {wanted}, not {type(x).__name__}")
    found = torch.as_tensor(x)
    if found.numel() != 1 or found.is_complex():
        raise TypeError(f"{name} must be {wanted}, not {type(x).__name__}")
    return found


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _text_of(x: torch.Tensor) -> str:
    """A word is a constant of the program, where a number could become an argument of it."""
    return repr(float(x))


def settled(name: str, x: Any, wanted: str = "a whole number") -> Any:
    """A traced number that decides what the program is. torch.compile itself compares those of 64 bits
    before each run. Of the others it would know none, so the one that is there now is taken, and the
    program refuses to run with another one."""
    if x is None or type(x) in (bool, int) or (type(x) is float and wanted == "a number"):
        return x
    found = _traced(name, x, wanted)
    if found.is_floating_point() and wanted != "a number":
        raise TypeError(f"{name} must be {wanted}, not {type(x).__name__}")
    if found.device.type != "cpu" or found.dtype in (torch.int64, torch.float64):
        return found.item()
    value: Any = float(_text_of(found))
    if not found.is_floating_point():
        value = int(value)
    torch._assert_async(
        found == value,
        f"{name} was {value} when torch.compile traced the call, and is another now: numbers of Python "
        "may change between calls",
    )
    return value


def is_traced(x: Any) -> bool:
    """Whether torch.compile may know a number only when the program runs."""
    known = x is None or type(x) is float or type(x) is int
    return not known and torch.compiler.is_compiling()


def whole(name: str, x: Any) -> Any:
    """The same of a whole number. torch.compile hands sizes on as symbols."""
    if x is None or type(x) is int or isinstance(x, torch.SymInt):
        return x
    if not torch.compiler.is_compiling():
        return _fal._whole(name, x)
    found = _traced(name, x, "a whole number")
    if found.is_floating_point():
        raise TypeError(f"{name} must be a whole number, not {type(x).__name__}")
    return int(found)


def known_whole(name: str, x: Any) -> Any:
    """A whole number that the program branches on."""
    if type(x) is int:
        return x
    return settled(name, x) if torch.compiler.is_compiling() else whole(name, x)


def flag(name: str, x: Any) -> bool:
    """The same of True and False, which 1 and 0 stand for too."""
    if type(x) is bool:
        return x
    if not torch.compiler.is_compiling():
        return _fal._flag(name, x)
    value = settled(name, x, "True or False")
    if value == 1:  # branches, so that no symbol goes on
        return True
    if value == 0:
        return False
    raise Invalid(f"{name} = {value}: it must be True or False")


def causal_of(causal: Any) -> Any:
    """`causal` as a bool or a word."""
    if causal is None or isinstance(causal, str):
        return causal or False
    return flag("causal", causal)


def drops_of(dropout: Any) -> tuple[bool, Any]:
    """Whether a call may drop anything, and the share."""
    if type(dropout) is float:
        return dropout != 0.0, dropout
    if torch.compiler.is_compiling():
        share = settled("dropout", dropout, "a number")
    else:
        share = number("dropout", dropout)
    share = 0.0 if share is None else share
    return share != 0.0, share


_INT32 = torch.iinfo(torch.int32)


def lengths(name: str, x: Any, q: torch.Tensor) -> Any:
    """Lengths as int32 beside q: of a list, or of a tensor of other whole numbers. One that int32 does
    not hold is refused where the host has the numbers; elsewhere it becomes the nearest that it holds,
    which is past every length too."""
    if x is None or (isinstance(x, torch.Tensor) and x.dtype is torch.int32):
        return x
    if isinstance(x, (list, tuple)):
        numbers = [whole(f"{name}[{i}]", n) for i, n in enumerate(x)]
        found = torch.tensor(numbers, dtype=torch.int64)
        return lengths(name, found, q).to(q.device)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a tensor or a list of whole numbers, not {type(x).__name__}")
    if x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
        raise Invalid(f"{name} has the type {x.dtype}: lengths are whole numbers")
    if x.dim() != 1:
        raise Invalid(f"{name} must have one axis: it has {x.dim()} axes")
    if x.device.type == "cpu" and not torch.compiler.is_compiling() and are_numbers(x):
        for i, n in enumerate(x.tolist()):
            if not _INT32.min <= n <= _INT32.max:
                raise Invalid(f"{name}[{i}] = {n}: lengths are int32, which hold [-2^31, 2^31)")
    return x.long().clamp(_INT32.min, _INT32.max).to(torch.int32)


def as_int32(x: torch.Tensor | None) -> torch.Tensor | None:
    """Numbers of pages as the engine takes them. One past int32 is no page either."""
    if x is None or x.dtype is torch.int32 or x.is_floating_point():
        return x
    return x.long().clamp(_INT32.min, _INT32.max).to(torch.int32)


def convert_lengths(given: dict[str, Any], q: torch.Tensor) -> None:
    """The same of all lengths of a call. The same tensor of q and of k says that they do not differ."""
    same = given.get("used_q") is given.get("used_k")
    for name in LENGTHS:
        if name in given:
            given[name] = lengths(name, given[name], q)
    if same and "used_q" in given:
        given["used_k"] = given["used_q"]


def are_numbers(x: torch.Tensor) -> bool:
    """Whether a tensor has numbers that can be read now, which a wrapper of torch.func or of a mode has
    not."""
    return _fal._torch_are_ordinary(x)


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
    left, right = (
        UNBOUNDED if side is None else known_whole(f"window[{i}]", side) for i, side in enumerate(window)
    )
    return left, right


def band_of(
    causal: Any,
    window: Any,
    align: Any,
    s_q: int,
    s_k: int,
    lengths: str,
) -> tuple[int, int, str, int]:
    """(left, right, align, diagonal) of a call, by the rules and with the texts of the engine's own options.c.
    lengths: the name of those that let the rows of q and k that count differ, or ""."""
    diagonal = 0
    if isinstance(align, str):
        if align not in ALIGNMENTS:
            raise Invalid(
                f'align = {align!r}: it is "bottom_right", "top_left" or a whole number, the key at which '
                "query 0 stands"
            )
    elif isinstance(align, bool):
        raise TypeError("align must be a whole number or the name of a corner, not a bool")
    elif align is not None:
        align, diagonal = "at", whole("align", align)
        if not -(1 << 30) <= diagonal <= 1 << 30:
            raise Invalid(f"align = {diagonal}: the key of query 0 must be in [-2^30, 2^30]")
    left, right = (UNBOUNDED, UNBOUNDED) if window is None else _sides(window)
    causal = causal_of(causal)
    is_causal = causal is not False
    if is_causal:
        right = 0
    if isinstance(causal, str):
        word("causal", causal, ALIGNMENTS)
        if align is not None and align != causal:
            given = diagonal if align == "at" else align
            raise Invalid(f"causal = {causal!r}, but align = {given!r}")
        align = causal
    if left == UNBOUNDED and right == UNBOUNDED:  # the diagonal is that of alibi alone
        return UNBOUNDED, UNBOUNDED, align or "", diagonal
    if align is None:
        asked = "causal=True" if is_causal else "a window without align"
        corner = (
            'say "bottom_right" (the last query sees the last key), "top_left" (query 0 sees key 0) '
            "or align=n (query 0 stands at key n)"
        )
        if s_q != s_k:
            raise Invalid(
                f"{asked} does not say how the diagonal lies where s_q = {s_q} and s_k = {s_k} "
                f"differ: {corner}"
            )
        if lengths:
            raise Invalid(
                f"{asked} does not say how the diagonal lies where lengths of q and k may differ "
                f"({lengths} is given): {corner}"
            )
        align = "bottom_right"
    for i, side in enumerate((left, right)):
        if side < UNBOUNDED:
            raise Invalid(f"window[{i}] = {side}: it must be 0 or more, or unbounded (-1)")
    return left, right, align, diagonal


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
        return int(whole(name, given)) if type(given) is not int else given
    if cu_seqlens.device.type == "meta":
        raise Invalid(f"packed sequences on the device meta need {name}: cu_seqlens has no numbers there")
    if torch.compiler.is_compiling():
        raise Invalid(
            f"packed sequences under torch.compile need {name}: it cannot be read from cu_seqlens"
        )
    return int(cu_seqlens.diff().max()) if cu_seqlens.numel() > 1 else 0


def _slopes(name: str, x: torch.Tensor | None) -> torch.Tensor | None:
    """ALiBi slopes as (b or 1, h_q)."""
    if x is None or x.dim() == 2:
        return x
    if x.dim() != 1:
        raise Invalid(f"{name} has {x.dim()} axes; its shape is (h_q) or (b, h_q)")
    return x[None]


_AXES = {"scores": four_axes, "head_numbers": _slopes}


def with_axes(name: str, x: torch.Tensor | None) -> torch.Tensor | None:
    """An optional tensor with the axes that the operators take."""
    return _AXES[SHAPES[name]](name, x)


def exact_scale(q: torch.Tensor, scale: Any) -> tuple[torch.Tensor, Any]:
    """q and the scale for the engine where a scale of 0 means that all scores are 0, as in PyTorch and
    FlashAttention. The engine's 0 would ask for 1/sqrt(d), so the 0 goes into q."""
    if scale is None:
        return q, None
    if is_traced(scale):
        return q, number("scale", scale)  # a 0 is refused at the run, where it is known
    scale = number("scale", scale)
    if scale == 0.0:
        return q * 0.0, 1.0
    return q, scale


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
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        x.to(dtype) if x is not None and x.is_floating_point() and x.dtype != torch.float64 else x
        for x in tensors
    )


def no_second_derivative() -> Unsupported:
    return Unsupported(
        "falchion has no second derivative of attention and of norms: a backward pass cannot be "
        "differentiated. Where one is needed (a gradient penalty, a Hessian), use torch's math "
        "backend there."
    )


def no_forward_mode() -> Unsupported:
    return Unsupported(
        "falchion has no forward-mode derivative (jvp) of attention; only the backward pass is "
        "there. Where one is needed, use torch's math backend there."
    )
