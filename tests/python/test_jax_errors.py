"""What falchion.jax refuses, and with which words: while tracing where it can be seen, else when the program runs."""

import itertools
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import falchion
import falchion.jax as fj
import jax.numpy as jnp
from falchion.jax import _calls
from test_jax_attention import B, qkv, random

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "causal": ({"causal": True}, "causal=True does not say how the diagonal lies"),
    "causal_word": ({"causal": "left"}, "causal = 'left'"),
    "causal_and_align": ({"causal": "top_left", "align": "bottom_right"}, "but align = 'bottom_right'"),
    "window": ({"window": (3, 3)}, "a window without align does not say"),
    "align": ({"window": (3, 3), "align": "middle"}, "align = 'middle': it is 'bottom_right', 'top_left' or a whole number"),
    "layout": ({"layout": "sbhd"}, "layout = 'sbhd'"),
    "backend": ({"backend": "sm70"}, "backend = 'sm70'"),
    "threads": ({"threads": -1}, "threads = -1: it must be 0"),
    "scale": ({"scale": 0.0}, "scale = 0"),
    "bias": ({"bias": jnp.zeros(())}, "bias has 0 axes: it must have 1 to 4"),
    "mask": ({"mask": jnp.zeros((19, 33))}, "mask has the type float32: it must be bool"),
    "alibi": ({"alibi": jnp.zeros((1, 2, 4))}, r"alibi has the shape \(1, 2, 4\)"),
    "dropout": ({"dropout": 0.5}, "dropout needs a seed"),
    "seed": ({"dropout": 0.5, "seed": 1 << 64}, "seed = 18446744073709551616: it must fit 64 bits"),
    "used_k": ({"used_k": jnp.zeros(2)}, r"used_k is float32 \(2,\): it must be a list of integers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_while_tracing(name: str) -> None:
    options, why = REFUSED[name]
    with pytest.raises(falchion.Invalid, match=why) as refused:
        fj.attention(*qkv(), **options)
    assert isinstance(refused.value, ValueError)


def test_shapes_and_types_while_tracing() -> None:
    q, k, v = qkv()
    with pytest.raises(falchion.Invalid, match=r"q has the shape \(19, 4, 16\): it must have 4 axes, \(b, s, h, d\)"):
        fj.attention(q[0], k, v)
    with pytest.raises(falchion.Invalid, match="k has the type int32"):
        fj.attention(q, k.astype(jnp.int32), v)
    with pytest.raises(falchion.Invalid, match="cu_seqlens_q has 3 numbers and cu_seqlens_k 2"):
        fj.varlen(q[0], k[0], v[0], jnp.array([0, 1, 19]), jnp.array([0, 33]))
    with pytest.raises(TypeError, match="scale must be a number of Python"):
        jax.jit(lambda scale: fj.attention(q, k, v, scale=scale))(0.5)


@pytest.mark.parametrize("name", ["used_q", "used_k", "first_k"])
@pytest.mark.parametrize("n", [B - 1, B + 1])
def test_lengths_of_another_number(name: str, n: int) -> None:
    """The engine reads b numbers, so a shorter list would be read past its end."""
    with pytest.raises(falchion.Invalid, match=f"{name} has {n} numbers: it must have b, and b = {B}"):
        fj.attention(*qkv(), **{name: jnp.ones(n, jnp.int32)})
    many = jnp.ones((3, n), jnp.int32)
    with pytest.raises(falchion.Invalid, match=f"{name} has {n} numbers"):
        jax.vmap(lambda given: fj.attention(*qkv(), **{name: given}))(many)


def test_no_starts_of_packed_sequences() -> None:
    q, k, v = (x[0] for x in qkv())
    none = jnp.ones(0, jnp.int32)
    with pytest.raises(falchion.Invalid, match=r"cu_seqlens_q has 0 numbers: it must have b \+ 1"):
        fj.varlen(q, k, v, none)
    with pytest.raises(falchion.Invalid, match=r"cu_seqlens has 0 numbers: it must have b \+ 1"):
        fj.linear_attention(q, q, q, cu_seqlens=none)


# A backend that cannot use operands where they lie.
ELSEWHERE = "sm80" if jax.default_backend() == "cpu" else "cpu"
# What only the library sees: the text is its own.
RUN: dict[str, tuple[Any, dict[str, Any], str]] = {
    "heads": ((random(1, 2, 5, 4, 8), *[random(2, 2, 5, 3, 8)] * 2), {}, "h_q = 4 is not a multiple of h_k = 3"),
    "head_dim": ((random(1, 2, 5, 4, 300),) * 3, {}, "UNIMPLEMENTED: .*300"),
    "v": ((*qkv()[:2], qkv()[2][:, :5]), {}, r"INVALID_ARGUMENT: v.shape\[1\] = 5"),
    "bias": (qkv(), {"bias": jnp.zeros((3, 19, 33))}, r"INVALID_ARGUMENT: bias.shape\[1\] = 3"),
    "types": ((qkv()[0], qkv(jnp.bfloat16)[1], qkv()[2]), {}, "INVALID_ARGUMENT: k.*bf16"),
    "softcap": (qkv(), {"softcap": -1.0}, r"INVALID_ARGUMENT: score\.softcap = -1"),
    "dropout": (qkv(), {"dropout": 1.5, "seed": 1}, "INVALID_ARGUMENT: dropout = 1.5"),
    "backend": (qkv(), {"backend": ELSEWHERE}, "(INTERNAL|UNIMPLEMENTED|INVALID_ARGUMENT): "),
}


@pytest.mark.parametrize("name", RUN)
def test_when_the_program_runs(name: str) -> None:
    x, options, why = RUN[name]
    with pytest.raises(jax.errors.JaxRuntimeError, match=why):
        jax.block_until_ready(jax.jit(lambda *x: fj.attention(*x, **options))(*x))


def test_derivatives_that_are_not_built() -> None:
    q, k, v = qkv()

    def loss(q: jax.Array) -> jax.Array:
        return jnp.sin(fj.attention(q, k, v)).sum()

    for second in (jax.hessian(loss), jax.grad(lambda q: jax.grad(loss)(q).sum())):
        with pytest.raises(falchion.Unsupported, match="the gradient of its gradient is not built"):
            second(q)
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(loss, (q,), (q,))


def test_an_older_jax_is_named() -> None:
    with pytest.raises(ImportError, match=r"needs jax 0\.6 or newer, and jax 0\.4\.38 is installed"):
        _calls.check_version("0.4.38")
    for version in ("0.6.0", "0.12.1", "1.0", "0.10.0.dev1"):
        _calls.check_version(version)


def test_a_call_that_names_its_buffers_wrongly() -> None:
    """The handlers believe nobody: not the names, not the number of buffers, not the attributes."""
    q, k, v = qkv()
    o = jax.ShapeDtypeStruct((2, 19, 4, 24), jnp.float32)
    good = {"heads_first": 0, "left": -1, "right": -1, "align": 0, "diagonal": 0, "any_order": 0, "backend": 0}
    good |= {"threads": 0, "cache": 0, "rotary_pairs": 0, "split_keys": 0}
    good |= {"scale": 0.0, "softcap": 0.0, "dropout": 0.0, "max_q": 0, "max_k": 0}

    def run(operands: dict[str, jax.Array], results: dict[str, Any], **changed: Any) -> None:
        jax.block_until_ready(_calls.call("falchion_attention_forward", operands, results, good | changed))

    run({"q": q, "k": k, "v": v}, {"o": o})
    for operands, results, changed, why in (
        ({"q": q, "k": k, "w": v}, {"o": o}, {}, "there is no operand w"),
        ({"q": q, "k": k}, {"o": o}, {}, "v"),
        ({"q": q, "k": k, "v": v, "rng": v}, {"o": o}, {"dropout": 0.5}, "rng must be uint32 or uint64"),
        ({"q": q[0, 0], "k": k, "v": v}, {"o": o}, {}, r"q has the shape \(4, 16\)"),
        ({"q": q, "k": k, "v": v}, {"o": o}, {"scale": 1}, "attribute scale"),
        ({"q": q, "k": k, "v": v}, {"o": o}, {"backend": 9}, "backend"),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match=why):
            run(operands, results, **changed)
    for n, name in itertools.product((B - 1, B + 1), ("used_q", "used_k", "first_k")):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"{name} has {n} numbers; it must have b, and b = {B}"):
            run({"q": q, "k": k, "v": v, name: jnp.ones(n, jnp.int32)}, {"o": o})
    packed = {"q": q[0], "k": k[0], "v": v[0], "cu_seqlens_q": jnp.array([0, 4, 19])}
    for starts in ([0, 33], [0, 4, 9, 33]):
        why = rf"cu_seqlens_. has . numbers; it must have b \+ 1, and b = {len(starts) - 1}"
        with pytest.raises(jax.errors.JaxRuntimeError, match=why):
            one = jax.ShapeDtypeStruct(o.shape[1:], o.dtype)
            run(packed | {"cu_seqlens_k": jnp.array(starts)}, {"o": one}, max_q=19, max_k=33)
