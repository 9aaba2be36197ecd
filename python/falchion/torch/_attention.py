"""attention() and varlen(): straight to C where nothing but the result is asked for, else through
autograd."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Mapping, Unpack

import torch
from torch import Tensor

from falchion import Invalid, _fal
from falchion._fields import FLAGS, LENGTHS, NUMBERS, SCALES, SHAPES, TENSORS
from falchion._names import refuse, with_options
from falchion.types import ByteOptions, DenseByteOptions, Options

from ._bytes import attend_bytes
from ._eager import are_ordinary, is_recorded, record, straight
from ._function import attention_with_gradients
from ._nested import nested_call, refuse_beside_nested, refuse_nested
from ._ops import BYTES, LEARNED, operator_arguments
from ._options import (
    CHOSEN_FLAGS,
    autocast,
    causal_of,
    convert_lengths,
    draw,
    drops_of,
    flag,
    lengths,
    longest,
    number,
    with_axes,
)

_straight = _fal._torch_attention
_is_compiling = torch.compiler.is_compiling
_OF_DENSE = frozenset(DenseByteOptions.__annotations__)
_OF_PACKED = frozenset(ByteOptions.__annotations__)
_OF_BYTES = (*SCALES, "k_scale_rows")
_STRAIGHT = frozenset(Options.__annotations__).difference(LENGTHS)  # what C takes as it comes


@with_options(DenseByteOptions)
def attention(q: Tensor, k: Tensor, v: Tensor, **options: Unpack[DenseByteOptions]) -> Any:
    """Softmax attention with gradients in q, k, v, bias, alibi and sinks. The
    options are those of
    falchion.attention.

    q is (b, s_q, h_q, d_qk), k (b, s_k, h_k, d_qk), v (b, s_k, h_k, d_v) in float32, float16 or
    bfloat16; with layout="bhsd" they are (b, h, s, d), which is the order of torch's own attention.
    The result lies as q does. With return_lse=True the second result is the LSE, (b, h_q, s_q) in
    float32, and it is differentiable too.

    dropout draws seed and offset from torch's generator of q's device, so torch.manual_seed repeats
    a run. The backward pass gives the same bits each time; any_order=True lets sums of the gradient
    of q be made in any order, which is faster on GPUs, unless torch.use_deterministic_algorithms is
    on. Rows past used_q are 0 in the result.

    q and k may have 8 bits, with v of 8 or 16, q_scale, k_scale, v_scale and k_scale_rows, as
    falchion.attention says: without gradients and autocast.

    Raises falchion.Invalid, falchion.Unsupported (also for second derivatives and for forward-mode
    AD), falchion.Device and falchion.Workspace, each with the argument, its value and the limit."""
    given: dict[str, Any] = options  # type: ignore[assignment]
    ordinary, compiling = False, _is_compiling()
    if compiling or not options.keys() <= _STRAIGHT:
        given = _given(attention, options, _OF_DENSE)
        convert_lengths(given, q)
        if q.dtype in BYTES or any(given.get(name) is not None for name in _OF_BYTES):
            given, drops, return_lse, _ = _settle(given)
            return attend_bytes(q, k, v, given, drops, return_lse)
        for name in _OF_BYTES:
            given.pop(name, None)
    dropout = given.get("dropout", 0.0)
    if not compiling and (dropout if type(dropout) is float else drops_of(dropout)[1]) == 0.0:
        found = _straight(q, k, v, **given)
        ordinary = found is NotImplemented
        if not (ordinary or found is None):
            return found
    given, drops, return_lse, flags = _settle(given)
    if q.dtype in BYTES:
        return attend_bytes(q, k, v, given, drops, return_lse)
    if q.is_nested or k.is_nested or v.is_nested:
        refused = [(name, given.get(name)) for name in (*TENSORS, *LENGTHS) if SHAPES.get(name) != "head_numbers"]
        refuse_beside_nested(*refused, ("return_lse", return_lse or None))
        (q, k, v), sequences, again = nested_call(q, k, v, given.pop("layout", "bshd"))
        given.update(zip(CHOSEN_FLAGS, flags))
        return again(varlen(q, k, v, **sequences, **given))
    if not ordinary:
        q, k, v, bias = autocast(q, k, v, given.get("bias"))  # type: ignore[assignment]
        if bias is not None:
            given["bias"] = bias
    tensors: dict[str, Any] = {
        name: with_axes(name, given.pop(name)) for name in TENSORS if name in given
    }
    tensors.update((name, given.pop(name)) for name in LENGTHS if name in given)
    if drops:
        tensors["seed"] = draw(q)
    learned = tuple([tensors.pop(name, None) for name in LEARNED])
    if ordinary:
        return record(q, k, v, *learned, (tensors, given, flags, return_lse))
    if not compiling:
        ordinary = are_ordinary(q, k, v, *learned, *tensors.values())
    return _run(q, k, v, learned, tensors, given, flags, ordinary, return_lse)


def _given(function: Any, options: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What is given of the options that the function has."""
    for name in options:
        if name not in known:
            refuse(function, {name: None})
    return {**options}


