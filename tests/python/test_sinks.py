"""Attention sinks: results and gradients beside the formula, from NumPy, PyTorch, JAX and transformers' gpt-oss."""

from __future__ import annotations

import numpy as np
import pytest

import falchion

B, S_Q, S_K, H_Q, H_K, D = 2, 7, 19, 4, 2, 16


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in ((B, S_Q, H_Q, D), (B, S_K, H_K, D), (B, S_K, H_K, D)))
    return q, k, v, np.array([0.5, -2, 3, -np.inf], np.float32)


def formula(q, k, v, sinks):
    """(O, LSE) in float64; sinks (h) or (b, h)."""
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = (np.repeat(x, H_Q // H_K, 1) for x in (k, v))
    s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(D)
    sink = np.broadcast_to(np.asarray(sinks, np.float64), (B, H_Q))[:, :, None]
    lse = np.logaddexp(np.log(np.exp(s).sum(-1)), sink)
    return (np.exp(s - lse[..., None]) @ v).transpose(0, 2, 1, 3), lse


@pytest.mark.parametrize("by_batch", [False, True])
def test_result(by_batch):
    q, k, v, sinks = inputs()
    given = np.stack([sinks, sinks[::-1]]) if by_batch else sinks
    o, lse = falchion.attention(q, k, v, sinks=given, return_lse=True)
    for got, wanted in zip((o, lse), formula(q, k, v, given), strict=True):
        assert np.abs(got - wanted).max() < 2e-6
    packed = falchion.varlen(
        q.reshape(-1, H_Q, D), k.reshape(-1, H_K, D), v.reshape(-1, H_K, D),
        np.arange(3, dtype=np.int32) * S_Q, np.arange(3, dtype=np.int32) * S_K, max_q=S_Q, max_k=S_K, sinks=given,
    )  # fmt: skip
    assert np.abs(packed.reshape(o.shape) - o).max() < 1e-6


def test_what_is_wrong_is_refused_by_its_name():
    q, k, v, sinks = inputs()
    with pytest.raises(falchion.Invalid, match="sinks"):
        falchion.attention(q, k, v, sinks=sinks[:3])
    with pytest.raises(falchion.Invalid, match="sinks has the type float64: it must be float32"):
        falchion.attention(q, k, v, sinks=sinks.astype(np.float64))
    o, lse = falchion.attention(q, k, v, return_lse=True)
    with pytest.raises(falchion.Invalid, match="grad_sinks"):
        falchion.attention_backward(o, q, k, v, o, lse, grad_sinks=np.zeros(H_Q, np.float32))


def test_gradient_beside_differences():
    q, k, v, sinks = inputs(3)
    sinks[3] = 1
    o, lse = falchion.attention(q, k, v, sinks=sinks, return_lse=True)
    grad = np.random.default_rng(9).standard_normal(o.shape, np.float32)
    found = np.zeros(H_Q, np.float32)
    falchion.attention_backward(grad, q, k, v, o, lse, sinks=sinks, grad_sinks=found)
    for h in range(H_Q):
        step = np.zeros(H_Q)
        step[h] = 1e-5
        up, down = (formula(q, k, v, sinks + sign * step)[0] for sign in (1, -1))
        assert abs(((up - down) * grad).sum() / 2e-5 - found[h]) < 1e-4


def torch_formula(torch, q, k, v, sinks):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(H_Q // H_K, 1) for x in (k, v))
    s = q @ k.transpose(2, 3) / D**0.5
    column = sinks.double()[None, :, None, None].expand(*s.shape[:3], 1)
    s = torch.cat((s, column), -1)
    return (s.softmax(-1)[..., :-1] @ v).transpose(1, 2), s.logsumexp(-1)


@pytest.mark.parametrize("way", ["eager", "keys_frozen", "sinks_alone", "varlen", "compiled", "func", "subclass"])
def test_gradients_in_torch(way):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import falchion.torch as ft

    q, k, v, sinks = (torch.from_numpy(x) for x in inputs())
    sinks[3] = 0.25
    given = [x.requires_grad_() for x in (q, k, v, sinks)]
    grad_o = torch.randn(q.shape, generator=torch.Generator().manual_seed(1))
    o, lse = torch_formula(torch, *given)
    wanted = torch.autograd.grad((o * grad_o).sum() + lse.sum(), given)

    def run(q, k, v, sinks):
        if way != "varlen":
            return ft.attention(q, k, v, sinks=sinks, return_lse=True)
        o, lse = ft.varlen(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1),
            torch.arange(3, dtype=torch.int32) * S_Q, torch.arange(3, dtype=torch.int32) * S_K,
            max_q=S_Q, max_k=S_K, sinks=sinks,
            return_lse=True,
        )  # fmt: skip
        return o.unflatten(0, (B, S_Q)), lse.unflatten(1, (B, S_Q)).transpose(0, 1)

    def loss(q, k, v, sinks):
        o, lse = run(q, k, v, sinks)
        return (o * grad_o).sum() + lse.sum()

    if way == "func":
        found = torch.func.grad(loss, argnums=(0, 1, 2, 3))(*(x.detach() for x in given))
    else:
        chosen = {"keys_frozen": (0, 3), "sinks_alone": (3,)}.get(way, (0, 1, 2, 3))
        given = [x.detach().requires_grad_(n in chosen) for n, x in enumerate(given)]
        called = torch.compile(loss, fullgraph=True, backend="aot_eager") if way == "compiled" else loss
        if way == "subclass":
            given[3] = torch.nn.Parameter(given[3].detach())
        wanted = [wanted[n] for n in chosen]
        found = torch.autograd.grad(called(*given), [given[n] for n in chosen])
    for got, exact in zip(found, wanted, strict=True):
        assert (got - exact).abs().max() < 1e-5 * exact.abs().max().clamp(min=1)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_over_a_cache_in_torch(compiled):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import falchion.torch as ft

    q, k, v, sinks = (torch.from_numpy(x) for x in inputs())
    used = torch.tensor([S_K, S_K], dtype=torch.int32)

    def step(q, k, v, sinks):
        return ft.decode(q, k, v, used_k=used, causal=False, sinks=sinks)

    run = torch.compile(step, fullgraph=True, backend="aot_eager") if compiled else step
    wanted, _ = formula(*inputs())
    with torch.no_grad():
        assert np.abs(run(q, k, v, sinks).numpy() - wanted).max() < 2e-6


def test_vmap_in_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import falchion.torch as ft

    q, k, v, sinks = (torch.from_numpy(x) for x in inputs())
    sinks[3] = 0.25
    many = torch.stack((sinks, sinks + 1, sinks - 1))

    def grad(sinks):
        return torch.func.grad(lambda s: ft.attention(q, k, v, sinks=s).sum())(sinks)

    found = torch.func.vmap(grad)(many)
    for one, got in zip(many, found, strict=True):
        assert (grad(one) - got).abs().max() < 1e-5


def test_gradients_in_jax():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import falchion.jax as fj
    import jax.numpy as jnp

    given = [jnp.asarray(x) for x in inputs()]
    given[3] = given[3].at[3].set(0.25)

    def formula(q, k, v, sinks):
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        k, v = (jnp.repeat(x, H_Q // H_K, 1) for x in (k, v))
        s = q @ k.transpose(0, 1, 3, 2) / D**0.5
        s = jnp.concatenate((s, jnp.broadcast_to(sinks[None, :, None, None], (*s.shape[:3], 1))), -1)
        return jnp.sin((jax.nn.softmax(s, -1)[..., :-1] @ v).transpose(0, 2, 1, 3)).sum()

    def ours(q, k, v, sinks):
        return jnp.sin(fj.attention(q, k, v, sinks=sinks)).sum()

    everything = (0, 1, 2, 3)
    wanted, found = (jax.grad(f, everything)(*given) for f in (formula, ours))
    for got, exact in zip(found, wanted, strict=True):
        assert np.abs(np.asarray(got) - np.asarray(exact)).max() < 2e-5
    many = jnp.stack([given[3], given[3] + 1])
    together = jax.vmap(lambda s: jax.grad(ours, 3)(*given[:3], s))(many)
    for one, got in zip(many, together, strict=True):
        assert np.abs(np.asarray(jax.grad(ours, 3)(*given[:3], one)) - np.asarray(got)).max() < 2e-5


def test_gpt_oss_of_transformers():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    if not hasattr(transformers, "GptOssConfig"):
        pytest.skip("this version has no gpt-oss")
    import falchion.hf

    falchion.hf.register()
    tokens = torch.randint(3, 97, (2, 13), generator=torch.Generator().manual_seed(2))
    found = {}
    for name in ("eager", "falchion"):
        torch.manual_seed(0)
        config = transformers.GptOssConfig(
            vocab_size=97, hidden_size=48, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=12, num_local_experts=2, num_experts_per_tok=2, sliding_window=5,
            max_position_embeddings=64, attn_implementation=name,
        )  # fmt: skip
        model = transformers.AutoModelForCausalLM.from_config(config)
        for key, x in model.named_parameters():
            x.data.normal_(0, 1 if key.endswith("sinks") else 0.3)
        logits = model(tokens).logits
        logits.log_softmax(-1)[..., 5].sum().backward()
        grads = {key: x.grad for key, x in model.named_parameters() if "self_attn" in key}
        assert any(key.endswith("sinks") for key in grads)
        found[name] = {"logits": logits.detach(), **grads}
    assert not torch.equal(found["eager"]["logits"], found["falchion"]["logits"]), "eager ran, and not falchion"
    for key, wanted in found["eager"].items():
        off = (found["falchion"][key] - wanted).abs().max() / wanted.abs().max()
        assert off < 1e-4, f"{key}: {off}"


def test_flash_attention_3():
    """s_aux of its functions: dense with gradients, packed, and over a cache in rows and in pages."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from falchion.flash_attn import v3

    q, k, v, sinks = (torch.from_numpy(x) for x in inputs())
    sinks[3] = 0.25
    given = [x.requires_grad_() for x in (q, k, v, sinks)]
    o, lse = torch_formula(torch, *given)
    found, found_lse = v3.flash_attn_func(q, k, v, s_aux=sinks, return_attn_probs=True)
    for got, exact in ((found, o), (found_lse, lse)):
        assert (got - exact).abs().max() < 1e-5
    wanted = torch.autograd.grad(o.sum(), given)
    for got, exact in zip(torch.autograd.grad(found.sum(), given), wanted, strict=True):
        assert (got - exact).abs().max() < 1e-5
    with torch.no_grad():
        starts = [torch.arange(3, dtype=torch.int32) * s for s in (S_Q, S_K)]
        flat = [x.flatten(0, 1) for x in (q, k, v)]
        packed = v3.flash_attn_varlen_func(*flat, *starts, S_Q, S_K, s_aux=sinks)
        assert (packed.unflatten(0, (B, S_Q)) - o).abs().max() < 1e-5
        cached = v3.flash_attn_with_kvcache(q, k, v, cache_seqlens=S_K, s_aux=sinks)
        assert (cached - o).abs().max() < 1e-5
        pages = [x.flatten(0, 1)[:, None] for x in (k, v)]
        table = torch.arange(B * S_K, dtype=torch.int32).view(B, S_K)
        cached = v3.flash_attn_with_kvcache(q, *pages, cache_seqlens=S_K, page_table=table, s_aux=sinks.bfloat16())
        assert (cached - torch_formula(torch, q, k, v, sinks.bfloat16())[0]).abs().max() < 1e-5
