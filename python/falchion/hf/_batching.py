"""transformers' continuous batching, whose caches lie in pages.

It hands the attention either packed sequences, which it has gathered itself, or in a step of one token
each the pages and their table. It asks for an attention whose name has "flash" in it, looks the functions
of that one up in a place where nobody can register any, and takes pages where the name has a version."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import modeling_flash_attention_utils as flash_utils

import falchion.flash_attn as fa

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
    _names.add(name)


def paged(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float | None,
    sliding_window: int | None,
    softcap: float | None,
    *,
    block_table: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cu_seq_lens_k: Tensor,
    **others: Any,
) -> Tensor:
    """A step of one token a sequence: q, k and v are (1, sequences, h, d), and the new keys go into the
    pages (pages, size, h_k, d). cu_seq_lens_k counts them."""
    rows = [x.reshape(-1, 1, *x.shape[-2:]) for x in (q, k, v)]
    sequences = rows[0].shape[0]
    lengths = cu_seq_lens_k[1 : sequences + 1] - cu_seq_lens_k[:sequences] - 1
    window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0)
    o: Tensor = fa.flash_attn_with_kvcache(
        rows[0],
        k_cache,
        v_cache,
        rows[1],
        rows[2],
        cache_seqlens=lengths,
        block_table=block_table[:sequences],
        softmax_scale=scaling,
        causal=True,
        window_size=window,
        softcap=softcap or 0.0,
    )
    return o.view(1, sequences, *o.shape[2:])
