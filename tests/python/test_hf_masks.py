"""The mask of falchion.hf: for models on transformers' attention interface, for models that compute attention
themselves, and for models of which a part does."""

from __future__ import annotations

import copy
import pickle

import pytest
from hf_families import FAMILIES, inputs_of, model_of, transformers
from torch_support import DEVICES, torch

import falchion
import falchion.hf

falchion.hf.register()

LEFT, RIGHT = [[0, 0, 1, 1, 1, 1], [1] * 6], [[1] * 6, [1, 1, 1, 0, 0, 0]]
HOLES = [[1, 0, 1, 1, 1, 1], [1] * 6]
PADDINGS = [None, [[1] * 6] * 2, LEFT, RIGHT, [LEFT[0], RIGHT[1]], HOLES, [[0] * 6, [1] * 6]]
functions = transformers.masking_utils


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(
    "function",
    [
        functions.causal_mask_function,
        functions.bidirectional_mask_function,
        functions.sliding_window_causal_mask_function(3),
        functions.sliding_window_bidirectional_mask_function(3),
        "blocks",
    ],
)
@pytest.mark.parametrize("q_length, q_offset", [(6, 0), (4, 2), (1, 5), (4, 0)])
def test_a_mask_reads_as_that_of_eager(function, padding, q_length, q_offset, device):
    if function == "blocks":
        blocks = torch.tensor([[0, 0, 1, 1, 1, 2]] * 2, device=device)
        function = functions.blockwise_overlay(blocks)
    padding = None if padding is None else torch.tensor(padding, dtype=torch.bool, device=device)
    for dtype in (torch.float32, torch.bfloat16):
        asked = (2, q_length, 6, q_offset, 0, function, padding)
        expected = functions.eager_mask(*asked, dtype=dtype, device=device)
        found = falchion.hf.mask(*asked, dtype=dtype, device=device)
        assert found.shape == expected.shape and found.dtype == expected.dtype
        assert torch.equal(found + 0, expected)
        assert torch.equal(found[:, :, 1:, :2], expected[:, :, 1:, :2])
        zeros = expected == 0
        assert torch.equal(found.masked_fill(zeros, 1), expected.masked_fill(zeros, 1))
    q, k = (torch.randn(2, 2, s, 8, device=device) for s in (q_length, 6))
    rows = (expected == 0).any(-1, keepdim=True).transpose(1, 2)  # the others may be anything
    if padding is not None and q_length + q_offset == 6:
        rows = rows & padding[:, q_offset:, None, None]
    module = torch.nn.Module()
    o, plain = (
        falchion.hf.attention(module, q, k, k, x)[0]
        for x in (falchion.hf.mask(*asked, device=device), expected.float())
    )
    assert ((o - plain) * rows).abs().max() < 1e-6


def test_nobody_writes_the_mask_of_models_on_the_interface(monkeypatch):
    def refuse(mask):
        raise AssertionError("the mask is made in memory")

    monkeypatch.setattr(falchion.hf._mask.Mask, "matrix", refuse)
    for family in FAMILIES:
        for padding in ("none", "left", "right", "holes"):
            tokens, mask = inputs_of(padding)
            model_of(family, "falchion")(tokens, attention_mask=mask)


def test_a_mask_that_is_written_to():
    """A module may change what it was given, and the next one sees the change."""
    q = torch.randn(1, 2, 5, 8)
    plain = functions.eager_mask(1, 5, 5)
    for change in (lambda x: x[..., 0].fill_(-1e30), lambda x: x.masked_fill_(x == 0, -2.0)):
        found, expected = falchion.hf.mask(1, 5, 5), plain.clone()
        change(found), change(expected)
        o, other = (
            falchion.hf.attention(torch.nn.Module(), q, q, q, x)[0] for x in (found, expected)
        )
        assert torch.equal(o, other) and torch.equal(found + 0, expected)


def bloom(name):
    torch.manual_seed(0)
    config = transformers.BloomConfig(
        vocab_size=99, hidden_size=64, n_head=2, n_layer=2, attn_implementation=name
    )
    return transformers.BloomForCausalLM(config)


@pytest.mark.parametrize("padding", ["none", "left", "right", "holes"])
@pytest.mark.parametrize("way", ["plain", "compiled", "checkpoint", "inference"])
def test_a_model_that_computes_attention_itself(padding, way):
    tokens, mask = inputs_of(padding)
    changed = tokens.clone()
    changed[:, -1] = 5
    logits = {}
    for name in ("eager", "falchion"):
        model = bloom(name).train(way == "checkpoint")
        if way == "checkpoint":
            model.gradient_checkpointing_enable()
            torch.manual_seed(0)
        run = torch.compile(model, backend="aot_eager") if way == "compiled" else model
        with torch.inference_mode(way == "inference"):
            logits[name] = run(tokens, attention_mask=mask, use_cache=False).logits
    assert torch.equal(logits["eager"], logits["falchion"])
    if way == "plain" and padding == "none":
        assert torch.equal(model(changed).logits[:, 0], model(tokens).logits[:, 0])


