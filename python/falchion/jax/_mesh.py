# python/falchion/jax/_mesh.py: shard_map. JAX knows there over which axes of the mesh an array varies. A custom call does
# not say that of its results, so it is said here.
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax


def axes_of(x: jax.Array) -> frozenset[str]:
    """The axes of the mesh over which x varies: none outside of shard_map."""
    kind: Any = jax.typeof(x)
    kind = getattr(kind, "manual_axis_type", kind)  # since jax 0.10
    return frozenset(getattr(kind, "varying", ()) or getattr(kind, "vma", ()))


def vary(x: jax.Array, axes: frozenset[str]) -> jax.Array:
    """x as an array that varies over these axes. The transpose sums over those that are new."""
    missing = tuple(sorted(axes - axes_of(x)))
    if not missing:
        return x
    lax: Any = jax.lax
    varying: jax.Array = lax.pcast(x, missing, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, missing)
    return varying


def vary_alike(arrays: Mapping[str, jax.Array], like: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The arrays, varying over all axes over which one of `like` varies, as the operands of JAX's own functions do."""
    axes: frozenset[str] = frozenset().union(*(axes_of(x) for x in like.values()))
    return {name: vary(x, axes) for name, x in arrays.items()}
