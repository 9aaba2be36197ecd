"""Falchion as the attention of Hugging Face transformers (5.x).

    import falchion.hf
    falchion.hf.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="falchion")

register() adds two functions to transformers: the attention, and the function that makes masks for
it. Both are needed, because transformers gives an attention without a mask function no mask at all.
Under the name with "_flash" behind it they serve continuous batching too (_batching.py).

The mask is read by falchion's attention as a band and lengths, and by a model that computes attention
itself as the tensor of eager attention. docs/python_huggingface.md says more."""

from __future__ import annotations

import functools
import inspect
import math
import types
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

import falchion.torch as ft
from falchion import Invalid, Unsupported
from falchion.torch._options import last_contiguous

from ._batching import paged, serve_batches
from ._mask import Mask, is_plain, mask, options_of

__all__ = ["attention", "mask", "register"]

# Tensors that modules name for kernels of other libraries, and that say nothing that the mask does not
# say already.
_PASSED_THROUGH = frozenset(["position_ids", "cache_position", "position_embeddings", "seq_idx"])
_OF_BATCHES = frozenset(["block_table", "k_cache", "v_cache", "logits_indices", "cache"])


def register(name: str = "falchion") -> None:
    """Makes attn_implementation=name known to transformers, and f"{name}_flash_2" for continuous
    batching, which takes an attention for paged where its name says flash."""
    for known in name, f"{name}_flash_2":
        AttentionInterface.register(known, attention)
        AttentionMaskInterface.register(known, mask)
    serve_batches(f"{name}_flash_2")


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """transformers' attention function: query (b, h_q, s_q, d), key and value (b, h_k, s_k, d); the
    result is (b, s_q, h_q, d), and with output_attentions the probabilities (b, h_q, s_q, s_k).
    s_aux: attention sinks, one a head, as gpt-oss learns them.
    Raises Unsupported for tensors that the module names and that are unknown here."""
    _refuse(module, others)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    packed = others.get("cu_seq_lens_q")
    if packed is not None and isinstance(attention_mask, Mask) and is_plain(attention_mask):
        causal, sliding_window = attention_mask.causal, attention_mask.window or sliding_window
        attention_mask = None
    q, k, v = (last_contiguous(x).transpose(1, 2) for x in (query, key, value))
    if others.get("block_table") is not None:
        return paged(q, k, v, scaling, sliding_window, softcap, s_aux, **others), None
    common: dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "dropout": dropout}
    if s_aux is not None:
        common["sinks"] = s_aux.float()
    if attention_mask is None and not causal and sliding_window is not None:
        longest = key.shape[2] if packed is None else others.get("max_length_k")
        if longest is None or sliding_window < longest:
            raise Unsupported(
                f"sliding_window = {sliding_window} is given without a mask and with is_causal = "
                "False: it is not known which keys it leaves out; pass a mask"
            )
    if attention_mask is None and packed is not None:
        if position_bias is not None:
            raise Unsupported(
                "position_bias is given with cu_seq_lens_q: packed sequences take no bias; "
                "use attn_implementation='sdpa'"
            )
        return _packed(q, k, v, bool(causal), sliding_window, others, common), None
    seen = _seen(attention_mask, q, k, bool(causal), sliding_window)
    weights = None
    if others.get("output_attentions"):
        weights = _probabilities(
            query, key, scaling, softcap, position_bias, attention_mask, seen, s_aux
        )
    bias = seen.pop("bias", None)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    if bias is not None and bias.dtype not in (torch.float32, q.dtype):
        bias = bias.float()
    return ft.attention(q, k, v, bias=bias, **seen, **common), weights


def _seen(
    mask: Tensor | None, q: Tensor, k: Tensor, causal: bool, sliding_window: int | None
) -> dict[str, Any]:
    """Which keys are seen, as options of falchion.torch.attention."""
    s_q, s_k = q.shape[1], k.shape[1]
    if mask is None:
        if not causal or s_q == 1:
            return {}
        band: dict[str, Any] = {"causal": "top_left"}
        if sliding_window is not None and sliding_window <= s_k:
            band["window"] = (sliding_window - 1, None)
        return band
    if isinstance(mask, Mask):
        fits = tuple(mask.shape) == (q.shape[0], 1, s_q, s_k)
        return options_of(mask) if fits else {"bias": mask.matrix()}
    if mask.dim() == 4 and (mask.dtype is torch.bool or mask.is_floating_point()):
        return {"mask" if mask.dtype is torch.bool else "bias": mask}
    raise Invalid(
        f"attention_mask has the type {mask.dtype} and the shape {tuple(mask.shape)}; it is a bool "
        "or float mask (b, h or 1, s_q, s_k), or what falchion.hf.mask makes"
    )


