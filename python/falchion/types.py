"""The types of arguments, for annotations: `from falchion.types import Causal, Layout`."""

from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

__all__ = [
    "Activation",
    "Align",
    "AnyArray",
    "Array",
    "Backend",
    "ByteOptions",
    "CacheOptions",
    "Causal",
    "DenseByteOptions",
    "Layout",
    "Options",
    "PackedOptions",
    "PageOptions",
    "State",
    "UsedOptions",
    "Window",
]

# An array of NumPy, PyTorch, CuPy or another library with DLPack or __cuda_array_interface__. All arrays of a call are
# of one library and on one device, and what is made is too.
Array = TypeVar("Array")
AnyArray: TypeAlias = Any  # an array of the same library, of another type of numbers: a mask, lengths, an LSE
State: TypeAlias = Any  # (b, h_v, d_qk, d_v) float32; with normalise a pair of it and (b, h_v, d_qk)
Causal: TypeAlias = bool | Literal["bottom_right", "top_left"]
Window: TypeAlias = tuple[int | None, int | None] | list[int | None]
Align: TypeAlias = Literal["bottom_right", "top_left"] | int
Layout: TypeAlias = Literal["bshd", "bhsd"]
Backend: TypeAlias = Literal["best", "ref", "cpu", "sm80", "sm90"]
Activation: TypeAlias = Literal["relu", "gelu_tanh", "gelu_erf", "silu", "swiglu"]
Scaling: TypeAlias = Literal["tensor", "row_col", "block128"]


# The keywords of falchion.torch and falchion.jax, with the defaults of falchion.attention. In falchion.attention itself
# each has a line of help.
class PackedOptions(TypedDict, total=False):
    """Of sequences that are packed, and of all others."""

    causal: Causal
    window: Window | None
    align: Align | None
    scale: float | None
    softcap: float
    alibi: AnyArray | None
    sinks: AnyArray | None
    dropout: float
    return_lse: bool
    any_order: bool
    backend: Backend


class UsedOptions(PackedOptions, total=False):
    """Which rows of a sequence count."""

    used_q: AnyArray | None
    used_k: AnyArray | None
    first_k: AnyArray | None


class ByteOptions(UsedOptions, total=False):
    """Of packed sequences whose q may have 8 bits."""

    q_scale: AnyArray | None
    k_scale: AnyArray | None
    v_scale: AnyArray | None
    k_scale_rows: int


class Options(UsedOptions, total=False):
    """Of sequences that are not packed."""

    bias: AnyArray | None
    mask: AnyArray | None
    layout: Layout


class DenseByteOptions(Options, ByteOptions, total=False):
    """Of sequences that are not packed, whose q may have 8 bits."""


class PageOptions(TypedDict, total=False):
    """Of keys and values that are a KV cache, and where they lie."""

    cache: bool
    page_table: AnyArray | None
    page_starts: AnyArray | None
    k_scale: AnyArray | None
    v_scale: AnyArray | None


class CacheOptions(PageOptions, total=False):
    """Of a KV cache that new keys are written into."""

    k_new: AnyArray | None
    v_new: AnyArray | None
    rotary: AnyArray | None
    rotary_pairs: bool
    split_keys: int
