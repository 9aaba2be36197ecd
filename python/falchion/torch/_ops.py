"""The operators torch.ops.falchion.attention and attention_backward: schema, CPU and CUDA, shapes,
vmap.

They know no autograd; that is in _function.py. The first operator gives (O, LSE), and the second
the gradients of q, k, v, bias and alibi, each of which is empty where it is not wanted. With
cu_seqlens_q the tensors are packed, (total, h, d), else they lie as `layout` says. Here alibi is (b
or 1, h_q), bias and mask are (b, h_q, s_q, s_k) with extents of 1 where they are shared, and the
LSE is (b, h_q, s_q), packed (h_q, total)."""

# mypy: allow-untyped-calls
from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

import torch
from torch import Tensor

from falchion import Invalid, Unsupported
from falchion._fields import FLAGS, GAPS, LENGTHS, NUMBERS, TENSORS, differing_lengths

from ._options import (
    CHOSEN_FLAGS,
    SCHEMA,
    Options,
    band_keywords,
    band_of,
    engine,
    numbers_and_flags,
    with_axes,
    word,
)

# Behind q, k and v: first those with a gradient, last those that vmap does not fold.
LEARNED = ("bias", "alibi", "sinks")
DIFFERENTIABLE = 3 + len(LEARNED)
OPTIONAL = (
    *LEARNED,
    *(name for name in TENSORS if name not in LEARNED),
    *LENGTHS,
    "cu_seqlens_q",
    "cu_seqlens_k",
    "rng",
)
INPUTS = "Tensor q, Tensor k, Tensor v, " + ", ".join(f"Tensor? {name}" for name in OPTIONAL)
COUNT = 3 + len(OPTIONAL)  # how many tensors INPUTS has

library = torch.library.Library("falchion", "DEF")
library.define(f"attention({INPUTS}, {SCHEMA}) -> (Tensor, Tensor)")
library.define(
    f"attention_backward(Tensor grad_o, Tensor? grad_lse, Tensor o, Tensor lse, {INPUTS}, "
    f"{SCHEMA}, {', '.join(f'bool {name}' for name in CHOSEN_FLAGS)}, bool[] wanted) -> "
    f"({', '.join(['Tensor'] * DIFFERENTIABLE)})"
)


def operator_arguments(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    learned: Sequence[Tensor | None],
    tensors: Mapping[str, Tensor],
    options: Mapping[str, Any],
) -> tuple[tuple[Tensor | None, ...], Any]:
    """The tensors of INPUTS and the options of a dense call, of what falchion.attention takes by
    name. learned has those of LEARNED."""
    layout = options.get("layout", "bshd")
    word("layout", layout, ("bshd", "bhsd"))
    axes = 4 if tensors.get("cu_seqlens_q") is None else 3
    if not q.dim() == k.dim() == v.dim() == axes:
        raise Invalid(f"q, k and v have {q.dim()}, {k.dim()} and {v.dim()} axes; each has {axes}")
    rows = 1 if layout == "bshd" else 2
    max_q, max_k = options.get("max_q", 0), options.get("max_k", 0)
    lengths = (max_q, max_k) if axes == 3 else (q.shape[rows], k.shape[rows])
    band = options.get("causal", False), options.get("window"), options.get("align")
    sides = band_of(*band, lengths[0], lengths[1], differing_lengths(tensors))
    given: dict[str, Tensor | None] = {**tensors, **dict(zip(LEARNED, learned)), "rng": tensors.get("seed")}
    for name in TENSORS:
        given[name] = with_axes(name, given.get(name))
    backend = options.get("backend", "best")
    chosen = Options(max_q, max_k, *sides, *numbers_and_flags(options), layout, backend)
    return (q, k, v, *(given.get(name) for name in OPTIONAL)), chosen


BYTES = (torch.float8_e4m3fn, torch.int8)  # types of q that are numbers with scales


def type_of_output(q: Tensor, v: Tensor) -> torch.dtype:
    """The type of an O that is made."""
    if q.dtype not in BYTES:
        return q.dtype
    return torch.bfloat16 if v.dtype in BYTES else v.dtype


def empty_output(q: Tensor, v: Tensor) -> Tensor:
    """O, with q's order of strides where the head dims are the same."""
    d_v, dtype = v.shape[-1], type_of_output(q, v)
    if d_v == q.shape[-1]:
        return torch.empty_like(q, dtype=dtype)
    return q.new_empty((*q.shape[:-1], d_v), dtype=dtype)


def empty_outputs(
    q: Tensor, v: Tensor, used_q: Tensor | None, cu_seqlens_q: Tensor | None, layout: str
) -> tuple[Tensor, Tensor]:
    """O and the LSE. Rows that are nobody's query stay as they are made here, so they are those of
    a query that sees no key where there may be any."""
    o = empty_output(q, v)
    if cu_seqlens_q is not None:
        rows: tuple[int, ...] = (q.shape[1], q.shape[0])
    elif layout == "bshd":
        rows = (q.shape[0], q.shape[2], q.shape[1])
    else:
        rows = q.shape[:3]
    lse = q.new_empty(rows, dtype=torch.float32)
    if used_q is not None or cu_seqlens_q is not None:
        o.zero_()
        lse.fill_(-math.inf)
    return o, lse