def _probabilities(
    query: Tensor,
    key: Tensor,
    scaling: float | None,
    softcap: float | None,
    position_bias: Tensor | None,
    mask: Tensor | None,
    seen: dict[str, Any],
    sinks: Tensor | None,
) -> Tensor:
    """The probabilities before dropout as eager attention has them, differentiable. They are made beside
    the attention, which keeps none, so that they cost the memory and the time of eager attention."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scale = 1 / math.sqrt(query.shape[3]) if scaling is None else scaling
    scores = scale * (query @ key.transpose(2, 3))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if mask is None and seen:
        left, _ = seen.get("window", (None, None))
        distance = torch.ones_like(scores[0, 0], dtype=torch.int32)
        distance = distance.cumsum(0) - distance.cumsum(1)
        mask = (distance >= 0) & (distance <= (scores.shape[2] if left is None else left))
    if mask is not None and mask.dtype is torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    if sinks is not None:  # one more key, which is left out of the result
        column = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, column), -1)
    return scores.softmax(-1, dtype=torch.float32).to(query.dtype)[..., : key.shape[2]]


def _packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    sliding_window: int | None,
    others: dict[str, Any],
    common: dict[str, Any],
) -> Tensor:
    """Sequences that follow each other in one row of the batch, with their starts beside them."""
    if q.shape[0] != 1:
        raise Invalid(
            f"cu_seq_lens_q is given with {q.shape[0]} rows; packed sequences are one row"
        )
    starts_q, starts_k = others["cu_seq_lens_q"], others.get("cu_seq_lens_k")
    if causal:
        common["causal"] = "bottom_right"
        if sliding_window is not None:
            common["window"] = (sliding_window - 1, None)
    o: Tensor = ft.varlen(
        q[0],
        k[0],
        v[0],
        starts_q.int(),
        starts_k.int() if starts_k is not None else None,
        max_q=others.get("max_length_q"),
        max_k=others.get("max_length_k"),
        **common,
    )
    return o[None]


def _refuse(module: torch.nn.Module, others: dict[str, Any]) -> None:
    for name, x in others.items():
        known = name in _PASSED_THROUGH or name in _OF_BATCHES or name.startswith(("cu_seq_lens", "max_length"))
        if isinstance(x, Tensor) and not known and _matters(type(module), name):
            raise Unsupported(
                f"{name}: falchion.hf does not know what this tensor of shape {tuple(x.shape)} "
                "does to attention, and does not ignore it; use attn_implementation='sdpa'"
            )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _matters(kind: type[torch.nn.Module], name: str) -> bool:
    """Whether a keyword means something to the attention of such modules. Each keyword of a model's call
    comes as far as here, those of its loss too; transformers' own attention functions ignore them. What
    is for the attention is named by the module's code or by its eager function. A module that is not
    known to ask for an attention function might mean anything."""
    names = _names_of(kind)  # type: ignore[arg-type]
    return "ALL_ATTENTION_FUNCTIONS" not in names or name in names


@functools.lru_cache(maxsize=None)
def _names_of(kind: type[torch.nn.Module]) -> frozenset[str]:
    """All names and words in the code of a kind of module and of the eager functions beside it."""
    found: set[str] = set()
    for base in kind.__mro__[: kind.__mro__.index(torch.nn.Module)]:
        for method in map(inspect.unwrap, filter(inspect.isfunction, vars(base).values())):
            found |= _names_in(method.__code__)
            for other, eager in method.__globals__.items():
                if "eager_attention" in other and inspect.isfunction(eager):
                    found |= _names_in(eager.__code__)
    return frozenset(found)


def _names_in(code: types.CodeType) -> set[str]:
    found = {*code.co_names, *code.co_varnames}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names_in(constant)
        else:  # the keywords of a call are a tuple
            words = constant if isinstance(constant, tuple) else (constant,)
            found |= {word for word in words if isinstance(word, str)}
    return found
