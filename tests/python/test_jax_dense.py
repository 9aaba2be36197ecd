"""falchion.jax.gemm, layer_norm, rms_norm and dot_product_attention: against jax.numpy, under jit, vmap and grad."""

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import falchion
import falchion.jax as fj
import jax_formula  # noqa: F401
import jax.numpy as jnp

HIGH = jax.lax.Precision.HIGHEST


@pytest.fixture(autouse=True)
def exact_products() -> Any:
    """On a GPU JAX multiplies f32 with 10 bits unless it is told otherwise."""
    with jax.default_matmul_precision("highest"):
        yield


def random(seed: int, *shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def distance(a: Any, b: Any) -> float:
    return float(jnp.abs(a.astype(jnp.float32) - b.astype(jnp.float32)).max()) if a.size else 0.0


def activated(name: str | None, z: Any) -> Any:
    if name == "swiglu":
        gate, up = jnp.split(z, 2, axis=-1)
        return jax.nn.silu(gate) * up
    if name is None:
        return z
    if name.startswith("gelu"):
        return jax.nn.gelu(z, approximate=name == "gelu_tanh")
    return getattr(jax.nn, name)(z)


def beside(z: Any, x: Any) -> Any:
    """x with as many axes as z, since JAX raises here where one is added in silence (jax_formula)."""
    return x.reshape((1,) * (z.ndim - x.ndim) + x.shape)


def product(a: Any, b: Any, activation: str | None = None, **more: Any) -> Any:
    """What gemm is, in jax.numpy."""
    z = more.get("alpha", 1.0) * jnp.matmul(a, jnp.swapaxes(b, -1, -2), precision=HIGH)
    if "c" in more:
        z = z + more.get("beta", 1.0) * beside(z, more["c"])
    if "bias" in more:
        z = z + beside(z, more["bias"])
    if "bias_m" in more:
        z = z + beside(z, more["bias_m"][..., None])
    z = activated(activation, z)
    return z + beside(z, more["residual"]) if "residual" in more else z


A, B, BATCHED, C = random(1, 5, 12), random(2, 8, 12), random(3, 3, 5, 12), random(4, 5, 8)
GEMMS: dict[str, tuple[tuple[Any, Any], dict[str, Any]]] = {
    "plain": ((A, B), {}),
    "batch": ((BATCHED, B), {}),
    "batch of b": ((A, random(5, 3, 8, 12)), {}),
    "both": ((BATCHED, random(5, 3, 8, 12)), {"alpha": 0.5}),
    "c": ((A, B), {"c": C, "beta": 0.25}),
    "c of a batch": ((BATCHED, B), {"c": C}),
    "bias": ((BATCHED, B), {"bias": random(6, 8)}),
    "bias_m": ((A, B), {"bias_m": random(7, 5), "residual": C}),
    "no rows": ((A[:0], B), {}),
    **{
        f"{name}": ((A, B), {"activation": name, "bias": random(6, 8)})
        for name in ("relu", "silu", "gelu_tanh", "gelu_erf", "swiglu")
    },
}


@pytest.mark.parametrize("name", GEMMS)
def test_gemm_and_its_gradients(name: str) -> None:
    (a, b), more = GEMMS[name]
    want = product(a, b, **more)
    assert distance(fj.gemm(a, b, **more), want) < 1e-4
    assert distance(jax.jit(lambda a, b: fj.gemm(a, b, **more))(a, b), want) < 1e-4
    arrays = {key: x for key, x in more.items() if key in ("c", "bias", "bias_m", "residual")}
    rest = {key: x for key, x in more.items() if key not in arrays}
    weight = random(9, *want.shape)
    got, good = (
        jax.grad(lambda given, f=f: (f(**given, **rest) * weight).sum())({"a": a, "b": b, **arrays})
        for f in (fj.gemm, product)
    )
    for key in good:
        assert got[key].shape == good[key].shape and distance(got[key], good[key]) < 1e-3, key


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 0)])
def test_gemm_under_vmap(axes: Any) -> None:
    a = random(1, 4, 5, 12) if axes[0] == 0 else random(1, 5, 4, 12) if axes[0] == 1 else A
    b = random(2, 4, 8, 12) if axes[1] == 0 else B
    assert distance(jax.vmap(fj.gemm, axes)(a, b), jax.vmap(product, axes)(a, b)) < 1e-4
    bias = random(3, 4, 8)
    ours = jax.vmap(lambda a, b, bias: fj.gemm(a, b, bias=bias), (*axes, 0))(a, b, bias)
    assert distance(ours, jax.vmap(lambda a, b, bias: product(a, b, bias=bias), (*axes, 0))(a, b, bias)) < 1e-4
    loss = lambda f: lambda a, b: jax.vmap(f, axes)(a, b).sum()  # noqa: E731
    got, want = (jax.grad(loss(f), (0, 1))(a, b) for f in (fj.gemm, product))
    assert distance(got[0], want[0]) < 1e-3 and distance(got[1], want[1]) < 1e-3


