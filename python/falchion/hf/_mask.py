"""The mask function of falchion.hf, and the mask that it makes.

transformers hands the mask of a model to whatever computes attention there: to falchion.hf.attention,
or to code of the model's own, as in Bloom, which never asks for another attention. So the mask is
right for every reader. It is a tensor that reads as the one that transformers makes for eager
attention, (b, 1, s_q, s_k) with 0 where a key is seen and the smallest number where not, and that is
written into memory only when it is read as such. attention() reads the few numbers it is made of."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers import masking_utils
from transformers.utils.import_utils import is_tracing

_aten = torch.ops.aten


_PARTS = "first", "end", "seen", "corner"


class Mask(Tensor):
    """Which keys each query sees: a band at the bottom right corner with the first key and the end of
    the keys of each sequence, or a bool tensor (b, 1, s_q, s_k). Of a static cache the corner is where the
    keys that are there end."""

    like: Tensor  # empty, of the mask's type and device: torch.compile wants one tensor at least
    causal: bool
    window: int  # how many keys a query sees at most, 0: any
    first: Tensor | None  # (b) int32
    end: Tensor | None  # (b) int32
    seen: Tensor | None  # (b, 1, s_q, s_k) bool; then there is no band, no first and no end
    corner: Tensor | None  # (b) int32: how many keys a static cache has; then there is no end
    _made: Tensor | None  # the tensor of eager attention, from when it was first read
    _changed: bool  # somebody has a view of it, or has written to it

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls: type[Mask],
        shape: tuple[int, ...],
        like: Tensor,
        causal: bool = False,
        window: int = 0,
        first: Tensor | None = None,
        end: Tensor | None = None,
        seen: Tensor | None = None,
        corner: Tensor | None = None,
    ) -> Mask:
        made: Mask = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=like.dtype, device=like.device
        )
        made.like = like
        made.causal, made.window, made.first, made.end, made.seen = causal, window, first, end, seen
        made.corner = corner
        made._made, made._changed = None, False
        return made

    def matrix(self) -> Tensor:
        """The tensor that eager attention gets."""
        if self._made is None:
            seen = self._matrix_of_band() if self.seen is None else self.seen
            self._made = torch.where(seen, self.like.new_zeros(()), torch.finfo(self.dtype).min)
        return self._made

    def _matrix_of_band(self) -> Tensor:
        s_q, s_k = self.shape[2:]
        key = torch.arange(s_k, device=self.device)
        place = torch.arange(s_k - s_q, s_k, device=self.device)[:, None]
        if self.corner is not None:
            place = place - s_k + self.corner[:, None, None, None]
        seen = torch.ones((1, 1, s_q, s_k), dtype=torch.bool, device=self.device)
        if self.causal:
            seen = seen & (key <= place)
        if self.window > 0:
            seen = seen & (key > place - self.window)
        if self.first is not None:
            seen = seen & (key >= self.first[:, None, None, None])
        if self.end is not None:
            seen = seen & (key < self.end[:, None, None, None])
        return seen.expand(self.shape).contiguous()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        mask = args[0] if args and isinstance(args[0], Mask) else None
        if mask is not None and not mask._changed:
            if func in (_aten.detach.default, _aten.alias.default):
                return mask._with(mask.device)
            moves = func is _aten._to_copy.default and kwargs.get("dtype") in (None, mask.dtype)
            if moves and set(kwargs) <= {"dtype", "layout", "device", "pin_memory", "non_blocking"}:
                return mask._with(kwargs.get("device") or mask.device)
        if any(x.alias_info is not None for x in func._schema.returns):
            for x in (*args, *kwargs.values()):
                if isinstance(x, Mask):
                    x._changed = True
        return func(*tree_map_only(Mask, Mask.matrix, args), **tree_map_only(Mask, Mask.matrix, kwargs))

    def _with(self, device: Any) -> Mask:
        """The same on a device."""
        tensors = (getattr(self, name) for name in _PARTS)
        parts = (x if x is None else x.to(device) for x in tensors)
        return Mask(tuple(self.shape), self.like.to(device), self.causal, self.window, *parts)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        parts = [name for name in ("like", *_PARTS) if getattr(self, name) is not None]
        return parts, (self.causal, self.window)

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], said: Any, shape: Any, _: Any) -> Mask:
        causal, window = said
        return Mask(shape, causal=causal, window=window, **parts)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Mask(shape={tuple(self.shape)}, causal={self.causal}, window={self.window})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.matrix().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.matrix().clone()


# Functions and no methods: torch.compile takes a method of a tensor for an operator.


def is_plain(mask: Mask) -> bool:
    """Whether a band says all."""
    return mask.first is mask.end is mask.seen is mask.corner is None and not mask._changed


def options_of(mask: Mask) -> dict[str, Any]:
    """What the mask says, as options of falchion.torch.attention. With a band rows of padding are not
    computed, and are 0; without one they see what the others see."""
    if mask._changed:
        return {"bias": mask.matrix()}
    if mask.seen is not None:
        return {"mask": mask.seen}
    s_q, s_k = mask.shape[2], mask.shape[3]
    found: dict[str, Any] = {}
    if mask.first is not None:
        found["first_k"] = mask.first
    if mask.end is not None or mask.corner is not None:
        found["used_k"] = mask.end if mask.corner is None else mask.corner
    # A single query sees all that came before it.
    if not mask.causal or (s_q == 1 and not mask.window):
        return found
    if mask.end is not None:
        found["used_q"] = mask.end if s_q == s_k else (mask.end - (s_k - s_q)).clamp(min=0)
    found["causal"] = "bottom_right"
    if mask.window > 0:
        found["window"] = (mask.window - 1, None)
    return found


def _band_in_words(function: Callable[..., Any]) -> tuple[bool, int] | None:
    """(causal, window) of a mask function of transformers, with a window of 0 where there is none.
    None: it is another one, such as a chunked, packed or user's mask."""
    if function is masking_utils.causal_mask_function:
        return True, 0
    if function is masking_utils.bidirectional_mask_function:
        return False, 0
    parts = _captured(function, "and_masks.<locals>.and_mask").get("mask_functions", ())
    if len(parts) == 2 and parts[1] is masking_utils.causal_mask_function:
        window = _captured(parts[0], "sliding_window_overlay.<locals>.inner_mask")
        if isinstance(window.get("sliding_window"), int):
            return True, window["sliding_window"]
    return None


