"""The types of arguments, for annotations: `from falchion.types import Causal, Layout`."""

from typing import Any, Literal, TypeAlias, TypeVar

__all__ = ["Activation", "Align", "AnyArray", "Array", "Backend", "Causal", "Layout", "State", "Window"]

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
