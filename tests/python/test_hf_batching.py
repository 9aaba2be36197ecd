"""Continuous batching of transformers with falchion.hf: packed sequences, and a step over its pages."""

from __future__ import annotations

import inspect

import pytest
from hf_families import transformers
from torch_support import DEVICES, assert_near, definition, torch

import falchion.hf

pytest.importorskip("transformers.generation.continuous_batching", reason="transformers has no such")
falchion.hf.register()


def small(kind):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 64, "pad_token_id": 0, "eos_token_id": 96, "bos_token_id": 1,
    }  # fmt: skip
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    config = transformers.GptOssConfig(**sizes, head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=6)
    return transformers.GptOssForCausalLM(config)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["llama", "gpt_oss"])
def test_batches_are_the_sequences_alone(kind, device):
    """On a GPU steps of one token go over the pages. gpt-oss has sinks and windows."""
    if kind == "gpt_oss" and not hasattr(transformers, "GptOssConfig"):
        pytest.skip("this transformers has no gpt-oss")
    model = small(kind).eval().to(device)
    for layer in model.model.layers if kind == "gpt_oss" else ():
        torch.nn.init.normal_(layer.self_attn.sinks, 1.0)
    prompts = [list(range(2, 12)), list(range(20, 25)), list(range(40, 60))]
    options = transformers.GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=96, pad_token_id=0)
    expected = [
        model.generate(torch.tensor([x], device=device), generation_config=options)[0, len(x) :].tolist()
        for x in prompts
    ]
    model.set_attn_implementation("falchion_flash_2")
    config_of = transformers.ContinuousBatchingConfig
    size = "page_size" if "page_size" in inspect.signature(config_of).parameters else "block_size"
    pages = config_of(num_blocks=32, **{size: 16})
    try:
        batches = model.generate_batch(prompts, generation_config=options, continuous_batching_config=pages)
    except MemoryError as why:  # transformers 5.17 on a CPU without psutil
        pytest.skip(f"transformers finds no memory: {why}")
    assert [x.generated_tokens for x in batches.values()] == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_over_pages(device):
    q, k, v = (torch.randn(1, h, 3, 16, device=device) for h in (4, 2, 2))
    pages_k, pages_v = (torch.randn(9, 4, 2, 16, device=device) for _ in range(2))
    before = pages_k.clone()
    table = torch.tensor([[3, 0, -1], [7, 1, 2], [8, -1, -1]], dtype=torch.int32, device=device)
    lengths = [6, 12, 1]  # the new keys are counted
    starts = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    sinks = torch.tensor([0.5, -1, 2, 3], device=device)
    for window, s_aux in (None, None), (4, None), (None, sinks):
        o, weights = falchion.hf.attention(
            torch.nn.Module(), q, k, v, None, scaling=0.3, sliding_window=window, block_table=table, s_aux=s_aux,
            k_cache=pages_k, v_cache=pages_v, cu_seq_lens_k=starts, cu_seq_lens_q=starts, max_length_k=12,
        )  # fmt: skip
        assert weights is None and o.shape == (1, 3, 4, 16)
        for i, n in enumerate(lengths):
            keys, values = (x[table[i].clamp(min=0).long()].flatten(0, 1)[:n] for x in (pages_k, pages_v))
            assert torch.equal(keys[-1], k[0, :, i]) and torch.equal(values[-1], v[0, :, i])
            band = {} if window is None else {"window": (window - 1, 0), "align": "bottom_right"}
            wanted, lse = definition(q[:, :, i, None].transpose(1, 2), keys[None], values[None], scale=0.3, **band)
            share = 1 if s_aux is None else torch.sigmoid(lse[0, :, 0] - s_aux)[:, None]
            assert_near(o[0, i], wanted[0, 0] * share)
    assert (pages_k != before).flatten(2).any(2).sum() == 3


def test_other_names_are_looked_up_as_before():
    from transformers import modeling_flash_attention_utils as utils

    with pytest.raises(Exception, match="flash|kernel"):
        utils._lazy_imports("no_such_flash_attention")
    assert utils._lazy_imports("falchion_flash_2")[2] is falchion.flash_attn.flash_attn_with_kvcache