def _captured(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """What a nested function of this name has captured; nothing where it is another function."""
    if getattr(function, "__qualname__", "") != name or function.__closure__ is None:
        return {}
    return dict(zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__)))


def _first_and_end(padding: Tensor) -> tuple[Tensor | None, Tensor | None] | None:
    """Where the keys of each sequence begin and end, (b) int32; None where all begin at 0, or end at
    the end. None alone: one has holes."""
    s_k = padding.shape[1]
    marks = padding.int()
    count = marks.sum(1)
    first = torch.where(count > 0, marks.argmax(1), 0)
    end = torch.where(count > 0, s_k - marks.flip(1).argmax(1), 0)
    facts = torch.stack([(end - first == count).all(), (first > 0).any(), (end < s_k).any()])
    whole, begins, ends = facts.tolist()  # the one time that this waits for a GPU
    if not whole:
        return None
    return first.int() if begins else None, end.int() if ends else None


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    device: Any = "cpu",
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Tensor | None:
    """The mask of a model: a Mask, or where the model is traced the tensor that transformers makes
    for eager attention. None as there: all keys are seen, and the model allows that there is none."""
    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    asked = (batch_size, q_length, kv_length, q_offset, kv_offset, function, attention_mask)
    is_plain = isinstance(q_offset, int) and isinstance(kv_offset, int)
    if is_tracing(attention_mask) or torch.compiler.is_compiling():
        is_plain = False
    elif not is_plain or q_offset + q_length < kv_offset + kv_length:
        static = _of_static_cache(*asked, device=device, dtype=dtype)
        if static is not None:
            return static
    if not is_plain:
        eager: Tensor | None = masking_utils.eager_mask(*asked, device=device, dtype=dtype, **options)
        return eager
    shape = (batch_size, 1, q_length, kv_length)
    like = torch.empty(0, dtype=dtype, device=device)
    band = _band_in_words(function)
    # A band is that of the bottom right corner; full attention has no corner, so that queries and keys
    # of cross attention may end anywhere.
    if band is not None and (not band[0] or q_offset + q_length == kv_offset + kv_length):
        causal, window = band
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is None:
            return Mask(shape, like, causal, window)
        found = _first_and_end(padding[:, kv_offset : kv_offset + kv_length])
        if found is not None:
            return Mask(shape, like, causal, window, *found)
    options.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    seen = masking_utils.sdpa_mask(*asked, device=device, **options)
    return Mask(shape, like, seen=seen)


def _of_static_cache(
    b: int,
    s_q: int,
    s_k: int,
    q_offset: Any,
    kv_offset: Any,
    function: Callable[..., Any],
    attention_mask: Tensor | None,
    device: Any,
    dtype: torch.dtype,
) -> Mask | None:
    """The mask of a static cache, whose offset may be a tensor: a causal band over the keys that are there,
    with padding on the left alone. None: it is another one."""
    band = _band_in_words(function)
    if band is None or not band[0] or kv_offset != 0 or not isinstance(kv_offset, int):
        return None
    first = None
    if attention_mask is not None:
        if attention_mask.dim() != 2 or attention_mask.shape[1] < int(q_offset) + s_q:
            return None
        found = _first_and_end(attention_mask)
        if found is None or found[1] is not None:
            return None
        first = found[0]
    corner = torch.as_tensor(q_offset + s_q, device=device).int().expand(b).contiguous()
    like = torch.empty(0, dtype=dtype, device=device)
    return Mask((b, 1, s_q, s_k), like, *band, first, corner=corner)
