"""transformers' continuous batching, whose caches lie in pages.

It hands the attention either packed sequences, which it has gathered itself, or in a step of one token
each the pages and their table. It asks for an attention whose name has "flash" in it, looks the functions
of that one up in a place where nobody can register any, and takes pages where the name has a version.
Before 5.23 it has an attention of its own around these functions, by the name with "paged|" in front."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers import modeling_flash_attention_utils as flash_utils
from transformers.integrations.flash_paged import paged_attention_forward

import falchion.flash_attn as fa
import falchion.torch as ft

from ._mask import mask

_names: set[str] = set()


def serve_batches(name: str) -> None:
    """From now on transformers finds falchion.flash_attn's functions by this name."""
    if not _names and hasattr(flash_utils, "_lazy_imports"):
        looked_up = flash_utils._lazy_imports

        def functions(implementation: str | None, *args: Any, **options: Any) -> Any:
            if implementation not in _names:
                return looked_up(implementation, *args, **options)
            own = fa.flash_attn_func, fa.flash_attn_varlen_func, fa.flash_attn_with_kvcache
            return *own, flash_utils._pad_input, flash_utils._unpad_input

        flash_utils._lazy_imports = functions
    if not _names and hasattr(PreTrainedModel, "_check_and_adjust_attn_implementation"):
        _be_known_to_models_with_sinks()
    _names.update((name, f"paged|{name}"))
    AttentionInterface.register(f"paged|{name}", paged_attention_forward)
    AttentionMaskInterface.register(f"paged|{name}", mask)


# Of what a model with sinks lists, the attentions that have sinks and all else that a name with "flash" means.
_HAVE_SINKS = frozenset(["flash_attention_4", "kernels-community/vllm-flash-attn3"])


def _be_known_to_models_with_sinks() -> None:
    """gpt-oss and its like list the attentions with "flash" in their names that they run with, and take the first
    of the list for any other. This one has sinks too."""
    checked = PreTrainedModel._check_and_adjust_attn_implementation

    def check(self: Any, attn_implementation: str | None, *args: Any, **options: Any) -> Any:
        known = getattr(self, "_compatible_flash_implementations", None)
        if attn_implementation in _names and known is not None and _HAVE_SINKS.intersection(known):
            self._compatible_flash_implementations = [*known, *_names.difference(known)]
        return checked(self, attn_implementation, *args, **options)

    PreTrainedModel._check_and_adjust_attn_implementation = check  # type: ignore[method-assign]


def paged(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float | None,
    sliding_window: int | None,
    softcap: float | None,
    s_aux: Tensor | None,
    *,
    block_table: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cu_seq_lens_k: Tensor,
    **others: Any,
) -> Tensor:
    """A step of one token a sequence: q, k and v are (1, sequences, h, d), and the new keys go into the
    pages (pages, size, h_k, d). cu_seq_lens_k counts them."""
    sequences = q.shape[1]
    with torch.no_grad():
        o: Tensor = ft.decode(
            q.transpose(0, 1),
            k_cache,
            v_cache,
            used_k=cu_seq_lens_k[1 : sequences + 1] - cu_seq_lens_k[:sequences],
            page_table=block_table[:sequences],
            k_new=k.transpose(0, 1),
            v_new=v.transpose(0, 1),
            window=None if sliding_window is None else (sliding_window - 1, None),
            scale=scaling,
            softcap=softcap or 0.0,
            sinks=None if s_aux is None else s_aux.float(),
        )
    return o.transpose(0, 1)
