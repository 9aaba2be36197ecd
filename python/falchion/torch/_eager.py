"""The short way through autograd for ordinary tensors: one call of C in each pass and no operator.
It is what attention() takes in eager training; everything that has to see an operator goes through
_function.py."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext


from ._function import Gradients
from ._ops import empty_gradients, empty_outputs, operator_arguments
from ._options import engine, every_key

_TYPES = (Tensor, torch.nn.Parameter)
_dispatch_keys = torch._C._dispatch_keys
_function_modes = torch._C._len_torch_function_stack
_function_mode = torch._C._get_function_stack_at
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack  # None where torch.func does nothing


def _key_sets() -> frozenset[int]:
    """The dispatch keys of ordinary tensors of the CPU and of CUDA, and of those that are made in
    inference mode: no functorch wrapper, no lazy negation, not fake, not sparse."""
    found = set()
    for device in ("CPU", "CUDA"):
        names = [device, "ADInplaceOrView", f"Autograd{device}", f"Autocast{device}"]
        bits = [_key_bits(name) for name in names]
        found.add(bits[0] | bits[1] | bits[2] | bits[3])
        found.add(bits[0] | bits[3])
    return frozenset(found)


def _key_bits(name: str) -> int:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
    bits: int = keys.raw_repr()
    return bits


_PLAIN = _key_sets()


def _sees_calls() -> bool:
    """Whether a function mode has to see the call. torch.set_default_device and `with device` are
    modes of their own that change where new tensors are made, and attention makes its own beside q."""
    return any(type(_function_mode(i)) is not DeviceContext for i in range(_function_modes()))


def are_plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """is_plain for the three tensors that every call has, in a third of the time. Wrappers of
    functorch are there only while it is active; what has no storage, C refuses."""
    if (_function_modes() and _sees_calls()) or _dispatch_modes() or _transforms():
        return False
    if forward_ad._current_level >= 0 or q.is_neg() or k.is_neg() or v.is_neg():
        return False
    return type(q) in _TYPES and type(k) in _TYPES and type(v) in _TYPES


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether all are exactly Tensor or Parameter with ordinary keys, and no mode, no transform and
    no level of forward-mode AD has to see the call. Not to be called where torch.compile traces."""
    if (_function_modes() and _sees_calls()) or _dispatch_modes() or _transforms():
        return False
    if forward_ad._current_level >= 0:
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
    """falchion.attention or varlen. What the engine does not take or promise is done here: a bias
    and a mask with an extent of 1 for all keys, and rows of no sequence that are 0."""
    if "cu_seqlens_q" in tensors:
        outputs = empty_outputs(q, v, None, tensors["cu_seqlens_q"], "bshd")
        given = {"out": outputs[0], "lse": outputs[1], "return_lse": True}
        engine.varlen(q, k, v, alibi=alibi, **given, **tensors, **options)
        return outputs if return_lse else outputs[0]
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
    options of falchion.attention or varlen by their names."""

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
        constant = not (wanted[3] or wanted[4])
        if constant and not torch.is_grad_enabled() and is_plain(grad_o, grad_lse):
            more = {"grad_lse": grad_lse, "alibi": alibi, "any_order": ctx.any_order}
            if not (wanted[0] and wanted[1] and wanted[2]):
                grad_q, grad_k, grad_v, _, _ = empty_gradients(q, k, v, bias, alibi, wanted)
                keys = (grad_k, grad_v) if wanted[1] or wanted[2] else (None, None)
                more["grads"] = (grad_q if wanted[0] else None, *keys)
                more["zero_unused"] = True
            if "cu_seqlens_q" in tensors:
                run = engine.varlen_backward
                more["zero_unused"] = True
            else:
                run = engine.attention_backward
                s_k = k.shape[1 if ctx.options["layout"] == "bshd" else 2]
                if bias is not None:
                    more["bias"] = every_key(bias, s_k)
                if "mask" in tensors:
                    tensors["mask"] = every_key(tensors["mask"], s_k)
            grads = run(grad_o, q, k, v, o, lse, **more, **tensors, **ctx.options)
            kept = (x if wants else None for x, wants in zip(grads, wanted))
            return (*kept, None, None, None, None, None)
        inputs, options = operator_arguments(q, k, v, bias, alibi, tensors, ctx.options)
        run = Gradients.apply if torch.is_grad_enabled() else torch.ops.falchion.attention_backward
        arguments = (grad_o, grad_lse, o, lse, *inputs, *options, ctx.any_order, list(wanted))
        grads = run(*arguments)
        return (*(x if wants else None for x, wants in zip(grads, wanted)), None, None, None)
