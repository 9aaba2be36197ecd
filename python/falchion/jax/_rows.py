# python/falchion/jax/_rows.py: rows that belong to no sequence. The engine leaves them alone, and in JAX, where an array
# is made anew, that would be whatever the memory held.
from __future__ import annotations

import jax
import jax.numpy as jnp


def count(x: jax.Array, heads_first: bool) -> int:
    """How many rows x has, (b, s, h, d) or (rows, h, d), or with heads first."""
    return int(x.shape[-2 if heads_first else -3])


def of_packed(starts: jax.Array, rows: int) -> jax.Array:
    """(1, rows) bool: which rows lie in a sequence."""
    at = jnp.arange(rows)
    return ((at >= starts[0]) & (at < starts[-1]))[None]


def of_used(used: jax.Array, rows: int) -> jax.Array:
    """(b, 1, rows) bool: which rows lie within the used lengths."""
    return (jnp.arange(rows)[None] < used[:, None])[:, None]


def keep(used: jax.Array, x: jax.Array, heads_first: bool) -> jax.Array:
    """x with 0 in the rows that are not used."""
    return jnp.where((used if heads_first else jnp.swapaxes(used, -1, -2))[..., None], x, 0)