def test_gemm_of_other_types() -> None:
    a, b = A.astype(jnp.bfloat16), B.astype(jnp.bfloat16)
    assert fj.gemm(a, b).dtype == jnp.bfloat16
    wide = fj.gemm(a, b, out_dtype=jnp.float32)
    assert wide.dtype == jnp.float32 and distance(wide, product(a.astype(jnp.float32), b.astype(jnp.float32))) < 1e-4
    x = jnp.arange(-30, 30, dtype=jnp.int8).reshape(5, 12)
    exact = np.asarray(x, np.int32) @ np.asarray(x, np.int32).T
    assert np.array_equal(fj.gemm(x, x, out_dtype=jnp.int32), exact)
    scaled = fj.gemm(x, x, scale_a=jnp.full((), 0.5), scale_b=jnp.full((5,), 0.25))
    assert distance(scaled, jnp.asarray(exact * 0.125, jnp.float32)) < 1e-3
    assert (
        distance(
            scaled,
            jnp.asarray(
                falchion.gemm(
                    *[np.asarray(x)] * 2,
                    scale_a=np.full((1,), 0.5, np.float32),
                    scale_b=np.full((5,), 0.25, np.float32),
                )
            ),
        )
        == 0
    )
    small = jnp.ones((5, 200), jnp.float8_e4m3fn)
    scale_a, scale_b = jnp.arange(10.0).reshape(5, 2), jnp.full((1, 2), 0.5)
    blocks = fj.gemm(small, small, scale_a=scale_a, scale_b=scale_b, scaling="block128")
    assert np.array_equal(blocks[:, 0], 64 * scale_a[:, 0] + 36 * scale_a[:, 1])
    with pytest.raises(falchion.Unsupported, match="gemm of int8 has no gradient"):
        jax.grad(lambda s: fj.gemm(x, x, scale_a=s, scale_b=jnp.ones(())).sum())(jnp.ones(()))


def test_what_gemm_refuses() -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ((A, B.T), {}, "of a matrix \\(k, n\\) give the transpose"),
        ((A, B.astype(jnp.bfloat16)), {}, "a and b have the types float32 and bfloat16"),
        ((A[0], B), {}, "a has 1 axes"),
        ((A, B), {"beta": 0.5}, "beta is given without c"),
        ((A, B), {"bias": jnp.ones(7)}, "bias is"),
        ((A, B), {"bias": jnp.ones((1, len(B)))}, "bias has 2 axes"),
        ((A, B), {"activation": np.zeros(2)}, "activation = array"),
        ((A, B), {"c": C[:4]}, "c is"),
        ((A, B), {"activation": "tanh"}, "activation = 'tanh'"),
        ((A, B), {"scale_a": jnp.ones(())}, "scale_a and scale_b are given together"),
        ((A, B), {"scaling": "block128"}, "scaling is given without scale_a and scale_b"),
        ((A, B), {"scaling": "block128", "scale_a": jnp.ones(8), "scale_b": jnp.ones((1, 1))}, "scale_a has 1 axes"),
        ((A, B), {"scaling": "block128", "scale_a": jnp.ones((2, 7)), "scale_b": jnp.ones((1, 1))}, "scale_a is"),
        ((A, B[:7]), {"activation": "swiglu"}, "b has 7 rows"),
    ]
    for (a, b), more, words in cases:
        with pytest.raises(falchion.Invalid, match=words):
            fj.gemm(a, b, **more)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("shape", [(16,), (5, 16), (2, 3, 16), (2, 3, 4, 16)])
