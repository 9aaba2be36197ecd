"""Small random models of several families, and tokens with and without padding."""

from __future__ import annotations

import pytest
from torch_support import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

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
