"""Exact attention for JAX, on CPUs and NVIDIA GPUs: see docs/python_jax.md.

The functions take and return JAX arrays. They work under jit, grad, vmap, checkpoint, scan and shard_map, and
attention can be differentiated once, in reverse mode.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from falchion.jax import _options
from falchion.jax._attention import attend
from falchion.jax._options import Options

__all__ = ["attention", "varlen"]

Align = Literal["bottom_right", "top_left"]
Layout = Literal["bshd", "bhsd"]
Backend = Literal["best", "ref", "cpu", "sm80", "sm90"]
Window = tuple[int | None, int | None]


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    causal: bool | Align = False,
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: jax.Array | None = None,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    dropout: float = 0.0,
    seed: jax.Array | int | None = None,
    used_q: jax.Array | None = None,
    used_k: jax.Array | None = None,
    first_k: jax.Array | None = None,
    layout: Layout = "bshd",
    return_lse: bool = False,
    any_order: bool = False,
    backend: Backend = "best",
    threads: int = 0,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """softmax(softcap(scale q k^T) + alibi + bias) v, where mask, band and lengths say which keys a query sees.

    Args:
      q, k, v: (b, s_q, h_q, d_qk), (b, s_k, h_k, d_qk), (b, s_k, h_k, d_v), float32, float16 or bfloat16, all of one
        type. h_q is a multiple of h_k. With layout="bhsd" the axes are (b, h, s, d).
      causal: "bottom_right" (the last query sees the last key) or "top_left" (query 0 sees key 0). True is taken
        where s_q = s_k, since both mean the same there.
      window: (left, right): query i sees keys from i - left to i + right on the diagonal of `align`. None is unbounded.
      scale: None is 1/sqrt(d_qk).
      softcap: scores become softcap * tanh(score / softcap). 0 is off.
      alibi: slopes, (h_q) or (b, h_q).
      bias: float32 or the type of q, (b, h_q, s_q, s_k). It may have fewer axes, and axes of one element.
      mask: bool, as bias. True where the query sees the key.
      dropout: the share of probabilities that is dropped, with a `seed`: a key of jax.random, or an integer, which may
        be traced. Under vmap all examples share one seed and still drop different elements.
      used_q, used_k: (b) integers: how many rows of each sequence count. Rows of o past used_q are 0.
      first_k: (b) integers: left padding, the first key of each sequence.
      return_lse: also return the logarithm of the sum of the exponentials, (b, h_q, s_q) float32. It is
        differentiable too.
      any_order: the backward pass on a GPU may sum grad_q in any order, which is faster, with other bits in each run.
      backend, threads: which path runs, and on how many threads of XLA's pool (0: all). scale, softcap, dropout,
        window and these are part of the compiled program, so they are numbers of Python.

    Returns:
      o, (b, s_q, h_q, d_v) of the type of q; with return_lse the pair (o, lse).

    Raises:
      falchion.Invalid, falchion.Unsupported: what can be seen while tracing. What only the library sees, such as
        h_q = 4 beside h_k = 3, is a JaxRuntimeError with the library's text when the program runs.
    """
    q, k, v = (jnp.asarray(x) for x in (q, k, v))
    axes = "(b, h, s, d)" if layout == "bhsd" else "(b, s, h, d)"
    for name, x in (("q", q), ("k", k), ("v", v)):
        _options.check_rows(name, x, 4, axes)
    s = 2 if layout == "bhsd" else 1
    same = q.shape[s] == k.shape[s] and used_q is used_k and first_k is None
    arrays = {"q": q, "k": k, "v": v}
    arrays |= _options.score_arrays(
        alibi=alibi,
        bias=bias,
        mask=mask,
        dropout=dropout,
        seed=seed,
        used_q=used_q,
        used_k=used_k,
        first_k=first_k,
    )
    left, right, aligned = _options.band(causal, window, align, same)
    options = Options(
        heads_first=_options.choice("layout", layout, _options.LAYOUTS) == 1,
        left=left,
        right=right,
        align=aligned,
        scale=_options.softmax_scale(scale),
        softcap=_options.number("softcap", softcap),
        dropout=_options.number("dropout", dropout),
        max_q=0,
        max_k=0,
        any_order=any_order,
        backend=_options.choice("backend", backend, _options.BACKENDS),
        threads=threads,
    )
    out = attend(options, return_lse, arrays)
    return (out["o"], out["lse"]) if return_lse else out["o"]