def test_norms_are_those_of_numpy(shape: tuple[int, ...], dtype: Any) -> None:
    """On a CPU the same call of the engine, so the same bits. A GPU sums a row in another order."""
    on_a_gpu = jax.default_backend() == "gpu"
    limit = 0 if not on_a_gpu else 1e-5 if dtype == jnp.float32 else 2e-2
    x, weight, residual = random(1, *shape, dtype=dtype), random(2, 16), random(3, *shape, dtype=dtype)
    for ours, theirs in ((fj.layer_norm, falchion.layer_norm), (fj.rms_norm, falchion.rms_norm)):
        for more in ({}, {"zero_centered": True, "eps": 0.5}, {"residual": residual, "return_stats": True}):
            given = {key: np.asarray(y) if key == "residual" else y for key, y in more.items()}
            want = theirs(np.asarray(x), np.asarray(weight), **given)
            got = jax.jit(lambda x, ours=ours, more=more: ours(x, weight, **more))(x)
            for a, b in zip(
                got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
            ):
                assert a.shape == b.shape and a.dtype == b.dtype and distance(a, jnp.asarray(b)) <= limit


def test_norms_under_vmap_and_grad() -> None:
    x, weight = random(1, 3, 5, 16), random(2, 3, 16)
    whole = fj.rms_norm(x, weight[:, None])
    assert np.array_equal(jax.vmap(fj.rms_norm)(x, weight), whole)
    assert np.array_equal(jax.vmap(fj.rms_norm, (0, None))(x, weight[0]), fj.rms_norm(x, weight[0]))
    assert np.array_equal(jax.vmap(fj.layer_norm, (1, None))(x, weight[0]), fj.layer_norm(x.swapaxes(0, 1), weight[0]))
    assert np.array_equal(
        jax.vmap(fj.rms_norm, (None, 0))(x[0], weight), jnp.stack([fj.rms_norm(x[0], w) for w in weight])
    )
    for norm in (fj.layer_norm, fj.rms_norm):
        twice = jax.grad(lambda x, norm=norm: jax.grad(lambda x: norm(x).sum())(x).sum())
        with pytest.raises(falchion.Unsupported, match="a norm can be differentiated once"):
            twice(x)
        with pytest.raises(falchion.Invalid, match="weight has the shape"):
            norm(x, jnp.ones(15))
        with pytest.raises(falchion.Invalid, match="x has the type int32"):
            norm(x.astype(jnp.int32))


LENGTHS = jnp.array([7, 3], jnp.int32)
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 0.5},
    "scale of 0": {"scale": 0.0},
    "causal": {"is_causal": True},
    "lengths": {"query_seq_lengths": LENGTHS, "key_value_seq_lengths": LENGTHS},
    "lengths, causal": {"query_seq_lengths": LENGTHS, "key_value_seq_lengths": LENGTHS, "is_causal": True},
    "window": {"local_window_size": 3},
    "two sides": {"local_window_size": (4, 1), "implementation": "xla"},
    "window, causal": {"local_window_size": (4, 1), "is_causal": True},
    "bias": {"bias": random(5, 1, 4, 9, 9)},
    "mask": {"mask": random(6, 2, 1, 9, 9) > -1},
    "residual": {"return_residual": True},
}


FEW_HEADS = ("plain", "lengths, causal", "bias")  # the others ask nothing of the heads of k


@pytest.mark.parametrize("name, heads", [(name, 4) for name in CALLS] + [(name, 2) for name in FEW_HEADS])
def test_dot_product_attention_is_jaxs(name: str, heads: int) -> None:
    q, k, v = random(1, 2, 9, 4, 16), random(2, 2, 9, heads, 16), random(3, 2, 9, heads, 16)
    options = CALLS[name]
    got = fj.dot_product_attention(q, k, v, **options)
    want = jax.nn.dot_product_attention(q, k, v, **options)
    for a, b in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert a.shape == b.shape and a.dtype == b.dtype and distance(a, b) < 2e-5
    if name == "residual":
        return
    f = lambda attend: jax.grad(lambda *x: (attend(*x, **options) * v[:, :, :1]).sum(), (0, 1, 2))(q, k, v)  # noqa: E731
    for a, b in zip(f(fj.dot_product_attention), f(jax.nn.dot_product_attention), strict=True):
        assert distance(a, b) < 1e-4


