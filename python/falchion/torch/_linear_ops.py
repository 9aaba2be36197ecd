"""The operators torch.ops.falchion.linear_attention and linear_attention_backward.

The first gives (O, state, z), of which the last two are empty where no state is wanted, and z is
empty without `normalise`; the second gives the gradients of q, k, v, decay, state and z, empty for
what is not there. decay is (h_v) or (b, s, h_v), in layout "bhsd" (b, h_v, s)."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import torch
from torch import Tensor

from falchion import Invalid, Unsupported

from ._ops import check_kinds, fold, library
from ._options import engine


class LinearOptions(NamedTuple):
    """The options of both operators, in the order of their schema."""

    max_s: int
    feature_map: str
    normalise: bool
    eps: float
    scale: float | None
    reverse: bool
    layout: str
    backend: str
    segments: int
    wants_state: bool


INPUTS = "Tensor q, Tensor k, Tensor v, Tensor? decay, Tensor? state, Tensor? z, Tensor? cu_seqlens"
COUNT = 7
SCHEMA = (
    "SymInt max_s, str feature_map, bool normalise, Scalar eps, Scalar? scale, bool reverse, "
    "str layout, str backend, SymInt segments, bool wants_state"
)

library.define(f"linear_attention({INPUTS}, {SCHEMA}) -> (Tensor, Tensor, Tensor)")
library.define(
    f"linear_attention_backward(Tensor grad_o, Tensor? grad_state, Tensor? grad_z, {INPUTS}, "
    f"{SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _split(arguments: Sequence[Any]) -> tuple[Sequence[Any], LinearOptions]:
    return arguments[:COUNT], LinearOptions(*arguments[COUNT:])


def keywords(tensors: Sequence[Any], options: LinearOptions) -> dict[str, Any]:
    _, _, _, decay, state, z, cu_seqlens = tensors
    found: dict[str, Any] = {
        name: x for name, x in options._asdict().items() if name not in ("max_s", "wants_state")
    }
    found["decay"] = decay
    if state is not None:
        found["initial_state"] = (state, z) if options.normalise else state
    if cu_seqlens is not None:
        found.update(cu_seqlens=cu_seqlens, max_s=options.max_s)
    return found


def empty_outputs(tensors: Sequence[Any], options: LinearOptions) -> tuple[Tensor, Tensor, Tensor]:
    q, _, v, _, _, _, cu_seqlens = tensors
    d_qk, d_v = q.shape[-1], v.shape[-1]
    heads = v.shape[1 if cu_seqlens is not None or options.layout == "bhsd" else 2]
    b = cu_seqlens.shape[0] - 1 if cu_seqlens is not None else q.shape[0]
    state: tuple[int, ...] = (b, heads, d_qk, d_v) if options.wants_state else (0,)
    z: tuple[int, ...] = (b, heads, d_qk) if options.wants_state and options.normalise else (0,)
    f32 = torch.float32
    return v.new_empty(v.shape), v.new_empty(state, dtype=f32), v.new_empty(z, dtype=f32)


def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    tensors, options = _split(arguments)
    o, state, z = empty_outputs(tensors, options)
    if tensors[6] is not None:
        o.zero_()
    more: dict[str, Any] = {"out": o, "return_state": options.wants_state}
    if options.wants_state:
        more["state_out"] = (state, z) if options.normalise else state
    engine.linear_attention(*tensors[:3], **keywords(tensors, options), **more)
    return o, state, z


def check_shapes(q: Tensor, k: Tensor, v: Tensor, heads: int) -> None:
    """Refuses on the device meta, where no engine looks, what has no result."""
    check_kinds(q, k, v)
    rows = [(*x.shape[:heads], *x.shape[heads + 1 : -1]) for x in (q, v)]
    if q.shape != k.shape or rows[0] != rows[1]:
        raise Invalid(f"q, k and v are {[tuple(x.shape) for x in (q, k, v)]}, which do not fit")
    if q.shape[heads] == 0 or v.shape[heads] % q.shape[heads] != 0:
        raise Invalid(f"h_v = {v.shape[heads]} is not a multiple of h_qk = {q.shape[heads]}")


def fake_forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    tensors, options = _split(arguments)
    if tensors[0].device.type == "meta":
        q, k, v = tensors[:3]
        check_shapes(q, k, v, 1 if tensors[6] is not None or options.layout == "bhsd" else 2)
    return empty_outputs(tensors, options)


def backward(
    grad_o: Tensor, grad_state: Tensor | None, grad_z: Tensor | None, *arguments: Any
) -> tuple[Tensor, ...]:
    tensors, options = _split(arguments)
    q, k, v, decay, state, z, _ = tensors
    more = {}
    if grad_state is not None:
        more["grad_state"] = (grad_state, grad_z) if options.normalise else grad_state
    grad_q, grad_k, grad_v, grad_decay, grad_initial = engine.linear_attention_backward(
        grad_o, q, k, v, **keywords(tensors, options), **more
    )
    initial = grad_initial if isinstance(grad_initial, tuple) else (grad_initial, None)
    found = (grad_q, grad_k, grad_v, grad_decay, *initial)
    empty = fake_backward(grad_o, grad_state, grad_z, *arguments)
    return tuple(y if x is None else x for x, y in zip(found, empty))


def fake_backward(
    grad_o: Tensor, grad_state: Tensor | None, grad_z: Tensor | None, *arguments: Any
) -> tuple[Tensor, ...]:
    q = arguments[0]
    found = [x.new_empty(x.shape) for x in arguments[:3]]
    for x in arguments[3:6]:
        found.append(q.new_empty((0,) if x is None else x.shape, dtype=torch.float32))
    return tuple(found)


def _folded(batch: int, dims: Sequence[Any], args: Sequence[Any], first: int) -> tuple[Any, int]:
    """The arguments with the mapped axis folded into b. args[first:] begin with INPUTS."""
    q, q_dim = args[first], dims[first]
    b = q.movedim(q_dim, 0).shape[1] if q_dim is not None else q.shape[0]
    if args[first + 6] is not None:
        raise Unsupported("falchion: vmap over packed sequences (cu_seqlens) is not there")
    found = list(args)
    for i in range(first + 6):
        x, dim = args[i], dims[i]
        if i == first + 3 and x is not None and x.dim() - (dim is not None) == 1:
            # A decay by head is one for all of b, so that each mapped call gets one by token.
            options = LinearOptions(*args[first + COUNT :])
            s = q.movedim(q_dim, 0).shape[1:] if q_dim is not None else q.shape
            x = x.movedim(dim, 0) if dim is not None else x.expand(batch, -1)
            if options.layout == "bhsd":
                x = x[:, None, :, None].expand(-1, b, -1, s[2])
            else:
                x = x[:, None, None].expand(-1, b, s[1], -1)
            found[i] = x.flatten(0, 1).contiguous()
        else:
            found[i] = fold(x, dim, batch, b)
    return found, b


def vmap_forward(info: Any, dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    arguments, b = _folded(info.batch_size, dims, args, 0)
    o, state, z = torch.ops.falchion.linear_attention(*arguments)
    found = [x.unflatten(0, (info.batch_size, b)) if x.dim() > 1 else x for x in (o, state, z)]
    return tuple(found), tuple(0 if x.dim() > 1 else None for x in found)


def vmap_backward(info: Any, dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    arguments, b = _folded(info.batch_size, dims, args, 3)
    found = list(torch.ops.falchion.linear_attention_backward(*arguments))
    decay, decay_dim = args[6], dims[6]
    by_head = decay is not None and decay.dim() - (decay_dim is not None) == 1
    absent = [x is None for x in (*args[3:6], decay, *args[7:9])]
    for i, x in enumerate(found):
        if not absent[i]:
            found[i] = x.unflatten(0, (info.batch_size, b))
    if by_head:
        heads_first = LinearOptions(*args[3 + COUNT :]).layout == "bhsd"
        found[3] = found[3].sum((1, 3) if heads_first else (1, 2))
    return tuple(found), tuple(None if gone else 0 for gone in absent)


for device in ("CPU", "CUDA"):
    library.impl("linear_attention", torch.no_grad()(forward), device)
    library.impl("linear_attention_backward", torch.no_grad()(backward), device)
torch.library.register_fake("falchion::linear_attention", fake_forward, lib=library)
torch.library.register_fake("falchion::linear_attention_backward", fake_backward, lib=library)
if hasattr(torch.library, "register_vmap"):  # from PyTorch 2.5 on
    torch.library.register_vmap("falchion::linear_attention", vmap_forward, lib=library)
    torch.library.register_vmap("falchion::linear_attention_backward", vmap_backward, lib=library)
