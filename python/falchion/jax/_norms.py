# python/falchion/jax/_norms.py: layer norm and RMSNorm as functions that JAX can transform; each pass is one custom call.
from __future__ import annotations

import dataclasses
import functools
from typing import Any, Never

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from falchion import Invalid, Unsupported
from falchion._names import refuse
from falchion.jax import _calls, _options
from falchion.jax._mesh import vary_alike
from falchion.jax._transforms import Arrays, Batched, Call, Shapes, once, unfold, with_vmap
from falchion.types import Backend

LAYER, RMS = 0, 1
SHARED = ("weight", "bias")  # one element on their first axis stands for all of it


@dataclasses.dataclass(frozen=True)
class NormOptions:
    """What of a call is static: the attributes of the custom call, and which results it has."""

    kind: int
    eps: float
    zero_centered: bool
    out_type: str
    with_statistics: bool
    backend: int
    threads: int

    def attributes(self) -> dict[str, Any]:
        names = ("kind", "eps", "zero_centered", "backend", "threads")
        return {"heads_first": False, **{name: getattr(self, name) for name in names}}


@functools.cache
def forward(options: NormOptions) -> Call:
    """arrays of four axes -> {"y": ..., "residual_out": ..., "mean": ..., "rstd": ...} of those that there are"""

    def one_call(arrays: Arrays) -> Arrays:
        x = arrays["x"]
        results = {"y": jax.ShapeDtypeStruct(x.shape, jnp.dtype(options.out_type))}
        if "residual" in arrays:
            results["residual_out"] = jax.ShapeDtypeStruct(x.shape, arrays["residual"].dtype)
        if options.with_statistics:
            row = jax.ShapeDtypeStruct((*x.shape[:-1], 1), jnp.float32)
            results |= {"mean": row, "rstd": row} if options.kind == LAYER else {"rstd": row}
        return _calls.call("falchion_norm", arrays, results, options.attributes())

    def can_fold(arrays: Arrays, batched: Batched) -> bool:
        return True

    def folded(n: int, b: int, arrays: Arrays, _: Shapes) -> Arrays:
        return {name: unfold(x, n, b) for name, x in forward(options)(arrays).items()}

    return once(with_vmap(one_call, can_fold, folded, lambda shapes: shapes["x"][0], SHARED), "a norm")


@functools.cache
def backward(options: NormOptions) -> Call:
    """arrays of four axes, x being what was normalised -> {"grad_x": ...} and those of weight and bias; bias is not read"""

    def one_call(arrays: Arrays) -> Arrays:
        results = {
            f"grad_{name}": jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype)
            for name in ("x", "weight", "bias")
            if name in arrays
        }
        given = {name: x for name, x in arrays.items() if name != "bias"}
        return _calls.call("falchion_norm_backward", given, results, options.attributes())

    def can_fold(arrays: Arrays, batched: Batched) -> bool:
        return "weight" not in arrays and "bias" not in arrays  # their gradients are sums over all of the first axis

    def folded(n: int, b: int, arrays: Arrays, _: Shapes) -> Arrays:
        return {name: unfold(x, n, b) for name, x in backward(options)(arrays).items()}

    return once(with_vmap(one_call, can_fold, folded, lambda shapes: shapes["x"][0], SHARED), "a norm")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def apply(options: NormOptions, arrays: Arrays) -> Arrays:
    """The norm, differentiable once in all arrays; mean and rstd are not."""
    return forward(options)(arrays)


def _apply_forward(options: NormOptions, primals: Any) -> tuple[Arrays, Any]:
    arrays = {name: primal.value for name, primal in primals.items()}
    found = forward(options)(arrays)
    return found, (arrays, found.get("residual_out"))


def _apply_backward(options: NormOptions, kept: Any, cotangents: Any) -> tuple[Any]:
    arrays, total = kept
    given = {name: x for name, x in cotangents.items() if not isinstance(x, SymbolicZero)}
    if "mean" in given or "rstd" in given:
        raise Unsupported("falchion.jax has no gradient of a norm's mean and rstd: y and residual_out have one")
    grads: dict[str, Any] = dict.fromkeys(arrays)
    if not given:
        return (grads,)
    y = cotangents["y"]
    asked = {name: arrays[name] for name in SHARED if name in arrays}
    asked |= {"x": arrays["x"] if total is None else total, "grad_y": given.get("y", jnp.zeros(y.shape, y.dtype))}
    if "residual_out" in given:
        asked["grad_residual_out"] = given["residual_out"]
    made = {name.removeprefix("grad_"): x for name, x in backward(options)(asked).items()}
    grad_x = made.pop("x")
    for name in ("x", "residual"):
        if name in arrays:
            grads[name] = grad_x.astype(arrays[name].dtype)
    return (grads | made,)


