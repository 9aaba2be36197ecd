# python/falchion/jax/_merge.py: partial results over disjoint sets of keys as one, by one custom call.
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from falchion import Invalid, Unsupported
from falchion.jax import _calls, _options
from falchion.jax._mesh import vary_alike
from falchion.jax._transforms import Arrays, Batched, Call, Shapes, refusing, unfold, with_vmap
from falchion.types import Layout

MOST_PARTS = 32


def no_gradient() -> Unsupported:
    return Unsupported("falchion.jax has no gradient of merge: differentiate attention of all keys in one call")


@functools.cache
def forward(heads_first: bool) -> Call:
    """{"o0": ..., "lse0": ..., "o1": ..., ...} of four and three axes -> {"o": ..., "lse": ...}"""

    def one_call(arrays: Arrays) -> Arrays:
        results = {
            "o": jax.ShapeDtypeStruct(arrays["o0"].shape, arrays["o0"].dtype),
            "lse": jax.ShapeDtypeStruct(arrays["lse0"].shape, jnp.float32),
        }
        in_turn = {name: arrays[name] for i in range(len(arrays) // 2) for name in (f"o{i}", f"lse{i}")}
        return _calls.call("falchion_merge", in_turn, results, {"heads_first": heads_first})

    def can_fold(arrays: Arrays, batched: Batched) -> bool:
        return True

    def folded(n: int, b: int, arrays: Arrays, _: Shapes) -> Arrays:
        return {name: unfold(x, n, b) for name, x in forward(heads_first)(arrays).items()}

    return refusing(with_vmap(one_call, can_fold, folded, lambda shapes: shapes["o0"][0], ()), no_gradient)


@functools.partial(jax.jit, static_argnums=0, inline=True)
def run(heads_first: bool, arrays: Arrays) -> Arrays:
    return forward(heads_first)(arrays)


def merge(
    o_a: jax.Array | Sequence[jax.Array],
    lse_a: jax.Array | Sequence[jax.Array],
    o_b: jax.Array | None = None,
    lse_b: jax.Array | None = None,
    *,
    layout: Layout = "bshd",
) -> tuple[jax.Array, jax.Array]:
    """Partial results over disjoint sets of keys as one: (o, lse). Two of them, or 1 to 32 in lists, as falchion.merge.

    Args:
      o_a, o_b: (b, s_q, h_q, d_v), float32, float16 or bfloat16, each of its own type; with layout="bhsd" (b, h, s, d).
        Without b they are packed, as varlen returns them.
      lse_a, lse_b: (b, h_q, s_q), or (h_q, rows), float32. A part with an lse of -inf adds nothing.

    Returns:
      o, of the shape and type of the first part, and lse. There is no gradient.
    """
    heads_first = _options.choice("layout", layout, _options.LAYOUTS) == 1
    os, lses = (o_a, lse_a) if o_b is None and lse_b is None else ([o_a, o_b], [lse_a, lse_b])
    if not isinstance(os, (list, tuple)) or not isinstance(lses, (list, tuple)):
        raise TypeError("merge() needs o_b and lse_b, or lists of parts as o_a and lse_a")
    if len(os) != len(lses) or not 1 <= len(os) <= MOST_PARTS:
        raise Invalid(f"there are {len(os)} o and {len(lses)} lse: merge takes as many of each, 1 to {MOST_PARTS}")
    arrays: dict[str, jax.Array] = {}
    for i, (o, lse) in enumerate(zip(os, lses, strict=True)):
        arrays |= {f"o{i}": _part(f"o of part {i}", o), f"lse{i}": _options.array("lse", lse).astype(jnp.float32)}
    packed = arrays["o0"].ndim == 3
    _check_shapes(arrays, heads_first)
    if packed:
        arrays = {name: x[None] for name, x in arrays.items()}
    out = run(heads_first, vary_alike(arrays, arrays))
    return (out["o"][0], out["lse"][0]) if packed else (out["o"], out["lse"])


def _part(name: str, x: Any) -> jax.Array:
    found = _options.array(name, x)
    if found.dtype.name not in _options.TYPES or found.ndim not in (3, 4):
        what = f"{found.dtype.name} {found.shape}"
        raise Invalid(f"{name} is {what}: it must be (b, s, h, d) or (rows, h, d), float32, float16 or bfloat16")
    return found


def _check_shapes(arrays: dict[str, jax.Array], heads_first: bool) -> None:
    """All parts have the shapes of the first: vmap puts their axes together."""
    *batch, s, h = arrays["o0"].shape[:-1]
    wanted = {"o": arrays["o0"].shape, "lse": (*batch, s, h) if heads_first else (*batch, h, s)}
    for name, x in arrays.items():
        kind = name.rstrip("0123456789")
        if x.shape != wanted[kind]:
            raise Invalid(f"{kind} of part {name[len(kind) :]} has the shape {x.shape}: it must be {wanted[kind]}")
