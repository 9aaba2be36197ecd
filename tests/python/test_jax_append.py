"""New keys and rotary embedding of a KV cache in JAX: the caches come back with the new keys, in place where they are
donated. And merge. On a GPU too, where JAX finds one."""

from typing import Any

import falchion
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy
fj = pytest.importorskip("falchion.jax")

RNG = np.random.default_rng(4)
TABLE = RNG.permutation(12).reshape(3, 4).astype(np.int32)
USED = np.array([13, 2, 16], np.int32)  # with the new keys
BAND = {"causal": "bottom_right"}
ANGLES = np.arange(16)[:, None] * np.array([1.0, 0.5], np.float32)
ROTARY = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1).astype(np.float32)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


Q, K, V = normal(3, 2, 4, 8), normal(12, 4, 2, 8), normal(12, 4, 2, 8)
K_NEW, V_NEW = normal(3, 2, 2, 8), normal(3, 2, 2, 8)
CACHE = {"page_table": TABLE, "used_k": USED, "k_new": K_NEW, "v_new": V_NEW, **BAND}


def of_numpy(**options: Any) -> Any:
    """o, lse, k and v by falchion itself, which writes into its arrays."""
    k, v = K.copy(), V.copy()
    o, lse = falchion.attention(Q, k, v, return_lse=True, **(CACHE | options))
    return o, lse, k, v


