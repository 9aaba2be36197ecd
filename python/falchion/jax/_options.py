# python/falchion/jax/_options.py: the arguments of the public functions, read once: what is static goes into frozen
# dataclasses, which JAX may hash, and the arrays into a dictionary by name.
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from falchion import Invalid, Unsupported, _fal
from falchion._fields import CACHE_TENSORS, FLAGS, GRADIENT_FLAGS, LENGTHS, NUMBERS, SHAPES, TENSORS

UNBOUNDED = -1
BACKENDS = ("best", "ref", "cpu", "sm80", "sm90")
LAYOUTS = ("bshd", "bhsd")
ALIGNS = (None, "bottom_right", "top_left")
AT = len(ALIGNS)  # FAL_AT
FEATURE_MAPS = ("identity", "elu_plus_one")
TYPES = ("float32", "float16", "bfloat16")
INT32 = np.iinfo(np.int32)


@dataclasses.dataclass(frozen=True)
class Options:
    """What of a call of attention is static: the attributes of the custom call."""

    heads_first: bool
    left: int
    right: int
    align: int
    diagonal: int  # the key of query 0, where align is FAL_AT
    max_q: int
    max_k: int
    backend: int
    threads: int
    fields: tuple[tuple[str, float | bool], ...]  # NUMBERS, FLAGS, GRADIENT_FLAGS and those of a cache by name

    def attributes(self) -> dict[str, Any]:
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return own | dict(own.pop("fields"))


def choice(name: str, value: Any, known: tuple[str | None, ...]) -> int:
    if (value is None or isinstance(value, str)) and value in known:
        return known.index(value)
    words = ", ".join(repr(word) for word in known if word is not None)
    raise Invalid(f"{name} = {value!r}: it must be one of {words}")


def number(name: str, value: Any) -> float:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} must be a number of Python, not a traced array: it is part of the compiled program")
    return _fal._number(name, value)


def whole(name: str, value: Any) -> int:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} must be a number of Python, not a traced array: it is part of the compiled program")
    return _fal._whole(name, value)


def flag(name: str, value: Any) -> bool:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} must be True or False, not a traced array: it is part of the compiled program")
    return _fal._flag(name, value)


def array(name: str, x: Any) -> jax.Array:
    """x as an array of JAX, which has no elements that do not count."""
    if isinstance(x, np.ma.MaskedArray):
        raise Unsupported(
            f"{name} is a {type(x).__name__} of numpy, an array with a mask, and Falchion reads every element: give its "
            "filled(), and say by an argument which keys may be seen"
        )
    return jnp.asarray(x)


def threads_of(given: Any) -> int:
    threads = whole("threads", given)
    if not 0 <= threads < 1 << 31:
        raise Invalid(f"threads = {threads}: it must be 0 (all of XLA's) or more")
    return threads


def scale_of(scale: Any) -> float:
    """0 asks the engine for 1/sqrt(d_qk), so a 0 of the caller's is refused."""
    if scale is None:
        return 0.0
    if number("scale", scale) == 0:
        raise Invalid("scale = 0 would leave nothing of q: None asks for 1/sqrt(d_qk)")
    return number("scale", scale)


def align_of(align: Any) -> tuple[int, int]:
    """(align, offset) of fal_band."""
    if align is None or isinstance(align, str):
        if align in ALIGNS:
            return ALIGNS.index(align), 0
        raise Invalid(
            f"align = {align!r}: it is 'bottom_right', 'top_left' or a whole number, the key at which query 0 stands"
        )
    if isinstance(align, bool):
        raise TypeError("align must be a whole number or the name of a corner, not a bool")
    at = whole("align", align)
    if not -(1 << 30) <= at <= 1 << 30:
        raise Invalid(f"align = {at}: the key of query 0 must be in [-2^30, 2^30]")
    return AT, at


def band(causal: Any, window: Any, align: Any, same_lengths: bool) -> tuple[int, int, int, int]:
    """(left, right, align, offset) of fal_band."""
    left, right = (None, None) if window is None else window
    if not isinstance(causal, str):
        causal = flag("causal", causal)
    elif causal not in ALIGNS:
        raise Invalid(f"causal = {causal!r}: it must be True, False, 'bottom_right' or 'top_left'")
    if isinstance(causal, str):
        if align not in (None, causal):
            raise Invalid(f"causal = {causal!r}, but align = {align!r}")
        align = causal
    if causal:
        right = 0
    if align is None and not (left is None and right is None):
        if not same_lengths:
            what = "causal=True" if causal else "a window without align"
            raise Invalid(
                f"{what} does not say how the diagonal lies where lengths of q and k may differ: say 'bottom_right' "
                "(the last query sees the last key), 'top_left' (query 0 sees key 0) or align=n (query 0 stands at key n)"
            )
        align = "bottom_right"
    both = enumerate((left, right))
    sides = tuple(UNBOUNDED if side is None else whole(f"window[{i}]", side) for i, side in both)
    return sides[0], sides[1], *align_of(align)


