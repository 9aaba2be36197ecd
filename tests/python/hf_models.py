"""Small models with random weights of each kind that transformers knows, and what to feed them."""

from __future__ import annotations

import copy
import inspect
import re

import pytest
from torch_support import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import huggingface_hub  # noqa: E402
from transformers.models.auto import configuration_auto, modeling_auto  # noqa: E402

# A configuration that wants to fetch something fails at once.
huggingface_hub.constants.HF_HUB_OFFLINE = True

# The largest number that a setting of a configuration may keep, by the end of its name.
SIZES = [
    (r"vocab_size(_per_layer_input)?", 99),
    (r"num_key_value_heads|num_kv_heads|num_query_groups|multi_query_group_num", 2),
    (r"num_\w*heads|n_heads?|attention_heads|(^|_)heads", 4),
    (r"head_dim|rope_head_dim|nope_head_dim|v_head_dim|d_kv|attention_head_size|head_size", 8),
    (r"lora_rank", 16),
    (r"rotary_dim", 8),
    (r"num_experts|num_local_experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_k|num_selected_experts|moe_topk", 2),
    (r"image_size", 32),
    (r"patch_size", 8),
    (
        r"hidden_size|d_model|n_embd|embed_dim|hidden_dim|(^|_)dim|d_embed|embedding_size|emb_dim|"
        r"word_embed_proj_dim|projection_dim|proj_dim|encoder_hidden_dim",
        32,
    ),
    (
        r"intermediate_size|ffn_dim|d_ff|n_inner|d_inner|ffn_hidden_size|dim_feedforward|"
        r"feed_forward|intermediate_dim|mlp_dim",
        48,
    ),
    (r"num_\w*layers|n_layers?|_layers|num_blocks|depth", 2),
]
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LARGEST = 4_000_000  # parameters
RESULTS = (
    "logits",
    "last_hidden_state",
    "encoder_last_hidden_state",
    "logits_per_text",
    "pooler_output",
)

KINDS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "base": modeling_auto.MODEL_MAPPING_NAMES,
}
NAMES = list(configuration_auto.CONFIG_MAPPING_NAMES)


class NotBuilt(Exception):
    """Why a model is left out, in few words, so that reasons can be counted."""


def _at_most(name: str) -> int | None:
    return next((n for ends, n in SIZES if re.search(rf"({ends})$", name)), None)


def _small_config(kind: type):
    base = kind()
    settings: dict = {}
    for name, value in base.to_dict().items():
        if name.startswith("_") or isinstance(value, bool) or not isinstance(value, int):
            continue
        largest = None if "feat_extract" in name else _at_most(name)
        if largest is not None and value > largest:
            settings[name] = largest
        elif name.endswith(("_token_id", "_token_index")) and value > 98:
            settings[name] = TOKENS.get(name, 3)
    for name in getattr(base, "sub_configs", None) or {}:
        if hasattr(getattr(base, name, None), "to_dict"):
            settings[name] = _small_config(type(getattr(base, name)))
    heads = getattr(base, "num_attention_heads", None)
    if heads is not None and heads == getattr(base, "num_key_value_heads", None):
        settings["num_key_value_heads"] = min(heads, 4)
    rope = getattr(base, "rope_parameters", None)
    if isinstance(rope, dict) and "mrope_section" in rope:
        parts = int(8 * rope.get("partial_rotary_factor", 1)) // 2
        sections = [parts - 2 * (parts // 3), parts // 3, parts // 3] if parts > 2 else [1, 1, 0]
        settings["rope_parameters"] = {**rope, "mrope_section": sections}
    layers = getattr(base, "layer_types", None)
    if isinstance(layers, list) and layers:
        kinds = list(dict.fromkeys(layers))
        if not isinstance(getattr(type(base), "layer_types", None), property):
            settings["layer_types"] = (2 * kinds)[: max(2, len(kinds))]
        for name in ("num_hidden_layers", "n_layers", "num_layers"):
            if hasattr(base, name):
                settings[name] = max(2, len(kinds))
    return kind(**settings)


def _attempt(what: str, function):
    """Whatever transformers or a library that it lacks says to a configuration nobody has tried."""
    try:
        return function()
    except Exception as error:
        raise NotBuilt(f"{what}: {type(error).__name__}") from None


def small_model(name: str):
    """(class of the model, its kind, its configuration) of a model type."""
    kind = next((kind for kind in KINDS if name in KINDS[kind]), None)
    if kind is None:
        raise NotBuilt("no model of its own")
    named = KINDS[kind][name]
    named = named[0] if isinstance(named, (tuple, list)) else named
    config = _attempt(
        "a small configuration", lambda: _small_config(configuration_auto.CONFIG_MAPPING[name])
    )
    model_class = _attempt("import", lambda: getattr(transformers, named))
    with torch.device("meta"):
        empty = _attempt("building", lambda: model_class(copy.deepcopy(config)))
    if sum(x.numel() for x in empty.parameters()) > LARGEST:
        raise NotBuilt(f"more than {LARGEST} parameters")
    return model_class, kind, config


def build(model_class, config, implementation: str, weights=None):
    """The model with these weights, or with random ones under which attention is far from flat."""
    config = copy.deepcopy(config)
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = model_class(config).eval()
    if weights is not None:
        model.load_state_dict(weights)
        return model
    generator = torch.Generator().manual_seed(0)
    for x in model.parameters():
        if x.is_floating_point() and x.dim() > 1:
            size = 0.6 / max(x.shape[-1], 8) ** 0.5 if x.dim() == 2 else 0.1
            x.data.copy_(size * torch.randn(x.shape, generator=generator))
    return model


def inputs_of(model_class, config):
    """What the model is called with; (2, 9) tokens, of which the first axis counts sequences."""
    taken = inspect.signature(model_class.forward).parameters
    generator = torch.Generator().manual_seed(1)
    if "input_ids" in taken:
        found = {"input_ids": torch.randint(5, 95, (2, 9), generator=generator)}
        if "decoder_input_ids" in taken:
            found["decoder_input_ids"] = torch.randint(5, 95, (2, 6), generator=generator)
        return found
    if "input_values" in taken:
        return {"input_values": torch.randn(2, 4000, generator=generator)}
    return image_for(model_class, config)


def image_for(model_class, config):
    """A square image, where the model takes one."""
    config = getattr(config, "vision_config", config)
    size = getattr(config, "image_size", None)
    if not isinstance(size, int) or "pixel_values" not in inspect.signature(model_class.forward).parameters:
        raise NotBuilt("takes neither tokens nor a square image")
    shape = (2, getattr(config, "num_channels", 3), size, size)
    return {"pixel_values": torch.randn(shape, generator=torch.Generator().manual_seed(2))}


def outputs_of(model, inputs, **more):
    with torch.no_grad():
        found = model(**inputs, **more)
    for name in RESULTS:
        if isinstance(getattr(found, name, None), torch.Tensor):
            return getattr(found, name).float()
    raise NotBuilt("gives neither logits nor states")