def test_dot_product_attention_without_b() -> None:
    q = random(1, 9, 4, 16)
    got, lse = fj.dot_product_attention(q, q, q, is_causal=True, return_residual=True)
    want, residual = jax.nn.dot_product_attention(q, q, q, is_causal=True, return_residual=True)
    assert got.shape == want.shape and lse.shape == residual.shape
    assert distance(got, want) < 2e-5 and distance(lse, residual) < 2e-5
    with pytest.raises(falchion.Invalid, match="implementation = 'pallas'"):
        fj.dot_product_attention(q, q, q, implementation="pallas")
    with pytest.raises(falchion.Invalid, match="query has the shape"):
        fj.dot_product_attention(q[0], q, q)


def test_numbers_of_numpy_and_lengths() -> None:
    q = random(1, 2, 9, 4, 16)
    want = fj.attention(q, q, q, scale=0.5, softcap=2.0, causal=True, window=(3, 0))
    for causal in (np.bool_(True), 1, jnp.array(True)):
        window = (np.int64(3), jnp.array(0))
        got = fj.attention(q, q, q, scale=np.float64(0.5), softcap=jnp.array(2.0), causal=causal, window=window)
        assert np.array_equal(got, want)
    want = fj.attention(q, q, q, used_k=LENGTHS)
    for used in ([7, 3], np.array([7, 3]), np.array([7, 3], np.uint64)):
        assert np.array_equal(fj.attention(q, q, q, used_k=used), want)
    for used in ([7, 1 << 32], np.array([7, (1 << 32) + 3])):
        with pytest.raises(falchion.Invalid, match=r"used_k\[1\] = 429496729.: lengths are int32"):
            fj.attention(q, q, q, used_k=used)
    for name in ("q", "bias", "used_k"):
        given = {"q": q, "bias": np.zeros((9, 9), np.float32), "used_k": np.array([7, 3])}
        given[name] = np.ma.array(np.asarray(given[name]), mask=False)
        with pytest.raises(falchion.Unsupported, match=f"{name} is a MaskedArray of numpy"):
            fj.attention(given.pop("q"), q, q, **given)
    state = np.ma.zeros((2, 4, 16, 16), np.float32)
    for masked, call in (
        ("initial_state", lambda: fj.linear_attention(q, q, q, initial_state=state)),
        ("seed", lambda: fj.attention(q, q, q, dropout=0.5, seed=np.ma.array(3))),
    ):
        with pytest.raises(falchion.Unsupported, match=f"{masked} is a MaskedArray of numpy"):
            call()
    for options in ({"causal": 2}, {"causal": "left"}, {"window": (1.5, 0)}, {"scale": "1"}):
        with pytest.raises((TypeError, falchion.Invalid)):
            fj.attention(q, q, q, **options)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_gradients_of_a_norm_with_a_residual(kind):
    keys = jax.random.split(jax.random.key(5), 6)
    x, residual, grad_y, grad_total = (jax.random.normal(key, (3, 7, 24)) for key in keys[:4])
    weight, bias = (jax.random.normal(key, (24,)) for key in keys[4:])
    ours = fj.layer_norm if kind == "layer" else fj.rms_norm

    def exact(x, residual, weight, bias):
        v = x + residual
        by = v - v.mean(-1, keepdims=True) if kind == "layer" else v
        return by * jax.lax.rsqrt((by**2).mean(-1, keepdims=True) + 1e-5) * weight[None, None] + bias[None, None], v

    def by_falchion(x, residual, weight, bias):
        return ours(x, weight, bias=bias, residual=residual)

    arrays = (x, residual, weight, bias)
    found, wanted = (jax.vjp(f, *arrays)[1]((grad_y, grad_total)) for f in (by_falchion, exact))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    one = jax.vmap(jax.grad(lambda x: by_falchion(x, *arrays[1:])[0].sum()))
    with_axis = jnp.stack([x, 2 * x])
    alone = jax.grad(lambda x: by_falchion(x, *arrays[1:])[0].sum())
    np.testing.assert_allclose(one(with_axis)[1], alone(2 * x), rtol=1e-5, atol=1e-5)


def test_statistics_of_a_norm_have_no_gradient():
    x = jnp.ones((2, 8)).at[0, 1].set(3)
    with pytest.raises(falchion.Unsupported, match="mean and rstd"):
        jax.grad(lambda x: fj.layer_norm(x, return_stats=True)[1].sum())(x)
