"""Rotary tables in the engine's form: (positions, 2, columns) float32, cosines and then sines. They are made once
for a pair of tensors, and anew when torch has written to one of them. Halves of one float32 tensor are taken as they
are."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

_MOST = 16  # a model has one or two, on each stream
_kept: dict[Any, tuple[Any, Tensor]] = {}


def rotary_table(cos: Tensor, sin: Tensor) -> Tensor:
    """cos and sin are (positions, columns)."""
    one = _halves_of_one(cos, sin)
    if one is not None:
        return one
    if not _may_keep(cos, sin):
        return _make(cos, sin)
    owners = _owner(cos), _owner(sin)
    stream = torch.cuda.current_stream(cos.device).cuda_stream if cos.is_cuda else 0
    key = (*map(id, owners), *map(_place, (cos, sin)), stream)  # on another stream it may not be there yet
    versions = cos._version, sin._version
    found = _kept.get(key)
    if found is not None and found[0][:2] == versions and all(x() is not None for x in found[0][2:]):
        return found[1]
    table = _make(cos, sin)
    gone = [weakref.ref(x, lambda _: _kept.pop(key, None)) for x in owners]
    _kept.pop(key, None)
    _kept[key] = (*versions, *gone), table
    while len(_kept) > _MOST:
        _kept.pop(next(iter(_kept), None), None)
    return table


def _make(cos: Tensor, sin: Tensor) -> Tensor:
    return torch.stack([cos, sin], 1).float()


def _halves_of_one(cos: Tensor, sin: Tensor) -> Tensor | None:
    """The table of which cos and sin are views."""
    if cos.dtype != torch.float32 or sin.dtype != torch.float32 or torch.compiler.is_compiling():
        return None
    if cos.stride() != sin.stride() or cos.untyped_storage().data_ptr() != sin.untyped_storage().data_ptr():
        return None
    apart = sin.storage_offset() - cos.storage_offset()
    if apart <= 0 or cos.stride(1) != 1:
        return None
    return cos.as_strided((cos.shape[0], 2, cos.shape[1]), (cos.stride(0), apart, 1))


def _may_keep(cos: Tensor, sin: Tensor) -> bool:
    """Not what a CUDA graph makes, whose memory is the graph's, nor of tensors that do not count their writes."""
    if torch.compiler.is_compiling() or cos.is_inference() or sin.is_inference():
        return False
    plain = all(type(x) in (Tensor, torch.nn.Parameter) for x in (cos, sin))
    return plain and not (cos.is_cuda and torch.cuda.is_current_stream_capturing())


def _owner(x: Tensor) -> Tensor:
    """Which tensor lives as long as these numbers: a caller may slice anew in each call."""
    return x if x._base is None else x._base


def _place(x: Tensor) -> tuple[Any, ...]:
    return x.data_ptr(), x.dtype, *x.shape, *x.stride()
