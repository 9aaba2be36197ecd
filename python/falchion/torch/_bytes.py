"""Attention of q and k of 8 bits with scales, which has no gradients: one call of C where the tensors are ordinary, and
the operator torch.ops.falchion.attention_of_bytes where torch.compile or a mode has to see it."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from falchion import Invalid, Unsupported
from falchion._fields import LENGTHS, SCALES, TENSORS

from ._eager import are_ordinary, is_recorded, straight
from ._nested import refuse_nested
from ._ops import BYTES, COUNT, INPUTS, LEARNED, OPTIONAL, library, operator_arguments, outputs_of, run_forward
from ._options import SCHEMA, Options, whole

# Those of the operator falchion::attention; what the engine does not take beside q of 8 bits it refuses by its name.
_TENSORS = (*(name for name in TENSORS if name not in LEARNED), *LENGTHS, *SCALES, "cu_seqlens_q", "cu_seqlens_k")
_SCALES_END = COUNT - 3 + len(SCALES)  # in what follows q, k and v
library.define(
    f"attention_of_bytes({INPUTS}, {', '.join(f'Tensor? {name}' for name in SCALES)}, {SCHEMA}, SymInt k_scale_rows) -> "
    "(Tensor, Tensor)"
)
_is_compiling = torch.compiler.is_compiling


def attend_bytes(
    q: Tensor, k: Tensor, v: Tensor, given: dict[str, Any], drops: bool, return_lse: bool
) -> Any:
    """O, or (O, LSE). `given` has the options of attention() or, with cu_seqlens_q, of varlen(), none of them None."""
    _check(q, k, v, given, drops)
    rows = whole("k_scale_rows", given.pop("k_scale_rows", 0))
    learned = tuple([given.pop(name, None) for name in LEARNED])
    tensors = {name: given.pop(name) for name in _TENSORS if name in given}
    if not _is_compiling() and are_ordinary(q, k, v, *learned, *tensors.values()):
        return straight(q, k, v, learned, tensors, {**given, "k_scale_rows": rows}, return_lse)
    inputs, chosen = operator_arguments(q, k, v, learned, tensors, given)
    scales = [tensors.get(name) for name in SCALES]
    o, lse = torch.ops.falchion.attention_of_bytes(*inputs, *scales, *chosen, rows)
    return (o, lse) if return_lse else o


def _check(q: Tensor, k: Tensor, v: Tensor, given: dict[str, Any], drops: bool) -> None:
    if q.dtype not in BYTES:
        if given.get("q_scale") is None and (given.get("k_scale") is not None or given.get("v_scale") is not None):
            raise Invalid(
                f"k_scale or v_scale is given, but q has the type {q.dtype}: here scales are of q, k and v of 8 bits; "
                "a cache of 8 bits is for falchion.torch.decode"
            )
        raise Invalid(f"q_scale or k_scale_rows is given, but q has the type {q.dtype}: only q of 8 bits has scales")
    refuse_nested("attention of 8 bits", q, k, v)
    if drops:
        raise Unsupported(f"dropout with q of 8 bits ({q.dtype}) is not built")
    inputs = ("q", q), ("k", k), ("v", v), *((name, given.get(name)) for name in (*LEARNED, *SCALES))
    for name, x in inputs:
        if is_recorded(x):
            raise Unsupported(
                f"{name} requires a gradient, and attention of 8 bits (q is of {q.dtype}) has none: give "
                f"{name}.detach(), or call it under torch.no_grad()"
            )


def _forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    given, options = dict(zip(OPTIONAL, rest)), Options(*rest[_SCALES_END:-1])
    scales = dict(zip(SCALES, rest[COUNT - 3 : _SCALES_END]))
    return run_forward(q, k, v, given, options, **scales, k_scale_rows=rest[-1])


def _fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return outputs_of(q, v, dict(zip(OPTIONAL, rest)), Options(*rest[_SCALES_END:-1]).layout)


for _device in "CPU", "CUDA":
    library.impl("attention_of_bytes", torch.no_grad()(_forward), _device)
torch.library.register_fake("falchion::attention_of_bytes", _fake, lib=library)