def outputs_of(
    q: Tensor, v: Tensor, given: Mapping[str, Tensor | None], layout: str
) -> tuple[Tensor, Tensor]:
    """The same by the tensors of OPTIONAL."""
    return empty_outputs(q, v, given["used_q"], given["cu_seqlens_q"], layout)


def keywords(given: Mapping[str, Tensor | None], options: Any) -> dict[str, Any]:
    """The options of a run as keywords of falchion.attention and its like, without those that are
    off. `given` has the tensors of OPTIONAL."""
    found: dict[str, Any] = {
        name: given[name] for name in (*TENSORS, *LENGTHS) if given[name] is not None
    }
    found.update((name, getattr(options, name)) for name in (*NUMBERS, *FLAGS))
    if given["rng"] is not None:
        found["seed"] = given["rng"]
    else:
        del found["dropout"]
    return {**found, **band_keywords(options), "backend": options.backend}


def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return run_forward(q, k, v, dict(zip(OPTIONAL, rest)), Options(*rest[COUNT - 3 :]))


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, given: Mapping[str, Tensor | None], options: Any, **more: Any
) -> tuple[Tensor, Tensor]:
    """O and LSE. `given` has the tensors of OPTIONAL, and `more` what only one operator takes."""
    starts = given["cu_seqlens_q"]
    o, lse = outputs_of(q, v, given, options.layout)
    common = {
        **keywords(given, options),
        **more,
        "out": o,
        "lse": lse,
        "return_lse": True,
    }
    if starts is None:
        engine.attention(q, k, v, layout=options.layout, **common)
    else:
        longest = {"max_q": options.max_q, "max_k": options.max_k}
        engine.varlen(q, k, v, starts, given["cu_seqlens_k"], **longest, **common)
    return o, lse


def empty_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    learned: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor]:
    """Where the gradients go. The engine writes those of k and v together."""
    wants_q, wants_k, wants_v, *others = wanted
    both = wants_k or wants_v
    like = [(q, wants_q), (k, both), (v, both)]
    found = [torch.empty_like(x) if wants else x.new_empty(0) for x, wants in like]
    for x, wants in zip(learned, others):
        assert x is not None or not wants
        shape = x.shape if x is not None and wants else (0,)
        found.append(q.new_empty(shape, dtype=torch.float32))
    return found


def returned(
    found: Sequence[Tensor], bias: Tensor | None, wanted: Sequence[bool]
) -> tuple[Tensor, ...]:
    """The gradients that were wanted, in the types of their tensors, and empty ones for the
    others."""
    kept = [x if wants else x.new_empty(0) for x, wants in zip(found, wanted)]
    if bias is not None and wanted[3]:
        kept[3] = kept[3].to(bias.dtype)
    return tuple(kept)


