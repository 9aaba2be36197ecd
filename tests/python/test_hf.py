"""falchion.hf: tiny random models of several families against transformers' eager attention."""

from __future__ import annotations

import functools

import pytest
from hf_families import FAMILIES, inputs_of, model_of, transformers
from torch_support import torch

import falchion
import falchion.hf

falchion.hf.register()


@pytest.mark.parametrize("padding", ["none", "left", "right", "holes"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits(family, padding):
    tokens, mask = inputs_of(padding)
    with torch.no_grad():
        logits = {
            name: model_of(family, name)(tokens, attention_mask=mask).logits[mask.bool()]
            for name in ("eager", "sdpa", "falchion")
        }
    assert not torch.equal(logits["falchion"], logits["eager"]), "eager ran, and not falchion"
    size = logits["eager"].abs().max()
    ours = (logits["falchion"] - logits["eager"]).abs().max() / size
    assert ours <= max(2 * (logits["sdpa"] - logits["eager"]).abs().max() / size, 2e-5)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients(family, padding):
    tokens, mask = inputs_of(padding)
    grads = {}
    for name in ("eager", "falchion"):
        model = model_of(family, name).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            if hasattr(module, "attention_dropout") or hasattr(module, "attn_dropout"):
                module.attention_dropout = 0.0
        logits = model(tokens, attention_mask=mask).logits[mask.bool()]
        logits.float().log_softmax(-1)[:, 5].sum().backward()
        grads[name] = {n: p.grad for n, p in model.named_parameters()}
    for name, x in grads["eager"].items():
        error = (grads["falchion"][name] - x).abs().max() / x.abs().max().clamp(min=1e-3)
        assert error < 2e-3, f"{name}: {error}"


@pytest.mark.parametrize("cache", ["dynamic", "static", "none"])
@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_generation(family, padding, cache):
    tokens, mask = inputs_of(padding)
    options = dict(max_new_tokens=12, do_sample=False, pad_token_id=0)
    if cache == "static":
        options.update(cache_implementation="static", disable_compile=True)
    if cache == "none":
        options.update(use_cache=False)
    found = [
        model_of(family, name).generate(tokens, attention_mask=mask, **options)
        for name in ("eager", "falchion")
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize("padding", ["none", "left"])
def test_a_compiled_model_is_one_graph(padding):
    tokens, mask = inputs_of(padding)
    model = model_of("gemma2", "falchion")
    expected = model(tokens, attention_mask=mask).logits[mask.bool()]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found = compiled(tokens, attention_mask=mask).logits[mask.bool()]
    assert (found - expected).abs().max() < 2e-5 * expected.abs().max()


def test_a_chunk_of_queries_on_a_cache():
    tokens, _ = inputs_of("none")
    for family in ("llama", "mistral"):
        logits = []
        for name in ("eager", "falchion"):
            model = model_of(family, name)
            with torch.no_grad():
                cache = model(tokens[:, :6], use_cache=True).past_key_values
                logits.append(model(tokens[:, 6:], past_key_values=cache).logits)
        assert (logits[0] - logits[1]).abs().max() < 2e-5 * logits[0].abs().max()


@pytest.mark.parametrize("padding", ["none", "left", "right", "holes"])
def test_an_encoder(padding):
    tokens, mask = inputs_of(padding)
    found = {}
    for name in ("eager", "sdpa", "falchion"):
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=97, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, attn_implementation=name,
        )  # fmt: skip
        model = transformers.BertModel(config).eval()
        with torch.no_grad():
            found[name] = model(tokens, attention_mask=mask).last_hidden_state[mask.bool()]
    assert (found["falchion"] - found["eager"]).abs().max() < 1e-5


def test_an_encoder_with_a_decoder():
    config = transformers.BartConfig(
        vocab_size=97, d_model=48, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=64,
        encoder_attention_heads=4, decoder_attention_heads=4, decoder_ffn_dim=64,
    )  # fmt: skip
    tokens, mask = inputs_of("right")
    logits = []
    for name in ("eager", "falchion"):
        config._attn_implementation = name
        torch.manual_seed(0)
        model = transformers.BartForConditionalGeneration(config).eval()
        with torch.no_grad():
            made = model(tokens, attention_mask=mask, decoder_input_ids=tokens[:, :7])
            logits.append(made.logits)
    assert (logits[0] - logits[1]).abs().max() < 1e-5


def small_call(**more):
    q = torch.randn(1, 2, 3, 8, generator=torch.Generator().manual_seed(4))
    return falchion.hf.attention(torch.nn.Module(), q, q, q, None, **more)


def test_probabilities_leave_the_sink_out():
    o, weights = small_call(s_aux=torch.tensor([0.0, 2.0]), output_attentions=True, is_causal=False)
    plain, all_weights = small_call(output_attentions=True, is_causal=False)
    assert weights.shape == all_weights.shape == (1, 2, 3, 3)
    share = weights.sum(-1)
    assert (all_weights.sum(-1) - 1).abs().max() < 1e-6 and (share < 0.99).all()
    assert (o - plain * share.transpose(1, 2)[..., None]).abs().max() < 1e-5


def test_tensors_that_nobody_knows_are_refused():
    with pytest.raises(falchion.Unsupported, match="strange"):
        small_call(strange=torch.zeros(2))
    small_call(position_ids=torch.zeros(2), use_cache=True)


class NamesATensor(torch.nn.Module):
    """Attention with a keyword of its own, as the sparse attention of deepseek_v32 has it."""

    def forward(self, q, chosen, **kwargs):
        interface = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.get_interface(
            "falchion", None
        )
        return interface(self, q, q, q, None, chosen=chosen, **kwargs)[0]


def test_keywords_of_the_loss_are_told_from_those_of_attention():
    q, labels = torch.randn(1, 2, 3, 8), torch.zeros(1, 3)
    module = NamesATensor()
    assert torch.equal(module(q, None, shift_labels=labels), module(q, None))
    with pytest.raises(falchion.Unsupported, match="chosen"):
        module(q, torch.zeros(2))
    tokens, mask = inputs_of("right")
    for family in FAMILIES:
        model = model_of(family, "falchion")
        eager = model_of(family, "eager")
        labels = tokens.masked_fill(mask == 0, -100)
        for loss in (dict(labels=labels), dict(labels=labels, shift_labels=labels)):
            more = dict(attention_mask=mask, num_items_in_batch=torch.tensor(30), **loss)
            found, expected = model(tokens, **more).loss, eager(tokens, **more).loss
            assert abs(found - expected) < 2e-5 * abs(expected)


@pytest.mark.parametrize("padding", ["none", "left", "holes"])
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_weights(family, padding):
    tokens, mask = inputs_of(padding)
    found, expected = (
        model_of(family, name)(tokens, attention_mask=mask, output_attentions=True)
        for name in ("falchion", "eager")
    )
    if family == "gpt2":  # it tells its attention nothing of it; sdpa gives none either
        assert len(found.attentions) == 0
        return
    assert len(found.attentions) == len(expected.attentions) == 2
    for ours, theirs in zip(found.attentions, expected.attentions):
        assert ours.shape == theirs.shape == (3, 4, 13, 13)
        rows = mask.bool()[:, None, :].expand(3, 4, 13)
        assert (ours[rows] - theirs[rows]).abs().max() < 2e-5


def test_attention_weights_without_a_mask_are_those_of_the_band():
    module, (q, k) = torch.nn.Module(), torch.randn(2, 1, 4, 6, 8)
    k = k[:, :2]
    for more in ({}, {"sliding_window": 3}, {"is_causal": False}, {"softcap": 1.5, "scaling": 0.7}):
        o, p = falchion.hf.attention(module, q, k, k, None, output_attentions=True, **more)
        assert torch.allclose(p.sum(-1), torch.ones(1, 4, 6))
        assert (p @ k.repeat_interleave(2, 1) - o.transpose(1, 2)).abs().max() < 1e-6


def test_attention_weights_have_gradients():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    _, p = falchion.hf.attention(torch.nn.Module(), q, q, q, None, output_attentions=True)
    p.square().sum().backward()
    assert q.grad.abs().max() > 0


def test_a_key_whose_last_axis_has_gaps():
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 8, 3).transpose(2, 3)
    found, expected = (
        falchion.hf.attention(torch.nn.Module(), q, x, x, None)[0] for x in (k, k.contiguous())
    )
    assert torch.equal(found, expected)


def test_a_mask_that_is_none_of_ours_is_refused():
    q = torch.randn(1, 2, 3, 8)
    with pytest.raises(falchion.Invalid, match="attention_mask"):
        falchion.hf.attention(torch.nn.Module(), q, q, q, torch.ones(1, 3, dtype=torch.int64))


def test_packed_sequences_beside_the_tensors():
    q = torch.randn(1, 2, 9, 8)
    starts = torch.tensor([0, 4, 9], dtype=torch.int32)
    lengths = dict(cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=5, max_length_k=5)
    found = falchion.hf.attention(torch.nn.Module(), q, q, q, None, **lengths)[0]
    parts = [
        falchion.hf.attention(torch.nn.Module(), *[x] * 3, None)[0] for x in q.split([4, 5], 2)
    ]
    assert (found - torch.cat(parts, 1)).abs().max() < 1e-6


@pytest.mark.parametrize("s_k", [1, 3])
@pytest.mark.parametrize("heads", [1, 2])
def test_a_mask_of_integers_is_refused(heads, s_k):
    """falchion's own lengths are int32 with four axes too; such a mask is not taken for them."""
    q, k = torch.randn(2, 2, 3, 8), torch.randn(2, 2, s_k, 8)
    for dtype in (torch.int32, torch.int64):
        marks = torch.ones(2, heads, 3, s_k, dtype=dtype)
        with pytest.raises(falchion.Invalid, match="attention_mask has the type torch.int"):
            falchion.hf.attention(torch.nn.Module(), q, k, k, marks)


def test_what_packed_sequences_do_not_take_is_refused():
    q = torch.randn(1, 2, 9, 8)
    starts = torch.tensor([0, 4, 9], dtype=torch.int32)
    lengths = dict(cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=5, max_length_k=5)
    run = functools.partial(falchion.hf.attention, torch.nn.Module(), q, q, q, None)
    with pytest.raises(falchion.Unsupported, match="position_bias"):
        run(position_bias=torch.zeros(1, 2, 9, 9), **lengths)
    for more in (lengths, {}):
        with pytest.raises(falchion.Unsupported, match="sliding_window = 3 .* is_causal = False"):
            run(is_causal=False, sliding_window=3, **more)
        assert run(is_causal=False, sliding_window=9, **more)[0].shape == (1, 9, 2, 8)
