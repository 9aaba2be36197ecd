"""Exact attention for JAX, on CPUs and NVIDIA GPUs: see docs/python_jax.md.

The functions take and return JAX arrays. They work under jit, grad, vmap, checkpoint, scan and shard_map, and
attention can be differentiated once, in reverse mode.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Never, Unpack

import jax

from falchion import Invalid, Unsupported
from falchion._fields import differing_lengths
from falchion._names import refuse, with_options
from falchion.jax import _attention, _linear, _options
from falchion.jax._dot_product import dot_product_attention
from falchion.jax._gemm import gemm
from falchion.jax._merge import merge
from falchion.jax._mesh import vary_alike
from falchion.jax._norms import layer_norm, rms_norm
from falchion.types import Backend, CacheOptions, Layout, Options, PackedOptions

__all__ = [
    "attention",
    "dot_product_attention",
    "gemm",
    "layer_norm",
    "linear_attention",
    "merge",
    "rms_norm",
    "varlen",
]

State = jax.Array | tuple[jax.Array, jax.Array]

# Callers without jit are spared the tracing of each call: on two shared cores it took 2.7 ms, and 0.4 so.
_attend = jax.jit(_attention.attend, static_argnums=(0, 1), inline=True)
_attend_linear = jax.jit(_linear.attend, static_argnums=(0, 1), inline=True)


class _Options(Options, CacheOptions, total=False):
    seed: jax.Array | int | None
    threads: int


class _PackedOptions(PackedOptions, CacheOptions, total=False):
    used_k: jax.Array | None  # of a cache
    seed: jax.Array | int | None
    layout: Layout
    threads: int


def _given(function: Any, options: Any, known: Any) -> dict[str, Any]:
    """What is given of the options that the function has."""
    for name in options:
        if name not in known.__annotations__:
            refuse(function, {name: None})
    return {name: x for name, x in options.items() if x is not None}


def _attended(chosen: _options.Options, given: dict[str, Any], arrays: dict[str, jax.Array]) -> Any:
    """Runs it, and returns what the docstring of attention says."""
    return_lse = _options.flag("return_lse", given.get("return_lse", False))
    out = _attend(chosen, return_lse, vary_alike(arrays, arrays))
    found = (out["o"], out["lse"]) if return_lse else out["o"]
    return (found, (out["k"], out["v"])) if "k_new" in arrays else found


@with_options(_Options)
def attention(q: jax.Array, k: jax.Array, v: jax.Array, **options: Unpack[_Options]) -> Any:
    """Exact softmax attention, as falchion.attention, with gradients in q, k, v, bias, slopes and the LSE.

    Args:
      q, k, v: (b, s_q, h_q, d_qk), (b, s_k, h_k, d_qk), (b, s_k, h_k, d_v), float32, float16 or bfloat16, all of one
        type. h_q is a multiple of h_k. With layout="bhsd" the axes are (b, h, s, d).
      options: falchion.attention says what each means, and attention_backward those of the backward pass. Arrays
        (bias, mask, slopes, lengths) may be traced. All others, but for the seed, are part of the compiled program, so
        they are of Python.
      causal: True is taken where s_q = s_k, since both corners mean the same there, and with `align`.
      dropout, seed: the seed is a key of jax.random, or an integer, which may be traced. Under vmap all examples share one
        seed and still drop different elements.
      return_lse: also return the logarithm of the sum of the exponentials, (b, h_q, s_q) float32. It is
        differentiable too.
      threads: of XLA's pool (0: all).
      k_new, v_new: k and v are a KV cache, and these are the last keys of each sequence, with rows as q has them. The caches
        with them are returned. Where the program may overwrite k and v (jax.jit with donate_argnums, or they are made in
        it) nothing is copied.

    Returns:
      o, (b, s_q, h_q, d_v) of the type of q; with return_lse the pair (o, lse). With k_new the pair of that and (k, v).

    Raises:
      falchion.Invalid, falchion.Unsupported: what can be seen while tracing. What only the library sees, such as
        h_q = 4 beside h_k = 3, is a JaxRuntimeError with the library's text when the program runs.
    """
    given = _given(attention, options, _Options)
    layout = given.get("layout", "bshd")
    arrays = _options.rows(q, k, v, layout, packed=False)
    cached = _options.is_cache(given)
    s = 2 if layout == "bhsd" else 1
    same = arrays["q"].shape[s] == arrays["k"].shape[s] and not (cached or differing_lengths(given))
    arrays |= _options.option_arrays(given, arrays["q"].shape[0]) | _options.cache_arrays(given, arrays)
    chosen = _options.options(given, same)
    return _attended(chosen, given, arrays)


@with_options(_PackedOptions)
def varlen(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    cu_seqlens_q: jax.Array,
    cu_seqlens_k: jax.Array | None = None,
    *,
    max_q: int | None = None,
    max_k: int | None = None,
    **options: Unpack[_PackedOptions],
) -> Any:
    """attention of packed sequences: rows cu_seqlens[i] to cu_seqlens[i + 1] are sequence i.

    Args:
      q, k, v: (rows, h, d), of all sequences one after the other; with layout="bhsd" (h, rows, d).
      cu_seqlens_q, cu_seqlens_k: (b + 1) integers that start at 0 and are sorted. Without the second it is the first.
        They may end before the last row: the rows that follow belong to no sequence, so o is 0 there.
      max_q, max_k: the longest sequence, a number of Python; without it all rows. A tight one makes better plans.
      The others are those of attention; slopes are (h_q) or (b, h_q). Under vmap the examples run one by one.
      With a cache q alone is packed, used_k says how many keys each sequence has, and there is no cu_seqlens_k.

    Returns:
      o, (rows, h_q, d_v); with return_lse the pair (o, lse), where lse is (h_q, rows).
    """
    given = _given(varlen, options, _PackedOptions)
    layout = given.get("layout", "bshd")
    cached = _options.is_cache(given)
    arrays = _options.rows(q, k, v, layout, packed=True, cached=cached)
    starts = _options.lengths("cu_seqlens_q", cu_seqlens_q)
    arrays |= _options.option_arrays(given, starts.shape[0] - 1) | _options.cache_arrays(given, arrays)
    arrays["cu_seqlens_q"] = starts
    same = (cu_seqlens_k is None or cu_seqlens_k is cu_seqlens_q) and not cached
    if cached and cu_seqlens_k is not None:
        raise Invalid("cu_seqlens_k is given, but k and v are a cache, whose lengths used_k says")
    if not cached and "used_k" in arrays:
        raise Unsupported("used_k is given without a cache: of packed sequences cu_seqlens_k says the lengths")
    if not cached:
        arrays["cu_seqlens_k"] = starts if same else _options.lengths("cu_seqlens_k", cu_seqlens_k)
        if starts.shape != arrays["cu_seqlens_k"].shape:
            numbers = [arrays[name].shape[0] for name in ("cu_seqlens_q", "cu_seqlens_k")]
            raise Invalid(f"cu_seqlens_q has {numbers[0]} numbers and cu_seqlens_k {numbers[1]}: both have b + 1")
    s = 1 if layout == "bhsd" else 0
    rows_k = 0 if cached else arrays["k"].shape[s]  # a cache has what there is room for
    chosen = dataclasses.replace(
        _options.options(given, same),
        max_q=_options.longest("max_q", max_q, arrays["q"].shape[s]),
        max_k=_options.longest("max_k", max_q if same and max_k is None else max_k, rows_k),
    )
    return _attended(chosen, given, arrays)


def linear_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    feature_map: Literal["identity", "elu_plus_one"] | None = None,
    decay: jax.Array | None = None,
    normalise: bool = False,
    eps: float = 1e-6,
    scale: float | None = None,
    reverse: bool = False,
    initial_state: State | None = None,
    return_state: bool = False,
    cu_seqlens: jax.Array | None = None,
    max_s: int | None = None,
    layout: Layout = "bshd",
    backend: Backend = "best",
    threads: int = 0,
    **foreign: Never,
) -> jax.Array | tuple[jax.Array, State]:
    """Causal linear attention: S_j = e^(g_j) S_(j-1) + phi(k_j) v_j^T and o_j = scale phi(q_j)^T S_j.

    Args:
      q, k, v: (b, s, h_qk, d_qk), the same, and (b, s, h_v, d_v), float32, float16 or bfloat16, all of one type. h_v is
        a multiple of h_qk. With layout="bhsd" (b, h, s, d). With cu_seqlens without b, as in varlen.
      feature_map: phi. None and "identity" leave q and k as they are, "elu_plus_one" is elu(x) + 1.
      decay: g, natural logarithms, float32: (h_v), or (b, s, h_v) with the axes of v.
      normalise: o_j is divided by scale phi(q_j) z_j + eps, where z_j = e^(g_j) z_(j-1) + phi(k_j).
      scale: None is 1/sqrt(d_qk).
      reverse: from the last token to the first.
      initial_state: S before the first token, (b, h_v, d_qk, d_v) float32; with normalise the pair (S, z), where z is
        (b, h_v, d_qk).
      return_state: also return the state after the last token, in the same form.

    Returns:
      o, as v; with return_state the pair (o, state). All of it is differentiable once, in reverse mode.
    """
    if foreign:
        refuse(linear_attention, foreign)
    arrays = _options.rows(q, k, v, layout, packed=cu_seqlens is not None)
    normalise, return_state = _options.flag("normalise", normalise), _options.flag("return_state", return_state)
    arrays |= _options.linear_arrays(decay, initial_state, normalise, cu_seqlens)
    s = arrays["q"].ndim - (2 if layout == "bhsd" else 3)
    options = _linear.LinearOptions(
        heads_first=layout == "bhsd",
        scale=_options.scale_of(scale),
        eps=_options.number("eps", eps),
        feature_map=_options.choice("feature_map", feature_map or "identity", _options.FEATURE_MAPS),
        decay=1 if "head_decay" in arrays else 2 if "decay" in arrays else 0,
        normalise=normalise,
        reverse=_options.flag("reverse", reverse),
        max_s=_options.longest("max_s", max_s, arrays["q"].shape[s]),
        backend=_options.choice("backend", backend, _options.BACKENDS),
        threads=_options.threads_of(threads),
    )
    out: dict[str, jax.Array] = _attend_linear(options, return_state, vary_alike(arrays, arrays))
    if not return_state:
        return out["o"]
    return out["o"], (out["final_state"], out["final_z"]) if normalise else out["final_state"]
