# python/falchion/jax/_calls.py: how JAX reaches the library: libfalchion_xla.so is loaded, its handlers are registered
# with XLA on first use, and a custom call names its buffers in its attributes.
from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from falchion import _fal
from falchion.jax._mesh import vary_alike

OLDEST_JAX = (0, 6)
TARGETS = (
    "falchion_attention_forward",
    "falchion_attention_backward",
    "falchion_linear_attention_forward",
    "falchion_linear_attention_backward",
    "falchion_gemm",
    "falchion_norm",
    "falchion_norm_backward",
    "falchion_merge",
)
PLATFORMS = {"cpu": "cpu", "CUDA": "cuda"}  # XLA's name, and the end of the handler's

Arrays = Mapping[str, jax.Array]


def check_version(version: str) -> None:
    """Raises ImportError for a JAX whose XLA does not have all that the handlers ask it for."""
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < OLDEST_JAX:
        raise ImportError(
            f"falchion.jax needs jax {'.'.join(map(str, OLDEST_JAX))} or newer, and jax {version} is installed: "
            "the FFI of older ones does not say on which device a call runs"
        )


check_version(jax.__version__)


@functools.cache
def register() -> None:
    """Loads libfalchion_xla.so and registers its handlers, once."""
    path = Path(_fal.__file__).parent / "lib" / "libfalchion_xla.so"
    if not path.exists():
        raise ImportError(f"falchion.jax needs {path}, which this build of the package lacks")
    library = ctypes.CDLL(str(path))
    for target in TARGETS:
        for platform, end in PLATFORMS.items():
            handler = getattr(library, f"{target}_{end}")
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform=platform)


def attribute(value: Any) -> Any:
    """A Python number as the type that the handlers expect: int64 for integers and flags, float32 for the rest."""
    if isinstance(value, (bool, int)):
        return np.int64(value)
    return np.float32(value) if isinstance(value, float) else value


def call(
    target: str,
    operands: Arrays,
    results: Mapping[str, jax.ShapeDtypeStruct],
    attributes: Mapping[str, Any],
) -> dict[str, jax.Array]:
    """One custom call. Buffers go in the order of the mappings, and their names go as attributes. A result that has the
    name of an operand is that operand, written in place: XLA copies it before, if anybody reads the old one later."""
    register()
    names = list(results)
    aliases = {i: names.index(name) for i, name in enumerate(operands) if name in results}
    shapes = tuple(results.values())
    made: Sequence[jax.Array] = jax.ffi.ffi_call(target, shapes, input_output_aliases=aliases)(
        *operands.values(),
        operands=" ".join(operands),
        results=" ".join(results),
        **{name: attribute(value) for name, value in attributes.items()},
    )
    return vary_alike(dict(zip(results, made, strict=True)), operands)
