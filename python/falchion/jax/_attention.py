# python/falchion/jax/_attention.py: softmax attention as a function that JAX can transform. The forward pass keeps o and
# lse, the backward pass takes them, and both are one custom call each.
from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero

from falchion import Unsupported
from falchion._fields import GAPS, LENGTHS
from falchion.jax import _calls, _rows
from falchion.jax._mesh import axes_of, vary
from falchion.jax._options import Options
from falchion.jax._transforms import Arrays, Batched, Call, Shapes, once, unfold, with_vmap

SUMMED = ("bias", "alibi", "sinks")  # their gradients are f32, and a sum over an axis on which they have one element
DIFFERENTIABLE = ("q", "k", "v", *SUMMED)


def lse_shape(options: Options, q: jax.Array) -> tuple[int, ...]:
    """(b, h_q, s_q), or (h_q, rows) where sequences are packed."""
    *batch, s, h = q.shape[:-1]
    return (*batch, s, h) if options.heads_first else (*batch, h, s)


def fill_gaps(options: Options, arrays: Arrays, out: Arrays) -> Arrays:
    """Rows of no sequence are what rows without a key are: o is 0 and lse -inf. The engine leaves them alone."""
    rows = _rows.count(arrays["q"], options.heads_first)
    if "cu_seqlens_q" in arrays:
        used = _rows.of_packed(arrays["cu_seqlens_q"], rows)
    elif "used_q" in arrays:
        used = _rows.of_used(arrays["used_q"], rows)
    else:
        return out
    filled = out | {"o": _rows.keep(used, out["o"], options.heads_first)}
    if "lse" in out:
        filled["lse"] = jnp.where(used, out["lse"], -jnp.inf)
    return filled


def can_fold(arrays: Arrays, batched: Batched) -> bool:
    """One run has one list of packed sequences, one set of pages, one rotary table, and one seed.

    Which elements are dropped depends on the place in b, so with dropout the backward pass is folded only where the
    forward pass was: then o has the new axis. It has not where vmap sees the gradient alone, as in jax.jacrev.
    """
    if "cu_seqlens_q" in arrays or "page_table" in arrays or batched.get("rng", False) or batched.get("rotary", False):
        return False
    return "rng" not in arrays or batched.get("o", True)


@functools.cache
def forward(options: Options, with_lse: bool) -> Call:
    """arrays -> {"o": ..., "lse": ...}, and with new keys the caches "k" and "v" that have them"""

    def one_call(arrays: Arrays) -> Arrays:
        q, v = arrays["q"], arrays["v"]
        results = {"o": jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype)}
        if with_lse:
            results["lse"] = jax.ShapeDtypeStruct(lse_shape(options, q), jnp.float32)
        if "k_new" in arrays:
            results |= {name: jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype) for name in ("k", "v")}
        out = _calls.call("falchion_attention_forward", arrays, results, options.attributes())
        return fill_gaps(options, arrays, out)

    def folded(n: int, b: int, arrays: Arrays, _: Shapes) -> Arrays:
        return {name: unfold(x, n, b) for name, x in forward(options, with_lse)(arrays).items()}

    return once(with_vmap(one_call, can_fold, folded), "attention")


@functools.cache
def backward(options: Options, wanted: tuple[str, ...], every_sequence: bool = False) -> Call:
    """arrays -> the gradients of `wanted`, by the operands' names.

    every_sequence: those of bias, alibi and sinks have all of axis b, also where the operand has one element there.
    """

    def one_call(arrays: Arrays) -> Arrays:
        results = {}
        for name in wanted:
            shape, dtype = arrays[name].shape, arrays[name].dtype
            if name in SUMMED:
                shape, dtype = (arrays["q"].shape[0] if every_sequence else shape[0], *shape[1:]), jnp.float32
            results[f"grad_{name}"] = jax.ShapeDtypeStruct(shape, dtype)
        gaps = GAPS if any(name in arrays for name in ("cu_seqlens_q", *LENGTHS)) else {}
        made = _calls.call("falchion_attention_backward", arrays, results, options.attributes() | gaps)
        return {name: made[f"grad_{name}"] for name in wanted}

    def folded(n: int, b: int, arrays: Arrays, shapes: Shapes) -> Arrays:
        grads = {name: unfold(x, n, b) for name, x in backward(options, wanted, True)(arrays).items()}
        for name in SUMMED:
            if name in grads and shapes[name][0] == 1 and not every_sequence:
                grads[name] = grads[name].sum(1, keepdims=True)
        return grads

    return once(with_vmap(one_call, can_fold, folded), "attention")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(options: Options, with_lse: bool, arrays: Arrays) -> Arrays:
    """As forward; differentiable once in q, k, v, bias, alibi and sinks."""
    return forward(options, with_lse)(arrays)


def _attend_forward(options: Options, with_lse: bool, primals: Any) -> tuple[Arrays, Any]:
    arrays = {name: primal.value for name, primal in primals.items()}
    wanted = {name: () for name in DIFFERENTIABLE if name in primals and primals[name].perturbed}
    out = forward(options, True)(arrays)
    kept = out | {name: checkpoint_name(out[name], f"falchion_{name}") for name in ("o", "lse")}
    results = {name: x for name, x in kept.items() if with_lse or name != "lse"}
    return results, (arrays | kept, wanted)


def _attend_backward(options: Options, with_lse: bool, residuals: Any, cotangents: Arrays) -> tuple[Any]:
    arrays, wanted = residuals  # `wanted` has names alone, so that it is static
    # Zeros rather than None for what nobody asks for: jax 0.6 wants one form of result from every use of the function.
    grads: dict[str, Any] = {
        name: vary(jnp.zeros_like(x), axes_of(x)) if name in DIFFERENTIABLE else None
        for name, x in arrays.items()
        if name not in ("o", "lse")
    }
    given = {name: x for name, x in cotangents.items() if not isinstance(x, SymbolicZero)}
    if not wanted or not given:
        return (grads,)
    if dict(options.fields)["cache"]:
        raise Unsupported("a cache has no gradients: give k and v with used_k, without cache and page_table")
    arrays = dict(arrays)
    arrays["grad_o"] = given["o"] if "o" in given else jnp.zeros_like(arrays["o"])
    if "lse" in given:
        arrays["grad_lse"] = given["lse"]
    made = backward(options, tuple(wanted))(arrays)
    return (grads | {name: x.astype(arrays[name].dtype) for name, x in made.items()},)


attend.defvjp(_attend_forward, _attend_backward, symbolic_zeros=True)
