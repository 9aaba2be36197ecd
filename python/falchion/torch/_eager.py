"""The short way through autograd for ordinary tensors: one call of C in each pass and no operator.
It is what attention() takes in eager training; everything that has to see an operator goes through
_function.py."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
import torch.utils._device  # C looks for a class of it
from torch import Tensor

from falchion import _fal
from falchion._fields import GAPS

from ._autograd import past_transforms
from ._function import gradients
from ._ops import DIFFERENTIABLE, LEARNED, empty_gradients, empty_output, empty_outputs, operator_arguments
from ._options import CHOSEN_FLAGS, engine

# Whether all are exactly Tensor or Parameter without a negation that waits (some may be None), and no
# mode, no transform and no level of forward-mode AD has to see the call. Not to be asked where
# torch.compile traces.
are_ordinary = _fal._torch_are_ordinary
_is_grad_enabled = torch.is_grad_enabled


def is_recorded(*tensors: Tensor | None) -> bool:
    """Whether autograd records a call with these tensors."""
    return _is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def straight(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    learned: tuple[Tensor | None, ...],
    tensors: dict[str, Tensor],
    options: dict[str, Any],
    return_lse: bool,
) -> Any:
    """falchion.attention or varlen, with rows of no sequence that are 0, which the engine does not
    promise. learned has those of LEARNED."""
    options = {**options, **{name: x for name, x in zip(LEARNED, learned) if x is not None}}
    if "cu_seqlens_q" in tensors:
        if not return_lse:
            o = empty_output(q, v).zero_()
            return engine.varlen(q, k, v, out=o, **tensors, **options)
        o, lse = empty_outputs(q, v, None, tensors["cu_seqlens_q"], "bshd")
        given = {"out": o, "lse": lse, "return_lse": True}
        return engine.varlen(q, k, v, **given, **tensors, **options)
    return engine.attention(q, k, v, return_lse=return_lse, **tensors, **options)


class Eager(torch.autograd.Function):
    """O of q, k, v, bias, alibi and sinks, which may need gradients, or (O, LSE). `call` is (the other
    tensors and the options by the names of falchion.attention or varlen, chosen flags, return_lse)."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        alibi: Tensor | None,
        sinks: Tensor | None,
        call: tuple[dict[str, Tensor], dict[str, Any], tuple[bool, ...], bool],
    ) -> Any:
        tensors, options, flags, return_lse = call
        learned = (bias, alibi, sinks)
        o, lse = straight(q, k, v, learned, tensors, options, True)
        ctx.save_for_backward(q, k, v, *learned, o, lse, *tensors.values())
        ctx.call = tuple(tensors), options, flags
        ctx.set_materialize_grads(False)
        return (o, lse) if return_lse else o

    @staticmethod
    def backward(ctx: Any, grad_o: Tensor | None, grad_lse: Tensor | None = None) -> Any:
        saved = ctx.saved_tensors  # once, for checkpoint()
        q, k, v, *learned = saved[:DIFFERENTIABLE]
        o, lse, *others = saved[DIFFERENTIABLE:]
        names, options, flags = ctx.call
        wanted = ctx.needs_input_grad
        if grad_o is None:
            if grad_lse is None:
                return (None,) * (DIFFERENTIABLE + 1)
            grad_o = torch.zeros_like(o)
        tensors = dict(zip(names, others))
        constant = not any(wanted[3:DIFFERENTIABLE])
        if constant and not _is_grad_enabled() and are_ordinary(grad_o, grad_lse):
            more: dict[str, Any] = {}
            if grad_lse is not None:
                more["grad_lse"] = grad_lse
            more.update((name, x) for name, x in zip(LEARNED, learned) if x is not None)
            if any(flags):
                more.update(zip(CHOSEN_FLAGS, flags))
            if not (wanted[0] and wanted[1] and wanted[2]):
                grad_q, grad_k, grad_v, *_ = empty_gradients(q, k, v, learned, wanted[:DIFFERENTIABLE])
                keys = (grad_k, grad_v) if wanted[1] or wanted[2] else (None, None)
                more.update(GAPS, grads=(grad_q if wanted[0] else None, *keys))
            if "cu_seqlens_q" in tensors:
                run = engine.varlen_backward
                more.update(GAPS)
            else:
                run = engine.attention_backward
            grads = run(grad_o, q, k, v, o, lse, **more, **tensors, **options)
            if not (wanted[0] and wanted[1] and wanted[2]):
                grads = tuple(x if wants else None for x, wants in zip(grads, wanted))
            return (*grads, *(None,) * (len(LEARNED) + 1))
        inputs, chosen = operator_arguments(q, k, v, learned, tensors, options)
        run = gradients if _is_grad_enabled() else torch.ops.falchion.attention_backward
        grads = run(grad_o, grad_lse, o, lse, *inputs, *chosen, *flags, list(wanted[:DIFFERENTIABLE]))
        return (*(x if wants else None for x, wants in zip(grads, wanted)), None)


record = past_transforms(Eager)
