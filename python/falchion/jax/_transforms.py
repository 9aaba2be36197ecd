# python/falchion/jax/_transforms.py: how a custom call takes JAX's transformations. vmap folds the new axis of all
# operands into b, so that a batched call is one call, and what cannot be differentiated says so.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from falchion import Unsupported
from falchion._fields import TENSORS

Arrays = dict[str, jax.Array]
Call = Callable[[Arrays], Arrays]
Batched = Mapping[str, bool]
Shapes = dict[str, tuple[int, ...]]

# One element on their first axis stands for all of b, so such an operand is shared by all of the new axis as it is.
BROADCAST = (*TENSORS, "rotary")
SHARED = ("rng", "head_decay")  # these have no axis b


def fold(
    name: str, x: jax.Array, batched: bool, n: int, b: int, broadcast: Sequence[str], shared: Sequence[str]
) -> jax.Array:
    """x with its axes (n, b, ...) as (n * b, ...); where the new axis n is not there, x is repeated if it has to be."""
    if not batched:
        if name in shared or (name in broadcast and x.shape[0] == 1):
            return x
        x = jnp.broadcast_to(x, (n, *x.shape))
    if name in broadcast and x.shape[1] != b:
        x = jnp.broadcast_to(x, (n, b, *x.shape[2:]))
    return x.reshape(n * b, *x.shape[2:])


def one_by_one(call: Call, n: int, batched: Batched, arrays: Arrays) -> Arrays:
    moving = {name: x for name, x in arrays.items() if batched[name]}
    out: Arrays = jax.lax.map(lambda some: call({**arrays, **some}), moving)
    return out


def with_vmap(
    call: Call,
    can_fold: Callable[[Arrays, Batched], bool],
    folded: Callable[[int, int, Arrays, Shapes], Arrays],
    size_of: Callable[[Shapes], int] = lambda shapes: shapes["q"][0],
    broadcast: Sequence[str] = BROADCAST,
    shared: Sequence[str] = SHARED,
) -> Call:
    """A call that vmap turns into one call, or into one for each example where can_fold says no.

    folded(n, b, arrays, shapes) takes folded operands, and the shapes that they have without the new axis. It returns
    results with that axis. size_of(shapes) is b; `broadcast` and `shared` name operands as BROADCAST and SHARED do.
    """
    batching = jax.custom_batching.custom_vmap(call)

    @batching.def_vmap
    def rule(n: int, in_batched: list[Batched], arrays: Arrays) -> tuple[Arrays, Any]:
        batched = in_batched[0]
        if can_fold(arrays, batched):
            shapes = {name: x.shape[1:] if batched[name] else x.shape for name, x in arrays.items()}
            b = size_of(shapes)
            one = {name: fold(name, x, batched[name], n, b, broadcast, shared) for name, x in arrays.items()}
            out = folded(n, b, one, shapes)
        else:
            out = one_by_one(batching, n, batched, arrays)
        return out, dict.fromkeys(out, True)

    return batching


def unfold(x: jax.Array, n: int, b: int) -> jax.Array:
    return x.reshape(n, b, *x.shape[1:])


def once(call: Call, what: str) -> Call:
    """A call that refuses to be differentiated: the function around it has its derivative, and there is no second."""
    return refusing(
        call,
        lambda: Unsupported(
            f"{what} can be differentiated once, in reverse mode: the gradient of its gradient is not built"
        ),
    )


def refusing(call: Call, why: Callable[[], Unsupported]) -> Call:
    """A call that raises why() where it is to be differentiated."""
    made = jax.custom_jvp(call)

    @made.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise why()

    return made
