"""flash_attn_with_kvcache. Appending to the cache, rotary embeddings, cache_batch_idx and pages are
done by torch before the engine runs, so they cost kernels of their own, and the last two a copy of
the keys and values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import falchion.torch as ft
from falchion import Invalid, Unsupported
from falchion._names import own_names
from falchion.torch._options import exact_scale, last_contiguous

from ._call import band, places
from ._pages import dense_from_pages, place_in_pages
from .rotary import rotate


@own_names
def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """q (b, s_q, h, d) against caches (b_cache, s_cache, h_k, d), of which cache_seqlens keys
    count. With block_table (b, most) the caches are (pages, size, h_k, d). k and v (b, s_new, h_k,
    d) are written into the caches first. num_splits is the engine's to choose. There are no
    gradients."""
    if block_table is not None and cache_batch_idx is not None:
        raise Unsupported("block_table is given with cache_batch_idx: a table says the sequences")
    q, softmax_scale = exact_scale(q, softmax_scale)
    return Cache(q, k_cache, cache_seqlens, cache_batch_idx, cache_leftpad, block_table).attend(
        q,
        (k_cache, v_cache),
        k,
        v,
        (rotary_cos, rotary_sin, rotary_interleaved),
        {
            **band(causal, window_size),
            "scale": softmax_scale,
            "softcap": softcap,
            "alibi": None if alibi_slopes is None else alibi_slopes.float(),
            "return_lse": return_softmax_lse,
        },
    )


class Cache:
    """How many keys of a cache count for each sequence, and where they are. q and new keys are (b,
    s, h, d), or packed where cu_seqlens_q and cu_seqlens_new say so."""

    def __init__(
        self,
        q: Tensor,
        k_cache: Tensor,
        lengths: int | Tensor | None,
        batch: Tensor | None,
        leftpad: Tensor | None,
        table: Tensor | None,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_new: Tensor | None = None,
        max_seqlen_q: int | None = None,
    ) -> None:
        self.device, self.size = q.device, k_cache.shape[1]
        self.starts_q, self.starts_new, self.max_q = cu_seqlens_q, cu_seqlens_new, max_seqlen_q
        self.b = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.numel() - 1
        self.sized = lengths is not None
        self.batch = None if batch is None else batch.long()
        self.leftpad = None if leftpad is None else leftpad.int()
        self.table = table if table is None or self.batch is None else table[self.batch]
        if lengths is None:
            lengths = self.size * (1 if table is None else table.shape[1])
        if not isinstance(lengths, Tensor):
            lengths = torch.full((self.b,), lengths, device=q.device)
        self.lengths = lengths.int()

    def attend(
        self,
        q: Tensor,
        caches: tuple[Tensor, Tensor],
        k: Tensor | None,
        v: Tensor | None,
        rotary: tuple[Tensor | None, Tensor | None, bool],
        options: dict[str, Any],
        rotary_seqlens: Tensor | None = None,
    ) -> Any:
        if (k is None) != (v is None):
            raise Invalid("k and v are given together or not at all")
        if k is not None and not self.sized:
            raise Invalid("k is given without cache_seqlens: nothing says where it belongs")
        cos, sin, interleaved = rotary
        if cos is not None and k is None:
            raise Unsupported("rotary_cos is given without k: falchion.flash_attn offers no such")
        with torch.no_grad():
            if cos is not None and sin is not None and k is not None:
                first = self.lengths if rotary_seqlens is None else rotary_seqlens
                whole = "window" not in options  # then all rows of q have the place of the first
                q = self._turn(q, cos, sin, interleaved, first, self.starts_q, whole)
                k = self._turn(k, cos, sin, interleaved, first, self.starts_new, False)
            if k is not None and v is not None:
                self._append(caches, k, v)
            keys, values = self._dense(caches[0]), self._dense(caches[1])
            return self._run(last_contiguous(q), keys, values, options)

    def _rows(self, x: Tensor, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        """The sequence of each row of q or of new keys, and its place among them."""
        if starts is not None:
            return places(starts, x.shape[0])
        own = torch.arange(x.shape[1], device=x.device)
        return torch.arange(self.b, device=x.device)[:, None], own[None]

    def _turn(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        interleaved: bool,
        first: Tensor,
        starts: Tensor | None,
        whole: bool,
    ) -> Tensor:
        sequence, own = self._rows(x, starts)
        place = first[sequence] + (0 * own if whole else own)
        if starts is None:
            return rotate(x, cos, sin, place, interleaved)
        return rotate(x[:, None], cos, sin, place[:, None], interleaved)[:, 0]

    def _append(self, caches: tuple[Tensor, Tensor], k: Tensor, v: Tensor) -> None:
        sequence, own = self._rows(k, self.starts_new)
        place = self.lengths[sequence].long() + own
        if self.table is not None:
            at = place_in_pages(self.table, sequence, place, self.size)
        else:
            at = sequence if self.batch is None else self.batch[sequence], place
        for cache, new in zip(caches, (k, v)):
            cache[at] = new.to(cache.dtype)
        count = k.shape[1] if self.starts_new is None else self.starts_new.diff()
        self.lengths = (self.lengths + count).int()

    def _dense(self, cache: Tensor) -> Tensor:
        if self.table is not None:
            return dense_from_pages(self.table, cache)
        return last_contiguous(cache if self.batch is None else cache[self.batch])

    def _run(self, q: Tensor, keys: Tensor, values: Tensor, options: dict[str, Any]) -> Any:
        used: dict[str, Any] = {"used_k": self.lengths, "first_k": self.leftpad}
        if self.starts_q is None:
            return ft.attention(q, keys, values, **used, **options)
        if self.max_q is None:
            raise Invalid("cu_seqlens_q is given without max_seqlen_q")
        starts = torch.arange(self.b + 1, dtype=torch.int32, device=self.device) * keys.shape[1]
        used.update(max_q=int(self.max_q), max_k=keys.shape[1])
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        return ft.varlen(q, keys, values, self.starts_q, starts, **used, **options)
