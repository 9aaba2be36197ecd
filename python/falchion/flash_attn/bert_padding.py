"""unpad_input, pad_input and index_first_axis, with the signatures of flash_attn.bert_padding."""

from __future__ import annotations

import torch
from torch import Tensor


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The rows of hidden_states (b, s, ...) that either mask (b, s) has, one after another; their
    places in (b * s); cu_seqlens (int32); the longest length; and the lengths by attention_mask."""
    every = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = every.sum(-1, dtype=torch.int32)
    used = attention_mask.sum(-1, dtype=torch.int32)
    places = every.flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = hidden_states.flatten(0, 1)[places]
    return rows, places, starts, int(lengths.max()), used


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The inverse: (b, s, ...) with zeros where there was no row."""
    padded = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    padded = padded.index_copy(0, indices, hidden_states)
    return padded.view(batch, seqlen, *padded.shape[1:])


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    """The rows of x (rows, ...) at these places."""
    return x[indices]