apply.defvjp(_apply_forward, _apply_backward, symbolic_zeros=True)


@functools.partial(jax.jit, static_argnums=0, inline=True)
def run(options: NormOptions, arrays: Arrays) -> Arrays:
    return apply(options, arrays)


def four_axes(name: str, x: Any) -> jax.Array:
    array = _options.array(name, x)
    if array.dtype.name not in _options.TYPES:
        raise Invalid(f"{name} has the type {array.dtype.name}: it must be float32, float16 or bfloat16")
    if not 1 <= array.ndim <= 4:
        raise Invalid(f"{name} has {array.ndim} axes: it must have 1 to 4, of which the last one is normalised")
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def norm(
    kind: int,
    x: Any,
    weight: Any,
    bias: Any,
    eps: Any,
    residual: Any,
    zero_centered: Any,
    return_stats: Any,
    backend: str,
    threads: Any,
    out_dtype: Any,
) -> Any:
    arrays = {"x": four_axes("x", x)}
    shape = jnp.shape(x)
    for name, given in (("weight", weight), ("bias", bias), ("residual", residual)):
        if given is not None:
            arrays[name] = four_axes(name, given)
    for name, array in arrays.items():
        fits = all(
            a == b or (name in SHARED and axis < 3 and a == 1)
            for axis, (a, b) in enumerate(zip(array.shape, arrays["x"].shape, strict=True))
        )
        if not fits:
            raise Invalid(f"{name} has the shape {array.shape}, as four axes: beside x it must fit {arrays['x'].shape}")
    out_type = arrays["x"].dtype if out_dtype is None else jnp.dtype(out_dtype)
    if out_type.name not in _options.TYPES:
        raise Invalid(f"out_dtype = {out_type.name}: it must be float32, float16 or bfloat16")
    options = NormOptions(
        kind=kind,
        eps=_options.number("eps", eps),
        zero_centered=_options.flag("zero_centered", zero_centered),
        out_type=out_type.name,
        with_statistics=_options.flag("return_stats", return_stats),
        backend=_options.choice("backend", backend, _options.BACKENDS),
        threads=_options.threads_of(threads),
    )
    if options.zero_centered and weight is None:
        raise Invalid("zero_centered without weight, to which the 1 is added")
    found = run(options, vary_alike(arrays, arrays))
    made = [found[name] for name in ("y", "residual_out", "mean", "rstd") if name in found]
    made = [y.reshape((*shape[:-1], y.shape[-1])) for y in made]
    return made[0] if len(made) == 1 else tuple(made)


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    zero_centered: bool = False,
    return_stats: bool = False,
    out_dtype: Any = None,
    backend: Backend = "best",
    threads: int = 0,
    **foreign: Never,
) -> Any:
    """(v - mean) rstd weight + bias with v = x + residual, over the last of 1 to 4 axes, as falchion.layer_norm.

    weight and bias are (d), or have the axes of x, where each but the last may have extent 1. zero_centered makes the
    factor 1 + weight. The result is y, or a tuple of y, v with a residual, and mean and rstd with return_stats. It works
    under jit, vmap, shard_map and grad: y and residual_out have a gradient, in reverse mode, once.
    """
    if foreign:
        refuse(layer_norm, foreign)
    return norm(LAYER, x, weight, bias, eps, residual, zero_centered, return_stats, backend, threads, out_dtype)


def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    bias: Any = None,
    eps: float = 1e-5,
    residual: Any = None,
    zero_centered: bool = False,
    return_stats: bool = False,
    out_dtype: Any = None,
    backend: Backend = "best",
    threads: int = 0,
    **foreign: Never,
) -> Any:
    """v rstd weight + bias with v = x + residual and rstd = 1/sqrt(mean(v^2) + eps); the rest is as in layer_norm, but
    that there is no mean."""
    if foreign:
        refuse(rms_norm, foreign)
    return norm(RMS, x, weight, bias, eps, residual, zero_centered, return_stats, backend, threads, out_dtype)