@pytest.mark.parametrize("cache", ["dynamic", "static", "none"])
@pytest.mark.parametrize("padding", ["none", "left"])
def test_a_model_that_computes_attention_itself_generates(padding, cache):
    tokens, mask = inputs_of(padding)
    options = dict(max_new_tokens=6, do_sample=False, pad_token_id=0, use_cache=cache != "none")
    if cache == "static":
        options.update(cache_implementation="static", disable_compile=True)
    found = [
        bloom(name).generate(tokens, attention_mask=mask, **options)
        for name in ("eager", "falchion")
    ]
    assert torch.equal(*found)


class OwnAttention(torch.nn.Module):
    """Attention of a llama's layer with its own softmax, which reads the mask as eager's."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, hidden_states, attention_mask, **_):
        q, k, v = (
            layer(hidden_states).unflatten(-1, (-1, 12)).transpose(1, 2)
            for layer in (self.inner.q_proj, self.inner.k_proj, self.inner.v_proj)
        )
        k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        p = (q @ k.transpose(2, 3) + attention_mask).softmax(-1)
        return self.inner.o_proj((p @ v).transpose(1, 2).flatten(2)), None


@pytest.mark.parametrize("padding", ["none", "left", "right", "holes"])
def test_a_model_of_which_a_part_computes_attention_itself(padding):
    tokens, mask = inputs_of(padding)
    logits = []
    for name in ("eager", "falchion"):
        model = model_of("llama", name)
        model.model.layers[0].self_attn = OwnAttention(model.model.layers[0].self_attn)
        logits.append(model(tokens, attention_mask=mask, use_cache=False).logits[mask.bool()])
    assert (logits[0] - logits[1]).abs().max() < 2e-5 * logits[0].abs().max()


@pytest.mark.parametrize("padding", ["none", "left", "holes"])
def test_layers_that_are_compiled_one_by_one(padding):
    tokens, mask = inputs_of(padding)
    model = model_of("gemma2", "falchion")
    expected = model(tokens, attention_mask=mask).logits[mask.bool()]
    torch._dynamo.reset()
    for layer in model.model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    found = model(tokens, attention_mask=mask).logits[mask.bool()]
    assert (found - expected).abs().max() < 2e-5 * expected.abs().max()


def test_packed_sequences_in_a_model():
    """The starts of sequences beside a mask that is a band alone, as padding-free collators give them."""
    tokens, _ = inputs_of("none")
    tokens = tokens[:1]
    starts = torch.tensor([0, 5, 13], dtype=torch.int32)
    lengths = dict(cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=8, max_length_k=8)
    places = torch.cat([torch.arange(5), torch.arange(8)])[None]
    for family in ("llama", "mistral"):
        model = model_of(family, "falchion")
        parts = [model(x).logits for x in tokens.split([5, 8], 1)]
        first = model(tokens, position_ids=places, use_cache=False).logits
        found = model(tokens, position_ids=places, use_cache=False, **lengths).logits
        for logits in (first, found):
            assert (logits - torch.cat(parts, 1)).abs().max() < 2e-5 * logits.abs().max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding", ["none", "left", "right", "holes"])
def test_a_mask_on_its_way(padding, device):
    """detach and a move leave a mask what it is; other operations, a copy and a file have the matrix."""
    marks = inputs_of(padding)[1].bool()
    expected = functions.eager_mask(3, 13, 13, attention_mask=marks)
    found = falchion.hf.mask(3, 13, 13, attention_mask=marks)
    moved = found.detach().to(device)
    assert type(moved) is type(found) and moved._made is None and moved.device.type == device
    assert torch.equal(moved + 0, expected.to(device))
    assert type(found.to("meta")) is type(found)
    for other in (found.to(torch.float64), found.expand(3, 4, 13, 13), copy.deepcopy(found)):
        assert type(other) is torch.Tensor
    assert torch.equal(pickle.loads(pickle.dumps(found)), expected)


@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_static_cache_is_lengths_and_no_tensor(padding, window):
    """The engine reads the keys that are there, and the mask reads as the one of eager attention."""
    family = "llama" if window is None else "mistral"
    tokens, marks = inputs_of(padding)
    model = model_of(family, "falchion")
    made = []

    def spy(*args, **options):
        mask = falchion.hf.mask(*args, **options)
        made.append((mask, transformers.masking_utils.eager_mask(*args, **options)))
        return mask

    transformers.AttentionMaskInterface.register("falchion", spy)
    try:
        cache = transformers.StaticCache(config=model.config, max_cache_len=20)
        if window is not None:
            pytest.skip("transformers gives such a model a cache of a window") if cache.is_sliding[0] else None
        with torch.no_grad():
            first = model(tokens[:, :9], attention_mask=marks[:, :9], past_key_values=cache).logits
            more = model(tokens[:, 9:], attention_mask=marks, past_key_values=cache).logits
    finally:
        falchion.hf.register()
    eager = model_of(family, "eager")(tokens, attention_mask=marks).logits
    found = torch.cat([first, more], 1)
    assert (found - eager)[marks.bool()].abs().max() < 2e-5 * eager.abs().max()
    assert made and all(isinstance(x, falchion.hf._mask.Mask) and x.corner is not None for x, _ in made)
    for ours, theirs in made:
        rows = marks.bool()[:, None, -ours.shape[2] :] if ours.shape[2] == 4 else marks.bool()[:, None, :9]
        assert ours.shape == theirs.shape
        assert torch.equal((ours + 0)[rows.expand(*ours.shape[:3])], theirs[rows.expand(*theirs.shape[:3])])
