# python/falchion/jax/_dot_product.py: jax.nn.dot_product_attention, with its signature and its meaning.
from __future__ import annotations

from typing import Any, Literal, Never

import jax
import jax.numpy as jnp

from falchion import Invalid
from falchion._names import refuse
from falchion.jax import _options


def four_axes(name: str, x: Any) -> jax.Array:
    """(b, s, h, d) of that or of (s, h, d)."""
    array = _options.array(name, x)
    if array.ndim not in (3, 4):
        raise Invalid(f"{name} has the shape {array.shape}: it must be (b, s, h, d) or (s, h, d)")
    return array if array.ndim == 4 else array[None]


def window_of(given: Any) -> tuple[int, int] | None:
    """JAX's window is a pair, or one number for both sides."""
    if given is None:
        return None
    sides = given if isinstance(given, (tuple, list)) else (given, given)
    if len(sides) != 2:
        raise TypeError("local_window_size must be a number or a pair (left, right)")
    left, right = (_options.whole("local_window_size", side) for side in sides)
    return left, right


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: bool = False,
    **foreign: Never,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """What jax.nn.dot_product_attention computes, by Falchion: softmax(scale query key^T + bias) value.

    Args:
      query, key, value: (b, s_q, h_q, d), (b, s_k, h_k, d), the same, or all without b; h_q is a multiple of h_k. They
        are float32, float16 or bfloat16, all of one type.
      bias, mask: numbers that are added, and bools, True where a query sees a key; both broadcast to (b, h_q, s_q, s_k).
      scale: a number of Python; None is 1/sqrt(d). 0 makes all scores equal.
      is_causal: query i sees the keys up to i, as causal="top_left" of falchion.jax.attention.
      query_seq_lengths, key_value_seq_lengths: (b) integers. Rows of the result past the first are 0.
      local_window_size: (left, right) or one number for both, along the diagonal of key i and query i.
      implementation: any that JAX has; Falchion runs in each case.
      return_residual: gives (output, residual), with the logarithm of the sum of exponentials, (b, s_q, h_q).

    One thing is different: a query that sees no key gets 0, and JAX's gets the mean of all values.
    """
    if foreign:
        refuse(dot_product_attention, foreign)
    from falchion.jax import attention

    if implementation not in (None, "xla", "cudnn"):
        raise Invalid(f"implementation = {implementation!r}: it must be None, 'xla' or 'cudnn'")
    is_causal = _options.flag("is_causal", is_causal)
    q, k, v = (four_axes(name, x) for name, x in (("query", query), ("key", key), ("value", value)))
    if bias is not None:
        bias = _options.array("bias", bias)
        if bias.dtype not in (q.dtype, jnp.float32):
            bias = bias.astype(jnp.float32)
    if scale is not None and _options.number("scale", scale) == 0:
        q, scale = q * 0, 1.0  # the engine's own 0 asks for 1/sqrt(d)
    window = window_of(local_window_size)
    found = attention(
        q,
        k,
        v,
        causal="top_left" if is_causal else False,
        window=window,
        align="top_left" if is_causal or window is not None else None,
        scale=scale,
        bias=bias,
        mask=mask,
        used_q=query_seq_lengths,
        used_k=key_value_seq_lengths,
        return_lse=True if return_residual else False,
    )
    rows, lse = found if isinstance(found, tuple) else (found, None)
    o: jax.Array = rows.reshape((*jnp.shape(query)[:-1], rows.shape[-1]))
    if lse is None:
        return o
    return o, lse.swapaxes(1, 2).astype(k.dtype).reshape(o.shape[:-1])
