"""The short way through autograd for ordinary tensors: one call of C in each pass and no operator.
It is what attention() takes in eager training; everything that has to see an operator goes through
_function.py."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


from ._function import Gradients
from ._ops import operator_arguments
from ._options import engine, every_key

_TYPES = (Tensor, torch.nn.Parameter)
_dispatch_keys = torch._C._dispatch_keys
_function_modes = torch._C._len_torch_function_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack


def _key_sets() -> frozenset[int]:
    """The dispatch keys of ordinary tensors: no functorch wrapper, no lazy negation, not fake, not
    sparse."""
    with torch.inference_mode():
        inference = torch.empty(0)
    found = set()
    for x in (inference, torch.empty(0)):
        keys = _dispatch_keys(x)
        found.add(keys.raw_repr())
        cuda = keys.remove(torch._C.DispatchKey.CPU)
        if keys.has(torch._C.DispatchKey.AutogradCPU):
            cuda = cuda.remove(torch._C.DispatchKey.AutogradCPU)
            cuda = cuda.add(torch._C.DispatchKey.AutogradCUDA)
        found.add(cuda.add(torch._C.DispatchKey.CUDA).raw_repr())
    return frozenset(found)


_PLAIN = _key_sets()


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether all are exactly Tensor or Parameter with ordinary keys, and no mode, no transform and
    no level of forward-mode AD has to see the call. Not to be called where torch.compile traces."""
    if _function_modes() or _dispatch_modes() or forward_ad._current_level >= 0:
        return False
    for x in tensors:
        if x is None:
            continue
        if type(x) not in _TYPES or _dispatch_keys(x).raw_repr() not in _PLAIN:
            return False
    return True


def straight(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    alibi: Tensor | None,
    tensors: dict[str, Tensor],
    options: dict[str, Any],
    return_lse: bool,
) -> Any:
    """falchion.attention, whose bias and mask have an extent of 1 on no key."""
    if bias is not None or "mask" in tensors:
        s_k = k.shape[1 if options["layout"] == "bshd" else 2]
        bias = every_key(bias, s_k)
        mask = every_key(tensors.get("mask"), s_k)
        if mask is not None:
            tensors = {**tensors, "mask": mask}
    return engine.attention(
        q, k, v, bias=bias, alibi=alibi, return_lse=return_lse, **tensors, **options
    )


class Eager(torch.autograd.Function):
    """(O, LSE) of q, k, v, bias and alibi, which may need gradients, and of the other tensors and
    options of falchion.attention by their names."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        alibi: Tensor | None,
        tensors: dict[str, Tensor],
        options: dict[str, Any],
        any_order: bool,
    ) -> tuple[Tensor, Tensor]:
        o, lse = straight(q, k, v, bias, alibi, tensors, options, True)
        ctx.save_for_backward(q, k, v, bias, alibi, o, lse, *tensors.values())
        ctx.names = tuple(tensors)
        ctx.options = options
        ctx.any_order = any_order
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, grad_o: Tensor | None, grad_lse: Tensor | None) -> Any:
        q, k, v, bias, alibi, o, lse, *others = ctx.saved_tensors
        if grad_o is None:
            if grad_lse is None:
                return (None,) * 8
            grad_o = torch.zeros_like(o)
        tensors = dict(zip(ctx.names, others))
        wanted = ctx.needs_input_grad[:5]
        if (
            wanted == (True, True, True, False, False)
            and bias is None
            and "mask" not in tensors
            and not torch.is_grad_enabled()
            and is_plain(grad_o, grad_lse)
        ):
            grads = engine.attention_backward(
                grad_o,
                q,
                k,
                v,
                o,
                lse,
                grad_lse=grad_lse,
                alibi=alibi,
                any_order=ctx.any_order,
                **tensors,
                **ctx.options,
            )
            return (*grads, None, None, None, None, None)
        inputs, options = operator_arguments(q, k, v, bias, alibi, tensors, ctx.options)
        run = Gradients.apply if torch.is_grad_enabled() else torch.ops.falchion.attention_backward
        arguments = (grad_o, grad_lse, o, lse, *inputs, *options, ctx.any_order, list(wanted))
        grads = run(*arguments)
        return (*(x if wants else None for x, wants in zip(grads, wanted)), None, None, None)
