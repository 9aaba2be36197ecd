# python/falchion/jax/_linear.py: causal linear attention as a function that JAX can transform. The backward pass needs the
# inputs alone.
from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from falchion.jax import _calls, _rows
from falchion.jax._transforms import Arrays, Batched, Call, Shapes, once, unfold, with_vmap

# A decay by head has a name of its own here, since it has no axis b; for the handlers both are the decay.
DIFFERENTIABLE = ("q", "k", "v", "decay", "head_decay", "initial_state", "initial_z")
STATES = ("final_state", "final_z")


@dataclasses.dataclass(frozen=True)
class LinearOptions:
    """What of a call is static: the attributes of the custom call."""

    heads_first: bool
    scale: float
    eps: float
    feature_map: int
    decay: int
    normalise: bool
    reverse: bool
    max_s: int
    backend: int
    threads: int


def call(target: str, arrays: Arrays, results: dict[str, jax.ShapeDtypeStruct], options: LinearOptions) -> Arrays:
    names = {"head_decay": "decay", "grad_head_decay": "grad_decay"}
    made = _calls.call(
        target,
        {names.get(name, name): x for name, x in arrays.items()},
        {names.get(name, name): x for name, x in results.items()},
        dataclasses.asdict(options),
    )
    return {name: made[names.get(name, name)] for name in results}


def without_gaps(options: LinearOptions, arrays: Arrays, out: Arrays, names: tuple[str, ...]) -> Arrays:
    """Rows of no packed sequence are 0 in the named results."""
    if "cu_seqlens" not in arrays:
        return out
    used = _rows.of_packed(arrays["cu_seqlens"], _rows.count(arrays["q"], options.heads_first))
    for name in names:
        if name in out:
            by_row = out[name] if name != "decay" else out[name][..., None]
            out = out | {name: _rows.keep(used, by_row, options.heads_first).reshape(out[name].shape)}
    return out


@functools.cache
def forward(options: LinearOptions, with_state: bool) -> Call:
    """arrays -> {"o": ...}, and with_state also "final_state" and, with the normaliser, "final_z"."""

    def one_call(arrays: Arrays) -> Arrays:
        q, v = arrays["q"], arrays["v"]
        results = {"o": jax.ShapeDtypeStruct(v.shape, q.dtype)}
        if with_state:
            b = arrays["cu_seqlens"].shape[0] - 1 if "cu_seqlens" in arrays else q.shape[0]
            state = (b, v.shape[-3 if options.heads_first else -2], q.shape[-1], v.shape[-1])
            results["final_state"] = jax.ShapeDtypeStruct(state, jnp.float32)
            if options.normalise:
                results["final_z"] = jax.ShapeDtypeStruct(state[:3], jnp.float32)
        out = call("falchion_linear_attention_forward", arrays, results, options)
        return without_gaps(options, arrays, out, ("o",))

    def can_fold(arrays: Arrays, batched: Batched) -> bool:
        return "cu_seqlens" not in arrays and not batched.get("head_decay", False)

    def folded(n: int, b: int, arrays: Arrays, _: Shapes) -> Arrays:
        return {name: unfold(x, n, b) for name, x in forward(options, with_state)(arrays).items()}

    return once(with_vmap(one_call, can_fold, folded), "linear attention")


@functools.cache
def backward(options: LinearOptions) -> Call:
    """arrays -> all gradients, by the operands' names."""

    def one_call(arrays: Arrays) -> Arrays:
        results = {
            f"grad_{name}": jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype)
            for name in DIFFERENTIABLE
            if name in arrays
        }
        made = call("falchion_linear_attention_backward", arrays, results, options)
        grads = {name.removeprefix("grad_"): x for name, x in made.items()}
        return without_gaps(options, arrays, grads, ("q", "k", "v", "decay"))

    def can_fold(arrays: Arrays, batched: Batched) -> bool:
        return "cu_seqlens" not in arrays and "head_decay" not in arrays  # its gradient is a sum over all of b

    def folded(n: int, b: int, arrays: Arrays, _: Shapes) -> Arrays:
        return {name: unfold(x, n, b) for name, x in backward(options)(arrays).items()}

    return once(with_vmap(one_call, can_fold, folded), "linear attention")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(options: LinearOptions, with_state: bool, arrays: Arrays) -> Arrays:
    """Linear attention, differentiable once in all arrays but the lengths."""
    return forward(options, with_state)(arrays)


def _attend_forward(options: LinearOptions, with_state: bool, primals: Any) -> tuple[Arrays, Any]:
    arrays = {name: primal.value for name, primal in primals.items()}
    return forward(options, with_state)(arrays), arrays


def _attend_backward(options: LinearOptions, with_state: bool, arrays: Arrays, cotangents: Any) -> tuple[Any]:
    given = {name: x for name, x in cotangents.items() if not isinstance(x, SymbolicZero)}
    grads: dict[str, Any] = dict.fromkeys(arrays)
    if not given:
        return (grads,)
    wanted = ["o"]
    if any(name in given for name in STATES):
        wanted += [name for name in STATES if name in cotangents]
    zeros = {name: jnp.zeros(cotangents[name].shape, cotangents[name].dtype) for name in wanted if name not in given}
    arrays = arrays | {f"grad_{name}": (given | zeros)[name] for name in wanted}
    return (grads | backward(options)(arrays),)


attend.defvjp(_attend_forward, _attend_backward, symbolic_zeros=True)