def rows(q: Any, k: Any, v: Any, layout: str, packed: bool, cached: bool = False) -> dict[str, jax.Array]:
    """q, k and v by name, once their axes and types have been looked at. Of a cache q alone may be packed."""
    last = "h, s, d" if choice("layout", layout, LAYOUTS) == 1 else "s, h, d"
    arrays = {name: array(name, x) for name, x in (("q", q), ("k", k), ("v", v))}
    for name, x in arrays.items():
        axes = last if packed and not (cached and name != "q") else f"b, {last}"
        if x.ndim != axes.count(",") + 1:
            raise Invalid(f"{name} has the shape {x.shape}: it must have {axes.count(',') + 1} axes, ({axes})")
        if x.dtype.name not in TYPES:
            raise Invalid(f"{name} has the type {x.dtype.name}: it must be float32, float16 or bfloat16")
    return arrays


def lengths(name: str, x: Any, b: int | None = None) -> jax.Array:
    """A list of b lengths; without b it is where packed sequences start, with the end of the last one."""
    if not isinstance(x, jax.Array):  # before JAX makes 32 bits of them
        for i, n in enumerate(np.asarray(array(name, x) if np.ma.isMaskedArray(x) else x).ravel().tolist()):
            if isinstance(n, int) and not INT32.min <= n <= INT32.max:
                raise Invalid(f"{name}[{i}] = {n}: lengths are int32, which hold numbers in [-2^31, 2^31)")
    found = array(name, x)
    if not jnp.issubdtype(found.dtype, jnp.integer) or found.ndim != 1:
        raise Invalid(f"{name} is {found.dtype.name} {found.shape}: it must be a list of integers, one a sequence")
    if b is None and found.shape[0] == 0:
        raise Invalid(f"{name} has 0 numbers: it must have b + 1")
    if b is not None and found.shape[0] != b:
        raise Invalid(f"{name} has {found.shape[0]} numbers: it must have b, and b = {b}")
    if found.dtype.itemsize == 8:
        found = jnp.clip(found, INT32.min, INT32.max)  # one past int32 is past every length too
    return found.astype(jnp.int32)


def seed_words(seed: Any) -> jax.Array:
    """Four uint32: seed and offset, low halves first. The seed is a key of jax.random, or an integer.

    Every type of an integer gives the same words: those of its 64 bits, where a negative one has its sign in the high
    half.
    """
    seed = array("seed", seed) if isinstance(seed, np.ma.MaskedArray) else seed  # which is refused
    if isinstance(seed, (np.ndarray, np.generic)) and seed.ndim == 0 and np.issubdtype(seed.dtype, np.integer):
        seed = int(seed)  # before JAX makes 32 bits of it
    if isinstance(seed, int):
        if not -(1 << 63) <= seed < 1 << 64:
            raise Invalid(f"seed = {seed}: it must fit 64 bits")
        return jnp.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, 0, 0], jnp.uint32)
    found = jnp.asarray(seed)
    if found.ndim == 0 and jnp.issubdtype(found.dtype, jnp.integer):
        high = found >> 32 if found.dtype.itemsize == 8 else jnp.where(found < 0, -1, 0)
        return jnp.stack([found.astype(jnp.uint32), high.astype(jnp.uint32), *[jnp.uint32(0)] * 2])
    return jax.random.bits(seed, (4,), jnp.uint32)


def pairs(name: str, x: Any) -> jax.Array:
    """The last of (b, h_q, s_q, s_k), with axes of one element for those that are missing."""
    found = array(name, x)
    if not 1 <= found.ndim <= 4:
        raise Invalid(f"{name} has {found.ndim} axes: it must have 1 to 4, the last of (b, h_q, s_q, s_k)")
    if name == "mask" and found.dtype != jnp.bool_:
        raise Invalid(f"mask has the type {found.dtype.name}: it must be bool, True where a query sees a key")
    return found.reshape((1,) * (4 - found.ndim) + found.shape)


def slopes(name: str, x: Any) -> jax.Array:
    """(b or 1, h_q)."""
    found = array(name, x).astype(jnp.float32)
    if found.ndim not in (1, 2):
        raise Invalid(f"{name} has the shape {found.shape}: it must be (h_q) or (b, h_q)")
    return found.reshape(-1, found.shape[-1])


AXES = {"scores": pairs, "head_numbers": slopes}


def is_cache(given: Mapping[str, Any]) -> bool:
    return flag("cache", given.get("cache", False)) or any(given.get(name) is not None for name in CACHE_TENSORS)


def page_table(x: Any) -> jax.Array:
    """(b, columns), or (columns) of all sequences, as the engine's four axes."""
    found = array("page_table", x)
    if found.ndim not in (1, 2) or not jnp.issubdtype(found.dtype, jnp.integer):
        what = f"{found.dtype.name} {found.shape}"
        raise Invalid(f"page_table is {what}: it must be integers (b, columns), or (columns) with page_starts")
    if found.dtype.itemsize == 8:
        found = jnp.clip(found, INT32.min, INT32.max)  # no such page either
    return found.astype(jnp.int32).reshape(-1, found.shape[-1], 1, 1)