def near(found: Any, wanted: Any) -> None:
    for x, y in zip(jax.tree.leaves(found), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rotary", [None, "halves", "pairs", "flat"])
def test_new_keys_are_seen_and_written(rotary: str | None) -> None:
    options: dict[str, Any] = {} if rotary is None else {"rotary": ROTARY, "rotary_pairs": rotary == "pairs"}
    wanted = of_numpy(**options)
    assert not np.array_equal(wanted[2], K)
    if rotary == "flat":
        options["rotary"] = ROTARY.reshape(16, 4)
    near(fj.attention(Q, K, V, return_lse=True, **CACHE, **options), wanted)
    o, caches = fj.attention(Q, K, V, **CACHE, **options)
    near((o, caches), (wanted[0], *wanted[2:]))
    first = {name: CACHE[name].swapaxes(1, 2) for name in ("k_new", "v_new")}
    turned = (jnp.asarray(x).swapaxes(1, 2) for x in (Q, K, V))
    o, caches = fj.attention(*turned, **(CACHE | first), **options, layout="bhsd")
    near([x.swapaxes(1, 2) for x in (o, *caches)], (wanted[0], *wanted[2:]))


def test_packed_queries_bring_their_keys() -> None:
    wanted = of_numpy(rotary=ROTARY)
    rows = {name: CACHE[name].reshape(6, 2, 8) for name in ("k_new", "v_new")}
    found = fj.varlen(Q.reshape(6, 4, 8), K, V, np.array([0, 2, 4, 6]), rotary=ROTARY, **(CACHE | rows))
    near(found, (wanted[0].reshape(6, 4, 8), *wanted[2:]))


def test_a_cache_in_rows_under_vmap() -> None:
    """Each example has caches of its own then."""
    wanted = of_numpy()
    k, v = (x[TABLE].reshape(3, 16, 2, 8) for x in (K, V))
    rows = {name: CACHE[name] for name in ("used_k", "k_new", "v_new", "causal")}
    both = jnp.stack([Q, 2 * Q])
    o, caches = jax.vmap(lambda q: fj.attention(q, k, v, rotary=ROTARY * 0 + [[1], [0]], **rows))(both)
    for i in range(2):
        near([x[i] for x in caches], [x[TABLE].reshape(3, 16, 2, 8) for x in wanted[2:]])
    near(o[0], wanted[:1])
    many = jnp.stack([K, 2 * K])
    o, caches = jax.vmap(lambda k: fj.attention(Q, k, V, **CACHE))(many)
    near([x[0] for x in (o, *caches)], (wanted[0], *wanted[2:]))


def test_donated_caches_are_written_in_place() -> None:
    wanted = of_numpy()

    def step(k: Any, v: Any) -> Any:
        return fj.attention(Q, k, v, **CACHE)

    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(K, V).compile()
    assert "copy(" not in compiled.as_text() or jax.default_backend() != "cpu"
    k, v = jnp.array(K), jnp.array(V)
    place = k.unsafe_buffer_pointer()
    o, (k_out, v_out) = compiled(k, v)
    assert k.is_deleted() and k_out.unsafe_buffer_pointer() == place
    near((o, k_out, v_out), (wanted[0], *wanted[2:]))
    kept = jnp.array(K)  # and those that are not stay as they are
    near(jax.jit(step)(kept, V), (wanted[0], *wanted[2:]))
    assert np.array_equal(kept, K)


def test_a_loop_of_tokens_is_one_program() -> None:
    """Each step brings a key. At the end the cache is the one of all keys, and each row what causal attention has."""
    q, k, v = normal(2, 9, 4, 8), normal(2, 9, 2, 8), normal(2, 9, 2, 8)

    @jax.jit
    def decode() -> Any:
        def step(caches: Any, x: Any) -> Any:
            i, q, k, v = x
            used = jnp.full(2, i + 1)
            o, caches = fj.attention(q[:, None], *caches, cache=True, used_k=used, k_new=k[:, None], v_new=v[:, None])
            return caches, o[:, 0]

        rows = tuple(jnp.asarray(x).swapaxes(0, 1) for x in (q, k, v))
        return jax.lax.scan(step, (jnp.zeros((2, 16, 2, 8)),) * 2, (jnp.arange(9), *rows))

    caches, o = decode()
    near([x[:, :9] for x in caches], (k, v))
    near(o.swapaxes(0, 1), [falchion.attention(q, k, v, causal=True)])


def test_what_is_refused() -> None:
    with pytest.raises(falchion.Invalid, match="k_new and v_new are given together"):
        fj.attention(Q, K, V, **(CACHE | {"v_new": None}))
    with pytest.raises(falchion.Invalid, match=r"v_new is float16 \(3, 2, 2, 8\): it must have the type of the cache"):
        fj.attention(Q, K, V, **(CACHE | {"v_new": V_NEW.astype(np.float16)}))
    with pytest.raises(falchion.Invalid, match=r"rotary has the shape \(16, 3, 2\)"):
        fj.attention(Q, K, V, **CACHE, rotary=np.ones((16, 3, 2), np.float32))
    with pytest.raises(falchion.Unsupported, match="a cache has no gradients"):
        jax.grad(lambda q: fj.attention(q, K, V, **CACHE)[0].sum())(Q)
    with pytest.raises(Exception, match="rotary_dim = 12"):
        fj.attention(Q, K, V, **CACHE, rotary=np.ones((16, 2, 6), np.float32))


def test_parts_of_a_fixed_length() -> None:
    k, v = normal(1, 400, 2, 8), normal(1, 400, 2, 8)
    q, many = normal(1, 1, 4, 8), RNG.permutation(5)
    alone = fj.attention(q, k, v, split_keys=64)
    others = [jnp.concatenate([x, normal(4, *x.shape[1:])])[many] for x in (q, k, v)]
    assert np.array_equal(fj.attention(*others, split_keys=64)[many.argmin()], alone[0])
    with pytest.raises(Exception, match="split_keys = 65"):
        fj.attention(q, k, v, split_keys=65)


CUTS = (0, 11, 11, 30, 50, 90)


def parts(dtype: Any = "float32") -> Any:
    q, k, v = (jnp.asarray(normal(2, s, 4, 16), dtype) for s in (5, 90, 90))
    whole = fj.attention(q, k, v, return_lse=True)
    found = [fj.attention(q, k[:, i:j], v[:, i:j], return_lse=True) for i, j in zip(CUTS, CUTS[1:])]
    return whole, [o for o, _ in found], [lse for _, lse in found]


def test_merge() -> None:
    whole, os, lses = parts()
    near(fj.merge(os, lses), whole)
    near(jax.jit(fj.merge)(os, lses), whole)
    found = fj.merge([x.swapaxes(1, 2) for x in os], lses, layout="bhsd")
    near((found[0].swapaxes(1, 2), found[1]), whole)
    near(fj.merge([x[0] for x in os], [x[0] for x in lses]), [x[0] for x in whole])
    near(fj.merge(os[0], lses[0], os[2], lses[2]), fj.merge([os[2], os[0]], [lses[2], lses[0]]))
    many = jax.vmap(lambda o, lse: fj.merge([o, os[0]], [lse, lses[0]]))(jnp.stack(os), jnp.stack(lses))
    near([x[2] for x in many], fj.merge(os[0], lses[0], os[2], lses[2]))
    o, lse = fj.merge(*parts("bfloat16")[1:])
    assert o.dtype == jnp.bfloat16 and lse.dtype == jnp.float32


def test_merge_refuses() -> None:
    _, os, lses = parts()
    with pytest.raises(TypeError, match="needs o_b and lse_b"):
        fj.merge(os[0], lses[0])
    with pytest.raises(falchion.Invalid, match="there are 5 o and 4 lse"):
        fj.merge(os, lses[1:])
    with pytest.raises(falchion.Invalid, match=r"lse of part 1 has the shape \(4, 5\): it must be \(2, 4, 5\)"):
        fj.merge(os[:2], [lses[0], lses[1][0]])
    with pytest.raises(falchion.Unsupported, match="no gradient of merge"):
        jax.grad(lambda o: fj.merge([o, os[1]], lses[:2])[0].sum())(os[0])
