"""linear_attention(): autograd around the operators of _linear_ops.py."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Never

import torch
from torch import Tensor

from falchion._names import refuse

from ._autograd import autograd_kernel, eager, past_transforms, recorded_backward
from ._eager import are_ordinary, is_recorded
from ._linear_ops import COUNT, LinearOptions, backward, forward, keywords
from ._nested import refuse_nested
from ._ops import library
from ._options import (
    Backend,
    Layout,
    autocast,
    engine,
    flag,
    known_whole,
    last_contiguous,
    lengths,
    longest,
    number,
)


_gradients = recorded_backward(torch.ops.falchion.linear_attention_backward)


class LinearAttention(torch.autograd.Function):
    """(O, state, z) of the tensors and options of falchion::linear_attention."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> Any:
        return torch.ops.falchion.linear_attention(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:COUNT])
        ctx.options = inputs[COUNT:]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, grad_o: Tensor | None, grad_state: Tensor | None, grad_z: Tensor | None
    ) -> Any:
        tensors = ctx.saved_tensors
        options = LinearOptions(*ctx.options)
        unused = (None,) * (1 + len(options))
        if grad_o is None and grad_state is None and grad_z is None:
            return (None,) * 6 + unused
        if grad_o is None:
            grad_o = torch.zeros_like(tensors[2])
        grad_o = last_contiguous(grad_o)  # that of o.sum() is one number, expanded
        if options.wants_state and (grad_state is not None or grad_z is not None):
            q, v = tensors[0], tensors[2]
            shape = _state_shape(tensors, options)
            if grad_state is None:
                grad_state = v.new_zeros(shape, dtype=torch.float32)
            if grad_z is None and options.normalise:
                grad_z = q.new_zeros(shape[:-1], dtype=torch.float32)
        else:
            grad_state = grad_z = None
        run: Any = torch.ops.falchion.linear_attention_backward
        if not torch.compiler.is_compiling():
            if torch.is_grad_enabled():
                run = _gradients
            elif are_ordinary(grad_o, grad_state, grad_z, *tensors):
                run = backward  # without the dispatcher
        grads = run(grad_o, grad_state, grad_z, *tensors, *ctx.options)
        wanted = zip(grads, ctx.needs_input_grad[:6])
        return (*(x if wants else None for x, wants in wanted), *unused)


class Ordinary(LinearAttention):
    """The same for ordinary tensors, without the dispatcher."""

    forward = staticmethod(forward)


_eager = eager(LinearAttention)
_record = past_transforms(Ordinary)
library.impl(
    "linear_attention",
    autograd_kernel(torch.ops.falchion.linear_attention, LinearAttention),
    "Autograd",
)


def _state_shape(tensors: tuple[Any, ...], options: LinearOptions) -> tuple[int, ...]:
    q, _, v, _, _, _, cu_seqlens = tensors
    packed = cu_seqlens is not None
    heads = v.shape[1 if packed or options.layout == "bhsd" else 2]
    b = cu_seqlens.shape[0] - 1 if packed else q.shape[0]
    return (b, heads, q.shape[-1], v.shape[-1])


def _states(initial: Any, normalise: bool) -> tuple[Tensor | None, Tensor | None]:
    """initial_state as (S, z), where z is there only with normalise."""
    if initial is None:
        return None, None
    if not normalise:
        if not isinstance(initial, Tensor):
            raise TypeError(
                f"initial_state is a {type(initial).__name__}, not a tensor: "
                "without normalise=True it is S alone"
            )
        return initial, None
    pair = tuple(initial) if isinstance(initial, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(x, Tensor) for x in pair):
        raise TypeError("initial_state must be a pair of tensors (S, z): normalise is True")
    return pair


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    feature_map: str | None = None,
    decay: Tensor | None = None,
    normalise: bool = False,
    eps: float = 1e-6,
    scale: float | None = None,
    reverse: bool = False,
    initial_state: Tensor | tuple[Tensor, Tensor] | None = None,
    return_state: bool = False,
    cu_seqlens: Tensor | None = None,
    max_s: int | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    segments: int = 0,
    **foreign: Never,
) -> Any:
    """Causal linear attention with gradients in q, k, v, decay and the initial state. The options
    are those of falchion.linear_attention.

    q and k are (b, s, h_qk, d_qk), v is (b, s, h_v, d_v); decay is (h_v) or (b, s, h_v) in float32;
    states are (b, h_v, d_qk, d_v) in float32, with normalise a pair with z (b, h_v, d_qk). With
    return_state=True the second result is the last state, and it is differentiable too. Raises what
    attention() raises."""
    if foreign:
        refuse(linear_attention, foreign)
    q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    normalise, return_state = flag("normalise", normalise), flag("return_state", return_state)
    refuse_nested("linear_attention", q, k, v)
    cu_seqlens = lengths("cu_seqlens", cu_seqlens, q)
    state, z = _states(initial_state, normalise)
    options = LinearOptions(
        longest("max_s", max_s, cu_seqlens) if cu_seqlens is not None else 0,
        feature_map or "identity",
        normalise,
        number("eps", eps),
        number("scale", scale),
        flag("reverse", reverse),
        layout,
        backend,
        known_whole("segments", segments),
        return_state,
    )
    tensors = (q, k, v, decay, state, z, cu_seqlens)
    run: Any = torch.ops.falchion.linear_attention
    if not torch.compiler.is_compiling():
        run = _eager
        if are_ordinary(*tensors):
            if cu_seqlens is None and not is_recorded(*tensors):
                given = keywords(tensors, options)
                return engine.linear_attention(q, k, v, **given, return_state=return_state)
            run = _record
    o, last, last_z = run(*tensors, *options)
    if not return_state:
        return o
    return o, ((last, last_z) if normalise else last)