def rotary_table(x: Any) -> jax.Array:
    """(positions, 2, columns / 2) or (positions, columns), cosines and then sines, as the engine's four axes."""
    found = array("rotary", x).astype(jnp.float32)
    if found.ndim not in (2, 3) or found.shape[1] != 2 and found.ndim == 3 or found.shape[-1] * found.ndim % 2 != 0:
        wanted = "(positions, 2, columns / 2) or (positions, columns)"
        raise Invalid(f"rotary has the shape {found.shape}: it must be {wanted}")
    return found.reshape(1, found.shape[0], 2, -1)


def new_rows(name: str, x: Any, cache: jax.Array, q: jax.Array) -> jax.Array:
    """k_new or v_new, with as many axes as q."""
    found = array(name, x)
    if found.ndim != q.ndim or found.dtype != cache.dtype:
        what = f"{found.dtype.name} {found.shape}"
        raise Invalid(f"{name} is {what}: it must have the type of the cache, {cache.dtype.name}, and the axes of q")
    return found


def longest(name: str, given: Any, rows: int) -> int:
    """The longest length allowed: all rows, where the caller does not say."""
    if given is None:
        return rows
    if isinstance(given, jax.core.Tracer) or whole(name, given) < 0:
        raise Invalid(f"{name} = {given}: it must be a number of Python, 0 or more")
    return whole(name, given)


def cache_arrays(given: Mapping[str, Any], rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """What of a KV cache is there besides q, k and v."""
    arrays: dict[str, jax.Array] = {}
    for name in ("k_scale", "v_scale"):
        if given.get(name) is not None:
            raise Unsupported(f"{name}: 8-bit caches are not built in JAX")
    if given.get("page_table") is not None:
        arrays["page_table"] = page_table(given["page_table"])
    if given.get("page_starts") is not None:
        arrays["page_starts"] = lengths("page_starts", given["page_starts"], None)
    if given.get("rotary") is not None:
        arrays["rotary"] = rotary_table(given["rotary"])
    new = [name for name in ("k_new", "v_new") if given.get(name) is not None]
    if len(new) == 1:
        raise Invalid("k_new and v_new are given together or not at all")
    return arrays | {name: new_rows(name, given[name], rows[name[0]], rows["q"]) for name in new}


def option_arrays(given: Mapping[str, Any], b: int = 0) -> dict[str, jax.Array]:
    """The optional operands that are there, by the names that the handlers know."""
    arrays: dict[str, jax.Array] = {}
    for name in TENSORS:
        if given.get(name) is not None:
            arrays[name] = AXES[SHAPES[name]](name, given[name])
    if number("dropout", given.get("dropout", 0.0)) != 0:
        if given.get("seed") is None:
            raise Invalid("dropout needs a seed: a key of jax.random, or an integer")
        arrays["rng"] = seed_words(given["seed"])
    for name in LENGTHS:
        if given.get(name) is not None:
            arrays[name] = lengths(name, given[name], b)
    return arrays


def options(given: Mapping[str, Any], same_lengths: bool) -> Options:
    left, right, aligned, diagonal = band(
        given.get("causal", False), given.get("window"), given.get("align"), same_lengths
    )
    numbers = {name: number(name, given.get(name, 0.0)) for name in NUMBERS if name != "scale"}
    flags = {name: flag(name, given.get(name, False)) for name in (*FLAGS, *GRADIENT_FLAGS, "rotary_pairs")}
    flags["cache"] = is_cache(given)
    cut = ("split_keys", whole("split_keys", given.get("split_keys", 0)))
    return Options(
        heads_first=choice("layout", given.get("layout", "bshd"), LAYOUTS) == 1,
        left=left,
        right=right,
        align=aligned,
        diagonal=diagonal,
        max_q=0,
        max_k=0,
        backend=choice("backend", given.get("backend", "best"), BACKENDS),
        threads=threads_of(given.get("threads", 0)),
        fields=(("scale", scale_of(given.get("scale"))), *numbers.items(), *flags.items(), cut),
    )


def linear_arrays(decay: Any, initial_state: Any, normalise: bool, cu_seqlens: Any) -> dict[str, jax.Array]:
    """The optional operands of linear attention that are there."""
    arrays: dict[str, jax.Array] = {}
    if cu_seqlens is not None:
        arrays["cu_seqlens"] = lengths("cu_seqlens", cu_seqlens)
    if decay is not None:
        g = array("decay", decay).astype(jnp.float32)
        by_token = 3 if cu_seqlens is None else 2
        if g.ndim not in (1, by_token):
            raise Invalid(f"decay has the shape {g.shape}: it must be (h_v), or that of v without its last axis")
        arrays["head_decay" if g.ndim == 1 else "decay"] = g
    if initial_state is None:
        return arrays
    if normalise != isinstance(initial_state, (tuple, list)):
        raise Invalid("initial_state must be a pair (S, z) with normalise=True, and S alone without it")
    state, *z = initial_state if normalise else (initial_state,)
    arrays["initial_state"] = array("initial_state", state).astype(jnp.float32)
    if z:
        arrays["initial_z"] = array("initial_state[1]", z[0]).astype(jnp.float32)
    return arrays
