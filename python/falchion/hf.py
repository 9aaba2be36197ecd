"""Falchion as the attention of Hugging Face transformers (5.x).

    import falchion.hf
    falchion.hf.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="falchion")

register() adds two functions to transformers: the attention, and the function that makes masks for
it. Both are needed, because transformers gives an attention without a mask function no mask at all.

The mask function says in a small tensor what a band and lengths can say: a causal or full mask, a
sliding window, padding at the left or at the right. Everything else is the bool mask of
transformers' own sdpa. docs/python_huggingface.md says more."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
from transformers.utils.import_utils import is_tracing

import falchion.torch as ft
from falchion import Invalid, Unsupported

__all__ = ["attention", "mask", "register"]

# Tensors that transformers hands through to every attention, and that say nothing that the mask
# does not say already.
_PASSED_THROUGH = frozenset(
    ["position_ids", "cache_position", "position_embeddings", "num_items_in_batch", "seq_idx"]
)


def register(name: str = "falchion") -> None:
    """Makes attn_implementation=name known to transformers."""
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)


def _band_in_words(function: Callable[..., Any]) -> tuple[bool, int] | None:
    """(causal, window) of a mask function of transformers, with a window of 0 where there is none.
    None: it is another one, such as a chunked, packed or user's mask."""
    if function is masking_utils.causal_mask_function:
        return True, 0
    if function is masking_utils.bidirectional_mask_function:
        return False, 0
    parts = _captured(function, "and_masks.<locals>.and_mask").get("mask_functions", ())
    if len(parts) == 2 and parts[1] is masking_utils.causal_mask_function:
        window = _captured(parts[0], "sliding_window_overlay.<locals>.inner_mask")
        if isinstance(window.get("sliding_window"), int):
            return True, window["sliding_window"]
    return None


def _captured(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """What a nested function of this name has captured; nothing where it is another function."""
    if getattr(function, "__qualname__", "") != name or function.__closure__ is None:
        return {}
    return dict(zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__)))


def _lengths(padding: Tensor) -> Tensor | None:
    """Where the keys of each sequence begin and end, in int32: (b, 1) where all begin at 0, (b, 3)
    with the beginning alone where all end at the end, else (b, 2) with both. None: one has holes.
    Each column is contiguous."""
    s_k = padding.shape[1]
    marks = padding.int()
    count = marks.sum(1)
    first = torch.where(count > 0, marks.argmax(1), 0)
    end = torch.where(count > 0, s_k - marks.flip(1).argmax(1), 0)
    facts = torch.stack([(end - first == count).all(), (first > 0).any(), (end < s_k).any()])
    whole, begins, ends = facts.tolist()  # the one time that this waits for a GPU
    if not whole:
        return None
    columns = [first, end] if begins and ends else [first] * 3 if begins else [end]
    return torch.stack(columns).int().t()


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    device: Any = "cpu",
    **options: Any,
) -> Tensor | None:
    """The mask that attention() below gets: None (plain causal or full, as sdpa's mask function
    decides), or lengths, or a bool mask (b, 1, s_q, s_k).

    Lengths are int32 and have the shape (b, 2, 1 + causal + 2 * window, 1): each sequence's first
    key and the end of its keys. The third axis is expanded, so that it needs no memory; its extent
    says the band, so that nobody has to read the tensor. (The mask has four axes because
    transformers hands such a mask on as it is, which generate() relies on.)"""
    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    traced = is_tracing(attention_mask) or torch.compiler.is_compiling()
    band = None if traced else _band_in_words(function)
    offsets = isinstance(q_offset, int) and isinstance(kv_offset, int)
    # A band is that of the bottom right corner; full attention has no corner, so that queries and keys
    # of cross attention may end anywhere.
    ends = offsets and q_offset + q_length == kv_offset + kv_length
    # A model that goes on to work with the mask itself does not allow that there is none.
    allowed = {
        True: options.get("allow_is_causal_skip", True),
        False: options.get("allow_is_bidirectional_skip", False),
    }
    if band is not None and offsets and (ends or not band[0]) and allowed[band[0]]:
        causal, window = band
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is not None:
            padding = padding[:, kv_offset : kv_offset + kv_length]
        if padding is not None and bool(padding.all()):
            padding = None
        needs_window = 0 < window <= kv_length
        if padding is None and not needs_window and (not causal or q_length in (1, kv_length)):
            return None
        ends_at = torch.full((batch_size, 1), kv_length, dtype=torch.int32, device=device)
        lengths = ends_at if padding is None else _lengths(padding)
        if lengths is not None:
            extents = (batch_size, lengths.shape[1], 1 + causal + 2 * window, 1)
            return lengths[:, :, None, None].expand(extents)
    made: Tensor | None = masking_utils.sdpa_mask(
        batch_size,
        q_length,
        kv_length,
        q_offset,
        kv_offset,
        function,
        attention_mask,
        device=device,
        **options,
    )
    return made


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
) -> tuple[Tensor, None]:
    """transformers' attention function: query (b, h_q, s_q, d), key and value (b, h_k, s_k, d); the
    result is (b, s_q, h_q, d). Raises Unsupported for sinks, for attention weights and for tensors
    that it does not know."""
    _refuse(s_aux, others)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    common: dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "dropout": dropout}
    packed = others.get("cu_seq_lens_q")
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
    bias = position_bias
    s_q, s_k = q.shape[1], k.shape[1]
    if attention_mask is None:
        if causal and s_q > 1:
            common["causal"] = "top_left"
            if sliding_window is not None and sliding_window <= s_k:
                common["window"] = (sliding_window - 1, None)
    elif _are_lengths(attention_mask, s_k):
        common.update(_band_and_lengths(attention_mask, s_q, s_k))
    elif attention_mask.dtype is torch.bool and attention_mask.dim() == 4:
        common["mask"] = attention_mask
    elif attention_mask.is_floating_point() and attention_mask.dim() == 4:
        bias = attention_mask if bias is None else bias + attention_mask
    else:
        raise Invalid(
            f"attention_mask has the type {attention_mask.dtype} and the shape "
            f"{tuple(attention_mask.shape)}; it is a bool or float mask (b, h or 1, s_q, s_k), or "
            "what falchion.hf.mask makes"
        )
    if bias is not None and bias.dtype not in (torch.float32, q.dtype):
        bias = bias.float()
    return ft.attention(q, k, v, bias=bias, **common), None


