"""Autograd around the operators of _ops.py."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._autograd import autograd_kernel, eager, recorded_backward
from ._ops import COUNT, DIFFERENTIABLE, library
from ._options import NO_FLAGS, Options


gradients = recorded_backward(torch.ops.falchion.attention_backward)


_OPERANDS = COUNT + len(Options._fields)  # how many arguments falchion::attention takes


class Attention(torch.autograd.Function):
    """(O, LSE) of the tensors and options of falchion::attention, and at last the chosen flags."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> Any:
        return torch.ops.falchion.attention(*args[:_OPERANDS])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:COUNT], *output)
        ctx.options = inputs[COUNT:]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_o: Tensor | None, grad_lse: Tensor | None) -> Any:
        *tensors, o, lse = ctx.saved_tensors
        unused = (None,) * (len(ctx.options) + COUNT - DIFFERENTIABLE)
        if grad_o is None and grad_lse is None:
            return (None,) * DIFFERENTIABLE + unused
        if grad_o is None:
            grad_o = torch.zeros_like(o)
        wanted = list(ctx.needs_input_grad[:DIFFERENTIABLE])
        recorded = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        run = gradients if recorded else torch.ops.falchion.attention_backward
        grads = run(grad_o, grad_lse, o, lse, *tensors, *ctx.options, wanted)
        return (*(x if wants else None for x, wants in zip(grads, wanted)), *unused)


_eager_attention = eager(Attention)
library.impl(
    "attention", autograd_kernel(torch.ops.falchion.attention, Attention, NO_FLAGS), "Autograd"
)


def attention_with_gradients(
    tensors: tuple[Tensor | None, ...], options: Any, flags: tuple[bool, ...] = NO_FLAGS
) -> tuple[Tensor, Tensor]:
    """(O, LSE), differentiable in q, k, v, bias, alibi and sinks. torch.compile traces the operator, which
    records gradients by itself. The flags of the backward pass are not among its options, so that
    Attention says them; under torch.func.grad no tensor requires a gradient there, and none is set."""
    if not torch.compiler.is_compiling():
        o, lse = _eager_attention(*tensors, *options, *flags)
    elif any(flags) and any(x is not None and x.requires_grad for x in tensors):
        o, lse = Attention.apply(*tensors, *options, *flags)
    else:
        o, lse = torch.ops.falchion.attention(*tensors, *options)
    return o, lse
