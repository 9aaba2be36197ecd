"""Autograd around the operators of _ops.py."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._autograd import autograd_kernel, eager, recorded_backward
from ._ops import COUNT, library
from ._options import Options


gradients = recorded_backward(torch.ops.falchion.attention_backward)


class Attention(torch.autograd.Function):
    """(O, LSE) of the tensors and options of falchion::attention, and at last any_order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> Any:
        return torch.ops.falchion.attention(*args[:-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:COUNT], *output)
        ctx.options = inputs[COUNT:-1]
        ctx.any_order = inputs[-1]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_o: Tensor | None, grad_lse: Tensor | None) -> Any:
        *tensors, o, lse = ctx.saved_tensors
        unused = (None,) * (len(ctx.options) + 1 + COUNT - 5)
        if grad_o is None and grad_lse is None:
            return (None,) * 5 + unused
        if grad_o is None:
            grad_o = torch.zeros_like(o)
        wanted = list(ctx.needs_input_grad[:5])
        recorded = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        run = gradients if recorded else torch.ops.falchion.attention_backward
        grads = run(grad_o, grad_lse, o, lse, *tensors, *ctx.options, ctx.any_order, wanted)
        return (*(x if wants else None for x, wants in zip(grads, wanted)), *unused)


_eager_attention = eager(Attention)
library.impl(
    "attention", autograd_kernel(torch.ops.falchion.attention, Attention, (False,)), "Autograd"
)


def attention_with_gradients(
    tensors: tuple[Tensor | None, ...], options: Options, any_order: bool
) -> tuple[Tensor, Tensor]:
    """(O, LSE), differentiable in q, k, v, bias and alibi. torch.compile traces the operator, which
    records gradients by itself. any_order is not among its options, so that Attention says it; under
    torch.func.grad no tensor requires a gradient there, and the order is then the fixed one."""
    if not torch.compiler.is_compiling():
        o, lse = _eager_attention(*tensors, *options, any_order)
    elif any_order and any(x is not None and x.requires_grad for x in tensors):
        o, lse = Attention.apply(*tensors, *options, any_order)
    else:
        o, lse = torch.ops.falchion.attention(*tensors, *options)
    return o, lse