def _are_lengths(x: Tensor, s_k: int) -> bool:
    """Whether it is what mask() made: int32, (b, 1 to 3, band, 1). A mask of the caller's ends in
    s_k; for a single key the third axis, which is expanded here, tells them apart."""
    if x.dtype != torch.int32 or x.dim() != 4 or x.shape[3] != 1 or not 1 <= x.shape[1] <= 3:
        return False
    return x.shape[2] == 1 or (x.shape[2] > 1 and (s_k > 1 or x.stride(2) == 0))


def _band_and_lengths(lengths: Tensor, s_q: int, s_k: int) -> dict[str, Any]:
    """What lengths (b, n, 1 + causal + 2 * window, 1) say, as options of attention(). Without a
    band padded queries see what the others see; with one they are not computed, and their rows are
    0."""
    columns = lengths.shape[1]
    window, causal = divmod(lengths.shape[2] - 1, 2)
    found: dict[str, Any] = {}
    if columns != 1:
        found["first_k"] = lengths[:, 0, 0, 0].contiguous()
    if columns != 3:
        found["used_k"] = lengths[:, columns - 1, 0, 0].contiguous()
    if not causal:
        return found
    if columns != 3:
        used_k = found["used_k"]
        found["used_q"] = used_k if s_q == s_k else (used_k - (s_k - s_q)).clamp(min=0)
    found["causal"] = "bottom_right"
    if window > 0:
        found["window"] = (window - 1, None)
    return found


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


def _refuse(s_aux: Tensor | None, others: dict[str, Any]) -> None:
    if s_aux is not None:
        raise Unsupported(
            "s_aux is given: falchion has no attention sinks yet; use attn_implementation='eager'"
        )
    if others.get("output_attentions"):
        raise Unsupported(
            "output_attentions = True: falchion does not keep the probabilities; "
            "use attn_implementation='eager'"
        )
    for name, x in others.items():
        known = name in _PASSED_THROUGH or name.startswith(("cu_seq_lens", "max_length"))
        if isinstance(x, Tensor) and not known:
            raise Unsupported(
                f"{name}: falchion.hf does not know what this tensor of shape {tuple(x.shape)} "
                "does to attention, and does not ignore it; use attn_implementation='sdpa'"
            )