def _settle(
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], bool, bool, tuple[bool, ...]]:
    """What the engine is told of the options, with numbers, True and False where something stands for
    them; whether the call drops anything; return_lse; and the flags of the backward pass."""
    given = {name: x for name, x in options.items() if x is not None}
    for name in NUMBERS:
        if name in given and name != "dropout":
            given[name] = number(name, given[name])
    for name in FLAGS:
        if name in given:
            given[name] = flag(name, given[name])
    drops, return_lse = False, False
    if "dropout" in given:
        drops, share = drops_of(given.pop("dropout"))
        if drops:
            given["dropout"] = share
    if "causal" in given:
        causal = causal_of(given.pop("causal"))
        if causal is not False:
            given["causal"] = causal
    if "return_lse" in given:
        return_lse = flag("return_lse", given.pop("return_lse"))
    flags = tuple(flag(name, given.pop(name, False)) for name in CHOSEN_FLAGS)
    if any(flags) and torch.are_deterministic_algorithms_enabled():
        flags = tuple(on and name != "any_order" for name, on in zip(CHOSEN_FLAGS, flags))
    return given, drops, return_lse, flags


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    learned: tuple[Tensor | None, ...],
    tensors: dict[str, Tensor],
    options: dict[str, Any],
    flags: tuple[bool, ...],
    ordinary: bool,
    return_lse: bool,
) -> Any:
    """One of the three ways: through the operators, through autograd alone, straight to C."""
    if not ordinary:
        inputs, chosen = operator_arguments(q, k, v, learned, tensors, options)
        o, lse = attention_with_gradients(inputs, chosen, flags)
        return (o, lse) if return_lse else o
    if is_recorded(q, k, v, *learned):
        return record(q, k, v, *learned, (tensors, options, flags, return_lse))
    return straight(q, k, v, learned, tensors, options, return_lse)


@with_options(ByteOptions)
def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    **options: Unpack[ByteOptions],
) -> Any:
    """attention() over packed sequences: q is (total_q, h_q, d_qk), k and v are (total_k, h_k, d),
    and sequence n has the rows cu_seqlens[n] to cu_seqlens[n + 1] (int32, on the tensors' device).
    Without cu_seqlens_k both are the same.

    max_q and max_k are the longest lengths. Without them they are read from cu_seqlens, which waits
    for the device; under torch.compile they must be given. The LSE is (h_q, total_q). Rows of no
    sequence are 0."""
    given = _given(varlen, options, _OF_PACKED)
    refuse_nested("varlen", q, k, v)
    given, drops, return_lse, flags = _settle(given)
    cu_seqlens_k = None if cu_seqlens_k is cu_seqlens_q else lengths("cu_seqlens_k", cu_seqlens_k, q)
    cu_seqlens_q = lengths("cu_seqlens_q", cu_seqlens_q, q)
    causal, window = given.get("causal", False), given.get("window")
    if "align" not in given and not isinstance(causal, str):
        if cu_seqlens_k is None:
            given["align"] = "bottom_right"
        elif causal or window is not None:
            asked = "causal = True" if causal else f"window = {window}"
            raise Invalid(
                f"{asked}, and cu_seqlens_k is another tensor than cu_seqlens_q, so that lengths may "
                "differ: say which corner is meant, 'bottom_right' or 'top_left', or align=n"
            )
    if cu_seqlens_k is None:
        cu_seqlens_k, max_k = cu_seqlens_q, max_q if max_k is None else max_k
    max_q = longest("max_q", max_q, cu_seqlens_q)
    max_k = (
        max_q
        if cu_seqlens_k is cu_seqlens_q and max_k is None
        else longest("max_k", max_k, cu_seqlens_k)
    )
    of_bytes = q.dtype in BYTES or any(given.get(name) is not None for name in _OF_BYTES)
    if not of_bytes:
        q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    convert_lengths(given, q)
    tensors: dict[str, Any] = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    if of_bytes:
        given.update(tensors, max_q=max_q, max_k=max_k)
        return attend_bytes(q, k, v, given, drops, return_lse)
    tensors.update((name, given.pop(name)) for name in LENGTHS if name in given)
    if drops:
        tensors["seed"] = draw(q)
    learned = (None, *[with_axes(name, given.pop(name, None)) for name in LEARNED[1:]])  # no bias
    given.update(max_q=max_q, max_k=max_k)
    ordinary = not _is_compiling() and are_ordinary(q, k, v, *learned, *tensors.values())
    return _run(q, k, v, learned, tensors, given, flags, ordinary, return_lse)
