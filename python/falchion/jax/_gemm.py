# python/falchion/jax/_gemm.py: a matrix product with what follows it. The product is one custom call, and its gradients are
# two more products, after what JAX makes of the activation.
from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, Never

import jax
import jax.numpy as jnp

from falchion import Invalid, Unsupported
from falchion._names import refuse
from falchion.jax import _calls, _options
from falchion.jax._mesh import axes_of, vary, vary_alike
from falchion.jax._transforms import Arrays, Batched, Call, Shapes, once, unfold, with_vmap
from falchion.types import Backend, Scaling

ACTIVATIONS = (None, "relu", "gelu_tanh", "gelu_erf", "silu", "swiglu")
SHARED = ("a", "b", "c", "residual", "bias_m", "scale_a", "scale_b")  # a batch of 1 stands for all of it
SMALL = ("int8", "float8_e4m3fn")
SCALINGS = (None, "tensor", "row_col", "block128")
BLOCK = 128


@dataclasses.dataclass(frozen=True)
class GemmOptions:
    """What of a call is static."""

    activation: int
    alpha: float
    beta: float
    scaling: int
    out_type: str
    backend: int
    threads: int

    def attributes(self) -> dict[str, Any]:
        found = dataclasses.asdict(self)
        del found["out_type"]
        return {"heads_first": False, **found}


