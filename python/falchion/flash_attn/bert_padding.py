"""unpad_input, pad_input and what they share, with the signatures of flash_attn.bert_padding."""

from __future__ import annotations

import torch
from torch import Tensor

from falchion import Invalid


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The rows of hidden_states (b, s, ...) that either mask (b, s) has, one after another; their
    places in (b * s); cu_seqlens (int32); the longest length; and the lengths by attention_mask."""
    every = attention_mask if unused_mask is None else attention_mask + unused_mask
    _check_mask(hidden_states, every)
    lengths = every.sum(-1, dtype=torch.int32)
    used = attention_mask.sum(-1, dtype=torch.int32)
    return *_rows(hidden_states, every, lengths), used


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """The same without the last, where each row of the mask (b, s) has the lengths of the short
    sequences that lie in it one after another, and then zeros."""
    mask = attention_mask_in_length
    _check_mask(hidden_states, mask)
    row = torch.arange(mask.shape[1], device=mask.device)
    lengths = mask.flatten()
    lengths = lengths[lengths.nonzero().flatten()]
    return _rows(hidden_states, row < mask.sum(-1, keepdim=True), lengths)


def _check_mask(hidden_states: Tensor, mask: Tensor) -> None:
    if mask.shape != hidden_states.shape[:2]:
        shapes = f"{tuple(mask.shape)}; hidden_states has {tuple(hidden_states.shape)}"
        raise Invalid(f"the mask has the shape {shapes}")


def _rows(
    hidden_states: Tensor, every: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    places = every.flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if lengths.numel() > 0 else 0
    return hidden_states.flatten(0, 1)[places], places, starts, longest


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The inverse: (b, s, ...) with zeros where there was no row."""
    padded = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return padded.view(batch, seqlen, *padded.shape[1:])


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    """The rows of x (rows, ...) at these places."""
    return x[indices]


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """(first_axis_dim, ...) with the rows of values at these places, and zeros elsewhere."""
    if indices.shape != values.shape[:1]:
        raise Invalid(
            f"indices has the shape {tuple(indices.shape)}, but there are {values.shape[0]} rows"
        )
    padded = values.new_zeros(first_axis_dim, *values.shape[1:])
    return padded.index_copy(0, indices.long(), values)
