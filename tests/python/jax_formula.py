"""Attention and linear attention as their formulas, for NumPy in float64 and for JAX's autodiff: xp is the module."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Compiling takes the most of these tests' time. With fewer of XLA's optimisations test_jax_linear.py takes 20 s of a core
# and not 31. XLA reads this before it compiles for the first time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
# The library must not lean on it that JAX adds axes by itself, since a program may forbid that.
jax.config.update("jax_numpy_rank_promotion", "raise")


def of_four(x: Any) -> Any:
    """x with axes of one element in front, four in all."""
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def shift_of(s_q: int, s_k: int, causal: Any, align: Any) -> int:
    """The key at which query 0 stands."""
    align = causal if isinstance(causal, str) else align
    return align if isinstance(align, int) else 0 if align == "top_left" else s_k - s_q


def band_of(s_q: int, s_k: int, causal: Any, window: Any, align: Any) -> np.ndarray:
    """(s_q, s_k) bool: which keys the band lets a query see."""
    left, right = window or (None, None)
    if causal:
        right = 0
    shift = shift_of(s_q, s_k, causal, align)
    distance = np.arange(s_k)[None] - (np.arange(s_q)[:, None] + shift)
    seen = np.ones((s_q, s_k), bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return seen


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    xp: Any = jnp,
    causal: Any = False,
    window: Any = None,
    align: Any = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: Any = None,
    bias: Any = None,
    mask: Any = None,
    kept: Any = None,
    return_lse: bool = False,
) -> Any:
    """(b, s, h, d). kept: probabilities are multiplied by it, as dropout does."""
    if xp is np:
        q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    s_q, s_k = q.shape[1], k.shape[1]
    k, v = (xp.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    s = xp.einsum("bihd,bjhd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * xp.tanh(s / softcap)
    if alibi is not None:
        slopes = xp.atleast_2d(xp.asarray(alibi))[:, :, None, None]
        shift = shift_of(s_q, s_k, causal, align)
        distance = abs(np.arange(s_q)[:, None] + shift - np.arange(s_k)[None])
        s = s - slopes * distance[None, None]
    if bias is not None:
        s = s + of_four(xp.asarray(bias))
    seen = of_four(xp.asarray(band_of(s_q, s_k, causal, window, align)))
    if mask is not None:
        seen = seen & of_four(xp.asarray(mask))
    seen = xp.broadcast_to(seen, s.shape)
    some = seen.any(-1, keepdims=True)  # a row that sees no key: o = 0, lse = -inf
    s = xp.where(seen, s, -1e30)
    top = s.max(-1, keepdims=True)
    p = xp.where(seen, xp.exp(s - top), 0.0)
    total = xp.where(some, p.sum(-1, keepdims=True), 1.0)
    lse = xp.where(some, top + xp.log(total), -xp.inf)[..., 0]
    p = p / total
    if kept is not None:
        p = p * kept
    o = xp.einsum("bhij,bjhd->bihd", p, v)
    return (o, lse) if return_lse else o


def linear_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    decay: jax.Array | None = None,
    initial_state: Any = None,
    elu: bool = False,
    normalise: bool = False,
    eps: float = 1e-6,
    reverse: bool = False,
) -> tuple[jax.Array, Any]:
    """The recurrence, token by token. -> (o, state)."""
    b, s, h, d_v = v.shape
    scale = q.shape[-1] ** -0.5
    q, k = (jnp.repeat(jax.nn.elu(x) + 1 if elu else x, h // x.shape[2], 2) for x in (q, k))
    g = jnp.zeros((b, s, h)) if decay is None else jnp.broadcast_to(decay, (b, s, h))
    state = (jnp.zeros((b, h, q.shape[-1], d_v)), jnp.zeros((b, h, q.shape[-1])))
    if initial_state is not None:
        state = initial_state if normalise else (initial_state, state[1])

    def step(state: Any, token: Any) -> tuple[Any, jax.Array]:
        q, k, v, g = token
        fade = jnp.exp(g)[..., None]
        z = state[1] * fade + k
        state = state[0] * fade[..., None] + k[..., None] * v[..., None, :]
        o = scale * jnp.einsum("bhd,bhde->bhe", q, state)
        if normalise:
            o = o / (scale * jnp.einsum("bhd,bhd->bh", q, z) + eps)[..., None]
        return (state, z), o

    tokens = tuple(jnp.moveaxis(x, 1, 0) for x in (q, k, v, g))
    state, o = jax.lax.scan(step, state, tokens, reverse=reverse)
    return jnp.moveaxis(o, 0, 1), state if normalise else state[0]