def batch_of(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return b[0] if a[0] == 1 else a[0]


@functools.cache
def forward(options: GemmOptions) -> Call:
    """arrays of four axes, (batch, rows, 1, columns) -> {"d": ...}"""

    def one_call(arrays: Arrays) -> Arrays:
        a, b = arrays["a"], arrays["b"]
        n = b.shape[1] // (2 if ACTIVATIONS[options.activation] == "swiglu" else 1)
        shape = (batch_of(a.shape, b.shape), a.shape[1], 1, n)
        results = {"d": jax.ShapeDtypeStruct(shape, jnp.dtype(options.out_type))}
        return _calls.call("falchion_gemm", arrays, results, options.attributes())

    def can_fold(arrays: Arrays, batched: Batched) -> bool:
        return not batched.get("bias", False)  # one bias serves all of a batch

    def folded(n: int, b: int, arrays: Arrays, _: Shapes) -> Arrays:
        return {"d": unfold(forward(options)(arrays)["d"], n, b)}

    def size_of(shapes: Shapes) -> int:
        return batch_of(shapes["a"], shapes["b"])

    return once(with_vmap(one_call, can_fold, folded, size_of, SHARED, ("bias",)), "gemm")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def product(options: GemmOptions, arrays: Arrays) -> jax.Array:
    return forward(options)(arrays)["d"]


def activate(options: GemmOptions, z: jax.Array) -> jax.Array:
    name = ACTIVATIONS[options.activation]
    if name == "swiglu":
        gate, up = jnp.split(z, 2, axis=3)
        return jax.nn.silu(gate) * up
    functions: dict[str | None, Any] = {
        None: lambda x: x,
        "relu": jax.nn.relu,
        "silu": jax.nn.silu,
        "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
        "gelu_erf": lambda x: jax.nn.gelu(x, approximate=False),
    }
    made: jax.Array = functions[name](z)
    return made


def plain(options: GemmOptions, a: jax.Array, b: jax.Array) -> jax.Array:
    """a b^T in float32, of (batch, rows, 1, columns)."""
    bare = dataclasses.replace(options, activation=0, alpha=1.0, beta=0.0, out_type="float32")
    return forward(bare)({"a": a, "b": b})["d"]


def turned(x: jax.Array) -> jax.Array:
    """The transposes of (batch, rows, 1, columns)."""
    return x.transpose(0, 3, 2, 1)


def like(x: jax.Array, total: jax.Array) -> jax.Array:
    """The gradient of x where its axes of one element stand for more of `total`."""
    axes = tuple(i for i in range(4) if x.shape[i] == 1 and total.shape[i] != 1)
    return total.sum(axes, keepdims=True).astype(x.dtype)


def _forward(options: GemmOptions, arrays: Arrays) -> tuple[jax.Array, Arrays]:
    if arrays["a"].dtype.name in SMALL:
        raise Unsupported(f"gemm of {arrays['a'].dtype.name} has no gradient")
    return product(options, arrays), arrays


def _backward(options: GemmOptions, arrays: Arrays, grad: jax.Array) -> tuple[Arrays]:
    a, b = arrays["a"], arrays["b"]
    grads: Arrays = {}
    if "residual" in arrays:
        grads["residual"] = like(arrays["residual"], grad)
    g = grad.astype(jnp.float32)
    if options.activation != 0:
        score = {name: x for name, x in arrays.items() if name != "residual"}
        linear = dataclasses.replace(options, activation=0, out_type="float32")
        if "c" in score:
            score["c"] = score["c"].astype(jnp.float32)
        z = forward(linear)(score)["d"]
        g = jax.vjp(functools.partial(activate, options), z)[1](g)[0]
    for name, factor in (("c", options.beta), ("bias", 1.0), ("bias_m", 1.0)):
        if name in arrays:
            grads[name] = like(arrays[name], factor * g)
    rounded = g.astype(a.dtype)
    grads["a"] = like(a, options.alpha * plain(options, rounded, turned(b)))
    grads["b"] = like(b, options.alpha * plain(options, turned(rounded), turned(a)))
    return ({name: vary(grads[name], axes_of(x)) for name, x in arrays.items()},)


product.defvjp(_forward, _backward)
_run = jax.jit(product, static_argnums=0, inline=True)


def matrices(name: str, x: Any) -> jax.Array:
    """(batch, rows, 1, columns) of (rows, columns), (batch, rows, columns) or (batch, rows, outer, inner)."""
    array = _options.array(name, x)
    if not 2 <= array.ndim <= 4:
        raise Invalid(
            f"{name} has {array.ndim} axes: it must have 2, (rows, columns), 3, (batch, rows, columns), or 4, whose last "
            "two are the columns"
        )
    batch = array.shape[0] if array.ndim > 2 else 1
    columns = array.shape[-1] if array.ndim < 4 else array.shape[2] * array.shape[3]
    return array.reshape(batch, array.shape[array.ndim > 2], 1, columns)


def by_row(name: str, x: Any) -> jax.Array:
    """(rows) or (batch, rows), or one number, as (batch or 1, rows or 1, 1, 1)."""
    array = _options.array(name, x)
    if array.ndim > 2:
        raise Invalid(f"{name} has {array.ndim} axes: it must have 1 or 2, (rows) or (batch, rows)")
    return array.reshape((1,) * (2 - array.ndim) + array.shape + (1, 1))


def by_block(name: str, x: Any) -> jax.Array:
    """(rows, blocks of k) or (batch, rows, blocks of k), as (batch or 1, rows, blocks, 1)."""
    array = _options.array(name, x)
    if array.ndim not in (2, 3):
        raise Invalid(
            f'{name} has {array.ndim} axes: with scaling="block128" it must have 2 or 3, (rows, blocks of k) or (batch, '
            "rows, blocks of k)"
        )
    return array.reshape((1,) * (3 - array.ndim) + (*array.shape, 1))


def check(arrays: Arrays, swiglu: bool, of_blocks: bool) -> None:
    a, b = arrays["a"], arrays["b"]
    if a.dtype != b.dtype or a.dtype.name not in (*_options.TYPES, *SMALL):
        types = f"{a.dtype.name} and {b.dtype.name}"
        raise Invalid(f"a and b have the types {types}: both are float32, float16, bfloat16, int8 or float8_e4m3fn")
    if a.shape[3] != b.shape[3]:
        raise Invalid(f"a has {a.shape[3]} columns and b {b.shape[3]}: of a matrix (k, n) give the transpose, b.T")
    if b.shape[0] not in (1, batch_of(a.shape, b.shape)):
        raise Invalid(f"b has a batch of {b.shape[0]}: it must have that of a, {a.shape[0]}, or 1")
    if swiglu and b.shape[1] % 2:
        raise Invalid(f'b has {b.shape[1]} rows: with activation="swiglu" it must have 2 n, the gates first')
    batch, m, n = batch_of(a.shape, b.shape), a.shape[1], b.shape[1] // (1 + swiglu)
    wanted = {
        "c": ((batch, 1), (m,), (1,), (b.shape[1],)),
        "residual": ((batch, 1), (m,), (1,), (n,)),
        "bias": ((1,), (1,), (1,), (b.shape[1],)),
        "bias_m": ((batch, 1), (m,), (1,), (1,)),
        "scale_a": ((batch, 1), (m, 1), (1,), (1,)),
        "scale_b": ((batch, 1), (b.shape[1], 1), (1,), (1,)),
    }
    if of_blocks:
        blocks = -(-a.shape[3] // BLOCK)
        wanted["scale_a"] = ((batch, 1), (m,), (blocks,), (1,))
        wanted["scale_b"] = ((batch, 1), (-(-b.shape[1] // BLOCK),), (blocks,), (1,))
    for name, x in arrays.items():
        if name in wanted and not all(e in allowed for e, allowed in zip(x.shape, wanted[name], strict=True)):
            found = (x.shape[0], x.shape[1], x.shape[2] * x.shape[3])
            raise Invalid(
                f"{name} is {found}, as (batch, rows, columns): beside a and b, whose product is ({batch}, {m}, {n}), it "
                "does not fit"
            )


def gemm(
    a: Any,
    b: Any,
    *,
    c: Any = None,
    bias: Any = None,
    bias_m: Any = None,
    residual: Any = None,
    activation: Literal["relu", "gelu_tanh", "gelu_erf", "silu", "swiglu"] | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scaling: Scaling | None = None,
    out_dtype: Any = None,
    backend: Backend = "best",
    threads: int = 0,
    **foreign: Never,
) -> jax.Array:
    """activation(alpha a b^T + beta c + bias) + residual, as falchion.gemm.

    Args:
      a, b: (m, k) and (n, k), as a linear layer has its weight; or with a batch, (batch, m, k) and (batch or 1, n, k).
        float32, float16, bfloat16, or of 8 bits int8 and float8_e4m3fn, with scale_a and scale_b.
      c, residual: as the result, or with a batch of 1. bias: (n). bias_m: (m) or (batch, m).
      activation: "swiglu" takes 2 n rows of b, the gates first.
      alpha, beta: numbers of Python. beta is 1 where c is given.
      scale_a, scale_b, scaling: as in falchion.gemm.

    It works under jit, grad (in all arrays, but for those of 8 bits), vmap and shard_map.
    """
    if foreign:
        refuse(gemm, foreign)
    arrays = {"a": matrices("a", a), "b": matrices("b", b)}
    for name, given in (("c", c), ("residual", residual)):
        if given is not None:
            arrays[name] = matrices(name, given)
    if bias is not None:
        array = _options.array("bias", bias)
        if array.ndim != 1:
            raise Invalid(f"bias has {array.ndim} axes: it must have one, (n)")
        arrays["bias"] = array.reshape(1, 1, 1, -1)
    number = _options.choice("scaling", scaling, SCALINGS)
    of_blocks = SCALINGS[number] == "block128"
    for name, given in (("bias_m", bias_m), ("scale_a", scale_a), ("scale_b", scale_b)):
        if given is not None:
            arrays[name] = by_block(name, given) if of_blocks and name != "bias_m" else by_row(name, given)
    if beta is not None and c is None:
        raise Invalid("beta is given without c, the array that it multiplies")
    if (scale_a is None) != (scale_b is None):
        raise Invalid("scale_a and scale_b are given together or not at all")
    if number and scale_a is None:
        raise Invalid("scaling is given without scale_a and scale_b, the scales that it is about")
    kind = _options.choice("activation", activation, ACTIVATIONS)
    check(arrays, ACTIVATIONS[kind] == "swiglu", of_blocks)
    scales = [arrays[name].shape[1] for name in ("scale_a", "scale_b") if name in arrays]
    small = arrays["a"].dtype.name in SMALL
    default = jnp.float32 if small else arrays["a"].dtype
    options = GemmOptions(
        activation=kind,
        alpha=_options.number("alpha", alpha),
        beta=0.0 if c is None else 1.0 if beta is None else _options.number("beta", beta),
        scaling=number or (0 if not scales else 1 if scales == [1, 1] else 2),
        out_type=jnp.dtype(default if out_dtype is None else out_dtype).name,
        backend=_options.choice("backend", backend, _options.BACKENDS),
        threads=_options.threads_of(threads),
    )
    d: jax.Array = _run(options, vary_alike(arrays, arrays))
    d = d.reshape(d.shape[0], d.shape[1], d.shape[3])
    return d if max(jnp.ndim(a), jnp.ndim(b)) > 2 else d[0]
