"""falchion.hf: tiny random models of several families against transformers' eager attention."""

from __future__ import annotations

import functools

import pytest
from torch_support import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import falchion  # noqa: E402
import falchion.hf  # noqa: E402

falchion.hf.register()

SMALL = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
FAMILIES = {
    "llama": (transformers.LlamaConfig, dict(SMALL)),
    "mistral": (transformers.MistralConfig, dict(SMALL, sliding_window=5, head_dim=12)),
    "qwen2": (transformers.Qwen2Config, dict(SMALL)),
    "gemma2": (
        transformers.Gemma2Config,
        dict(
            SMALL,
            head_dim=12,
            sliding_window=4,
            attn_logit_softcapping=2.0,
            query_pre_attn_scalar=12,
        ),
    ),
    "gpt2": (
        transformers.GPT2Config,
        dict(
            vocab_size=97,
            n_embd=48,
            n_layer=2,
            n_head=4,
            n_positions=64,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
}


def model_of(family, implementation):
    config_class, options = FAMILIES[family]
    torch.manual_seed(0)
    config = config_class(**options, attn_implementation=implementation)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():  # far from the flat softmax of a fresh model
        if parameter.dim() > 1:
            parameter.data.mul_(8.0)
    return model


def inputs_of(padding):
    tokens = torch.randint(3, 97, (3, 13), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    if padding == "left":
        mask[0, :5] = mask[2, :1] = 0
    if padding == "right":
        mask[0, 8:] = mask[2, 12:] = 0
    if padding == "holes":
        mask[1, 4:6] = 0
    return tokens * mask, mask


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
    q = torch.randn(1, 2, 3, 8)
    return falchion.hf.attention(torch.nn.Module(), q, q, q, None, **more)


def test_sinks_are_refused():
    with pytest.raises(falchion.Unsupported, match="s_aux"):
        small_call(s_aux=torch.zeros(2))


def test_tensors_that_nobody_knows_are_refused():
    with pytest.raises(falchion.Unsupported, match="strange"):
        small_call(strange=torch.zeros(2))
    small_call(position_ids=torch.zeros(2), use_cache=True)


def test_attention_weights_are_refused():
    with pytest.raises(falchion.Unsupported, match="output_attentions"):
        small_call(output_attentions=True)


def made(padding, q_length=6, **options):
    padding = None if padding is None else torch.tensor(padding, dtype=torch.bool)
    return falchion.hf.mask(2, q_length, 6, 6 - q_length, 0, attention_mask=padding, **options)


LEFT, RIGHT = [[0, 0, 1, 1, 1, 1], [1] * 6], [[1] * 6, [1, 1, 1, 0, 0, 0]]


def test_what_masks_are():
    causal = transformers.masking_utils.causal_mask_function
    full = transformers.masking_utils.bidirectional_mask_function
    sliding = transformers.masking_utils.sliding_window_causal_mask_function(3)
    skip = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True}
    assert made(None) is None and made([[1] * 6] * 2) is None
    assert made(None, mask_function=full, **skip) is None
    left = made(LEFT, mask_function=causal)
    assert left.shape == (2, 3, 2, 1) and left[:, 0, 0, 0].tolist() == [2, 0]
    right = made(RIGHT, mask_function=full, **skip)
    assert right.shape == (2, 1, 1, 1) and right[:, 0, 0, 0].tolist() == [6, 3]
    both = made([LEFT[0], RIGHT[1]], q_length=4)
    assert both.shape == (2, 2, 2, 1) and both[:, :, 0, 0].tolist() == [[2, 6], [0, 3]]
    assert made(None, mask_function=sliding).shape == (2, 1, 1 + 1 + 2 * 3, 1)
    holes = made([[1, 0, 1, 1, 1, 1], [1] * 6])
    assert holes.dtype == torch.bool and holes.shape == (2, 1, 6, 6)
    # Cross attention: queries of another sequence, which need not end where the keys end.
    keys = torch.tensor(RIGHT, dtype=torch.bool)
    cross = falchion.hf.mask(2, 4, 6, 0, 0, mask_function=full, attention_mask=keys, **skip)
    assert cross.shape == (2, 1, 1, 1) and cross[:, 0, 0, 0].tolist() == [6, 3]
    q, k = torch.randn(2, 2, 4, 8), torch.randn(2, 2, 6, 8)
    o, _ = falchion.hf.attention(torch.nn.Module(), q, k, k, cross)
    expected, _ = falchion.hf.attention(torch.nn.Module(), q, k, k, keys[:, None, None])
    assert torch.allclose(o, expected, atol=1e-6)
    assert falchion.hf.mask(2, 4, 6, 0, 0, attention_mask=keys).dtype == torch.bool  # causal
    # The model wants to have the mask itself.
    assert made(LEFT, allow_is_causal_skip=False).dtype == torch.bool
    assert made(RIGHT, mask_function=full).dtype == torch.bool


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
