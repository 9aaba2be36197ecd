"""S_dmask, which flash_attn returns for tests: exp(s - the row's largest s), negative where
dropped.

The engine never has these numbers in memory. Here they come out of attention itself, with rows of
the identity as values, 256 keys at a time; that is slow, and meant for tests."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

CHUNK = 256  # the largest head dim of v


def signed_probabilities(
    run: Callable[[Tensor, Tensor, float, bool], tuple[Tensor, Tensor]],
    q: Tensor,
    k: Tensor,
    place: Tensor,
    keys: int,
    dropout_p: float,
) -> Tensor:
    """(..., h, keys) for the rows of q. run(q, v, dropout, with_score) is attention on other
    values, (O, LSE), which drops what the forward pass dropped; place is each key's place in its
    sequence.

    What is dropped does not depend on the scores, so that it is read where all scores are 0 and no
    probability vanishes."""
    if keys == 0:
        return q.new_empty((*q.shape[:-1], 0))
    parts = []
    with torch.no_grad():
        for first in range(0, keys, CHUNK):
            width = min(CHUNK, keys - first)
            column = torch.arange(first, first + width, device=q.device)
            values = (place[..., None] == column).to(q.dtype)
            values = values[..., None, :].expand(*k.shape[:-1], width).contiguous()
            kept = run(torch.zeros_like(q), values, dropout_p, False)[0] > 0
            p = run(q, values, 0.0, True)[0]
            seen = run(torch.zeros_like(q), values, 0.0, False)[0] > 0
            parts.append(torch.where(seen & ~kept, -p, p))
    signed = torch.cat(parts, -1)
    largest = signed.abs().amax(-1, keepdim=True)
    return torch.where(largest > 0, signed / largest, 0.0).to(q.dtype)