def backward(
    grad_o: Tensor, grad_lse: Tensor | None, o: Tensor, lse: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    q, k, v, *tensors = rest[:COUNT]
    given, wanted = dict(zip(OPTIONAL, tensors)), rest[-1]
    options = Options(*rest[COUNT : COUNT + len(Options._fields)])
    bias, starts = given["bias"], given["cu_seqlens_q"]
    found = empty_gradients(q, k, v, tensors[: len(LEARNED)], wanted)
    common = {
        **keywords(given, options),
        **dict(zip(CHOSEN_FLAGS, rest[COUNT + len(Options._fields) :])),
        "grad_lse": grad_lse,
        "grads": (
            found[0] if wanted[0] else None,
            *(x if wanted[1] or wanted[2] else None for x in found[1:3]),
        ),
    }
    common.update((f"grad_{name}", x) for name, x, wants in zip(LEARNED, found[3:], wanted[3:]) if wants)
    if any(given[name] is not None for name in (*LENGTHS, "cu_seqlens_q")):
        common.update(GAPS)
    if starts is None:
        engine.attention_backward(grad_o, q, k, v, o, lse, layout=options.layout, **common)
    else:
        longest = {"max_q": options.max_q, "max_k": options.max_k}
        engine.varlen_backward(
            grad_o, q, k, v, o, lse, starts, given["cu_seqlens_k"], **longest, **common
        )
    return returned(found, bias, wanted)


def check_kinds(q: Tensor, k: Tensor, v: Tensor, may_be_bytes: bool = False) -> None:
    """Refuses on the device meta, where no engine looks, other devices and types. may_be_bytes: k
    and v are a cache, which may have 8 bits."""
    bytes_of_caches = may_be_bytes and k.dtype is v.dtype and k.dtype in (torch.int8, torch.float8_e4m3fn)
    for name, x in (("k", k), ("v", v)):
        if x.device != q.device:
            raise Invalid(f"{name} lies on {x.device}, but q on {q.device}")
        if x.dtype is not q.dtype and not bytes_of_caches:
            raise Invalid(f"{name} has the type {x.dtype}, but q {q.dtype}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise Invalid(f"q has the type {q.dtype}: it must be float32, float16 or bfloat16")
    if max(q.shape[-1], v.shape[-1]) > 256:
        raise Unsupported(f"the head dims are {q.shape[-1]} and {v.shape[-1]}: they are at most 256")


def check_shapes(q: Tensor, k: Tensor, v: Tensor, layout: str) -> None:
    """Refuses there what has no result."""
    check_kinds(q, k, v)
    heads = 1 if q.dim() == 3 or layout == "bhsd" else 2
    h_q, h_k = q.shape[heads], k.shape[heads]
    if h_k == 0 or h_q % h_k != 0:
        raise Invalid(f"h_q = {h_q} is not a multiple of h_k = {h_k}")
    if k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        raise Invalid(f"q, k and v are {[tuple(x.shape) for x in (q, k, v)]}, which do not fit")
    if q.dim() == 4 and q.shape[0] != k.shape[0]:
        raise Invalid(f"k.shape[0] = {k.shape[0]}, but the problem's is {q.shape[0]}")


def fake_forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    options = Options(*rest[COUNT - 3 :])
    if q.device.type == "meta":
        check_shapes(q, k, v, options.layout)
    return outputs_of(q, v, dict(zip(OPTIONAL, rest)), options.layout)


def fake_backward(
    grad_o: Tensor, grad_lse: Tensor | None, o: Tensor, lse: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    q, k, v, *learned = rest[:DIFFERENTIABLE]
    wanted = rest[-1]
    return returned(empty_gradients(q, k, v, learned, wanted), learned[0], wanted)


def fold(x: Tensor | None, dim: int | None, batch: int, b: int) -> Tensor | None:
    """The mapped axis and the b axis of a tensor as one axis, of batch * b elements."""
    if x is None:
        return None
    x = x.movedim(dim, 0) if dim is not None else x[None].expand(batch, *x.shape)
    if x.shape[1] != b:  # a shared bias, mask or slope: extent 1
        x = x.expand(batch, b, *x.shape[2:])
    return x.flatten(0, 1)


def folded(
    batch: int, in_dims: Sequence[Any], args: Sequence[Any], first: int
) -> tuple[list[Any], int]:
    """The arguments of an operator with the mapped axis folded into b, and b itself. args[first:]
    begin with those of INPUTS."""
    q, q_dim = args[first], in_dims[first]
    b = q.movedim(q_dim, 0).shape[1] if q_dim is not None else q.shape[0]
    count = first + COUNT
    if args[count - 3] is not None:
        raise Unsupported(
            "falchion: vmap over packed sequences (cu_seqlens) is not there; "
            "pack the mapped axis instead"
        )
    found = [fold(x, dim, batch, b) for x, dim in zip(args[: count - 1], in_dims)]
    rng, rng_dim = args[count - 1], in_dims[count - 1]
    if rng is not None:
        if rng_dim is None:
            raise Unsupported(
                "falchion: dropout under vmap draws other elements in each mapped call, "
                "which is randomness='different'; randomness='same' is not there"
            )
        rng = rng.select(rng_dim, 0).contiguous()
    return [*found, rng, *args[count:]], b


def vmap_forward(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    arguments, b = folded(info.batch_size, in_dims, args, 0)
    outputs = torch.ops.falchion.attention(*arguments)
    return tuple(x.unflatten(0, (info.batch_size, b)) for x in outputs), (0, 0)


def vmap_backward(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    arguments, b = folded(info.batch_size, in_dims, args, 4)
    wanted = args[-1]
    found = []
    for x, wants in zip(torch.ops.falchion.attention_backward(*arguments), wanted):
        found.append(x.unflatten(0, (info.batch_size, b)) if wants else x)
    for at in range(3, DIFFERENTIABLE):
        shared, dim = args[4 + at], in_dims[4 + at]
        if wanted[at]:
            extent = shared.movedim(dim, 0).shape[1] if dim is not None else shared.shape[0]
            if extent == 1 and b > 1:
                found[at] = found[at].sum(1, keepdim=True)
    return tuple(found), tuple(0 if wants else None for wants in wanted)


# An exported program calls the operators themselves, where torch may still record gradients; there
# is nothing to record in here.
for device in ("CPU", "CUDA"):
    library.impl("attention", torch.no_grad()(forward), device)
    library.impl("attention_backward", torch.no_grad()(backward), device)
torch.library.register_fake("falchion::attention", fake_forward, lib=library)
torch.library.register_fake("falchion::attention_backward", fake_backward, lib=library)
if hasattr(torch.library, "register_vmap"):  # from PyTorch 2.5 on
    torch.library.register_vmap("falchion::attention", vmap_forward, lib=library)
    torch.library.register_vmap("falchion::attention_backward", vmap_backward, lib=library)
