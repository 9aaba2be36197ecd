"""What flash_attn_with_kvcache does. The engine reads the cache where it lies, by its pages or, with
cache_batch_idx, as pages as long as the cache. It writes new keys into the cache, and turns them and the
queries, where each query has its key; where there are fewer keys than queries, or the places are others than
the engine's, that is torch's, with kernels of its own. What lies outside: _bounds.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import falchion.torch as ft
from falchion import Invalid, Unsupported
from falchion.torch._options import as_int32, known_whole, last_contiguous

from ._bounds import Bounds, same_device, table_of, whole_numbers
from ._call import band, places, sides_of, truth
from ._descale import BYTES, check_descale, key_scales
from ._pages import check_pages, place_in_pages
from ._tables import rotary_table
from .rotary import check_tables, rotate

# Of how many numbers the rotary tables are put into the engine's form: 4 MB. Of larger ones torch reads the rows
# that are needed.
_LARGEST_TABLE = 1 << 20


class Cache:
    """How many keys of a cache count for each sequence, and where they are. q and new keys are (b,
    s, h, d), or packed where cu_seqlens_q and cu_seqlens_new say so. A call makes one, and runs it."""

    def __init__(
        self,
        q: Tensor,
        caches: tuple[Tensor, Tensor],
        table: tuple[str, Tensor | None],
        batch: Tensor | None,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_new: Tensor | None = None,
        max_seqlen_q: int | None = None,
        descales: dict[str, Tensor | None] | None = None,
    ) -> None:
        """descales: k_descale and v_descale, where caches may have 8 bits."""
        self.caches, self.device, self.bounds = caches, q.device, Bounds(q.device)
        self.starts_q, self.starts_new, self.max_q = cu_seqlens_q, cu_seqlens_new, max_seqlen_q
        self.b = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.numel() - 1
        if cu_seqlens_q is not None and max_seqlen_q is None:
            raise Invalid("cu_seqlens_q is given without max_seqlen_q")
        same_device(q.device, k_cache=caches[0], v_cache=caches[1])
        for name, starts in ("q", cu_seqlens_q), ("k_new", cu_seqlens_new):
            if starts is not None:
                whole_numbers(f"cu_seqlens_{name}", starts, (starts.numel(),), q.device)
        _check_caches(q, *caches, 4 if cu_seqlens_q is None else 3, descales is not None)
        self.descales = descales or {}
        for name, descale in self.descales.items():
            check_descale(name, descale, caches[0], self.b)
        self.size = caches[0].shape[1]
        self.table_name, pages = table
        rows = caches[0].shape[0] if pages is None else len(pages) if pages.dim() > 0 else 0
        self.batch = None if batch is None else self._batch(batch, rows)
        if self.batch is None and rows != self.b:
            name = "the caches have" if pages is None else f"{self.table_name} has"
            raise Invalid(f"{name} {rows} sequences, and q has {self.b}")
        self.table = None
        self.capacity = self.size
        if pages is not None:
            pages = table_of(self.table_name, pages, rows, q.device)
            self.capacity = self.size * pages.shape[1]
            if self.batch is not None:
                inside = ((self.batch >= 0) & (self.batch < rows))[:, None]
                pages = torch.where(inside, pages[self.batch.clamp(0, rows - 1)], -1)
            self.table = pages

    def _batch(self, batch: Tensor, rows: int) -> Tensor:
        """cache_batch_idx. One that is out of range is a page that is not there."""
        batch = whole_numbers("cache_batch_idx", batch, (self.b,), self.device)
        if rows < 1:
            raise Invalid("cache_batch_idx is given, and the caches have no sequence")
        self.bounds.within(
            batch,
            0,
            rows - 1,
            lambda at, x: f"cache_batch_idx[{at[0]}] = {x}: there are {rows}, 0 to {rows - 1}",
        )
        return batch

    def measure(
        self,
        lengths: int | Tensor | None,
        leftpad: Tensor | None,
        k: Tensor | None,
        v: Tensor | None,
    ) -> None:
        """Checks lengths and pages. From then on self.old keys of each sequence are in the cache,
        and self.lengths when the new ones are."""
        same_device(self.device, k=k, v=v)
        _check_new(k, v, self.caches, self.b, self.starts_new)
        if k is not None and lengths is None:
            raise Invalid("k is given without cache_seqlens: nothing says where it belongs")
        self.new: int | Tensor = 0
        if k is not None:
            self.new = k.shape[1] if self.starts_new is None else self._new_of_each(k.shape[0])
        most = self.capacity
        if isinstance(lengths, Tensor):
            lengths = lengths if lengths.dim() > 0 else lengths.expand(self.b)
            self.old = whole_numbers("cache_seqlens", lengths, (self.b,), self.device)
            self.bounds.within(self.old, 0, most - self.new, self._too_long)
        else:
            number = most if lengths is None else known_whole("cache_seqlens", lengths)
            new = self.new if isinstance(self.new, int) else 0
            if not 0 <= number <= most - new:
                raise Invalid(self._too_long((), number))
            self.old = torch.full((self.b,), number, device=self.device)
            if isinstance(self.new, Tensor):
                self.bounds.within(self.old, 0, most - self.new, self._too_long)
        self.lengths = self.old if k is None else self.old + self.new
        self.leftpad = None
        if leftpad is not None:
            self.leftpad = whole_numbers("cache_leftpad", leftpad, (self.b,), self.device)
            self.bounds.within(
                self.leftpad,
                0,
                most,
                lambda at, x: f"cache_leftpad[{at[0]}] = {x}: it must be from 0 to {most}",
            )
        if self.table is not None:
            first = 0 if self.leftpad is None else self.leftpad
            pages = self.caches[0].shape[0]
            check_pages(
                self.table_name, self.table, pages, self.size, first, self.lengths, self.bounds
            )

    def _new_of_each(self, total: int) -> Tensor:
        """How many new keys each sequence has, of `total` rows."""
        starts = self.starts_new
        assert starts is not None
        count = starts.diff().long()
        words = "cu_seqlens_k_new[{}] = {}: it must be from 0 to {}, and not below the one before"
        self.bounds.within(starts, 0, total, lambda at, x: words.format(at[0], x, total))
        self.bounds.within(
            count, 0, total, lambda at, _: words.format(at[0] + 1, int(starts[at[0] + 1]), total)
        )
        return count

    def _too_long(self, at: tuple[int, ...], x: int) -> str:
        new = self.new if isinstance(self.new, int) else int(self.new[at]) if at else 0
        name = f"cache_seqlens[{at[0]}]" if at else "cache_seqlens"
        more = f", and {new} keys are new" if new else ""
        holds = "the cache holds" if self.table is None else f"{self.table_name} has pages for"
        return f"{name} = {x}{more}: {holds} 0 to {self.capacity} keys of a sequence"

    def turn(
        self,
        q: Tensor,
        k: Tensor | None,
        tables: tuple[Tensor | None, Tensor | None],
        interleaved: bool,
        first: Tensor | None,
        whole: bool,
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """q and k with rotary embeddings, or as they are with options for the engine, which turns them. Keys
        are turned from place `first` on (None: that of the first new key), and so are queries, unless
        all have the place of the first (whole)."""
        if k is None:
            raise Unsupported("rotary_cos is given without k: falchion.flash_attn offers no such")
        cos, sin = check_tables(q, *tables, "rotary_")
        interleaved = truth("rotary_interleaved", interleaved)
        usual = first is None and self.leftpad is None and not (whole and q.shape[-3] > 1)
        name = "cache_seqlens" if first is None else "rotary_seqlens"
        first = self.old if first is None else whole_numbers(name, first, (self.b,), self.device)
        queries = q.shape[1] if self.starts_q is None else self.starts_q.diff().long()
        rows = cos.shape[0]
        for count in (self.new,) if whole else (self.new, queries):
            self.bounds.within(
                first,
                0,
                rows - count,
                lambda at, x: f"{name}[{at[0]}] = {x}: rotary_cos has only {rows} rows",
            )
        with torch.no_grad():
            if usual and self._has_key_of_each(q, k) and cos.numel() <= _LARGEST_TABLE:
                return q, k, {"rotary": rotary_table(cos, sin), "rotary_pairs": interleaved}
            q = self._turned(q, cos, sin, interleaved, first, self.starts_q, whole)
            return q, self._turned(k, cos, sin, interleaved, first, self.starts_new, False), {}

    def _has_key_of_each(self, q: Tensor, k: Tensor) -> bool:
        """Whether each query has its new key, as in the engine's append, which writes into the caches as
        they are."""
        same = k.shape[-3] == q.shape[-3] and self.starts_new is self.starts_q
        return same and all(last_contiguous(x) is x for x in self.caches)

    def _turned(
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

    def run(
        self,
        q: Tensor,
        new: tuple[Tensor | None, Tensor | None],
        lengths: int | Tensor | None,
        leftpad: Tensor | None,
        rotary: tuple[Tensor | None, Tensor | None, bool, Tensor | None],
        causal: bool,
        window_size: tuple[int, int],
        options: dict[str, Any],
        as_v3: bool = False,
    ) -> Any:
        """The whole call. rotary is (cos, sin, interleaved, seqlens). A side of the window that reaches over
        all keys is none, and FlashAttention-3 has another idea of when it does."""
        self.measure(lengths, leftpad, *new)
        causal = truth("causal", causal)
        reach = self.capacity, self.capacity
        if as_v3:
            reach = self.capacity - 1, (q.shape[1] if self.max_q is None else self.max_q) - 1
        near = [0 <= side < most for side, most in zip(sides_of(window_size), reach)]
        k, v = new
        cos, sin, interleaved, first = rotary
        options = {**band(causal, window_size), **options}
        if cos is not None or sin is not None:
            whole = not (causal or any(near))
            q, k, more = self.turn(q, k, (cos, sin), interleaved, first, whole)
            options.update(more)
        return self.attend(q, k, v, options)

    def attend(self, q: Tensor, k: Tensor | None, v: Tensor | None, options: dict[str, Any]) -> Any:
        self.bounds.check()
        with torch.no_grad():
            if k is not None and v is not None:
                if self._has_key_of_each(q, k):
                    options = {**options, "k_new": last_contiguous(k), "v_new": last_contiguous(v)}
                else:
                    if self.caches[0].dtype == BYTES:
                        found = f"k has {k.shape[-3]} keys for {q.shape[-3]} queries"
                        raise Unsupported(f"{found}; caches of {BYTES} take one key for each query, in place")
                    self._append(k, v)
            return self._run(last_contiguous(q), options)

    def _rows(self, x: Tensor, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        """The sequence of each row of q or of new keys, and its place among them."""
        if starts is not None:
            return places(starts, x.shape[0])
        own = torch.arange(x.shape[1], device=x.device)
        return torch.arange(self.b, device=x.device)[:, None].expand(self.b, x.shape[1]), own[None]

    def _append(self, k: Tensor, v: Tensor) -> None:
        sequence, own = self._rows(k, self.starts_new)
        place = self.old[sequence] + own
        if self.table is not None:
            where, row = place_in_pages(self.table, sequence, place, self.size)
        else:
            where, row = sequence if self.batch is None else self.batch[sequence], place
        rows = self.caches[0].shape[0]
        inside = (where >= 0) & (where < rows) & (row >= 0) & (row < self.size) & (own >= 0)
        if self.starts_new is not None:
            inside &= place < self.lengths[sequence]
        for cache, new in zip(self.caches, (k, v)):
            _write(cache, new, where, row, inside)

    def _run(self, q: Tensor, options: dict[str, Any]) -> Any:
        """The engine's used_k counts the new keys, as self.lengths does."""
        table = self.table
        if table is None and self.batch is not None:
            table = self.batch[:, None]
        keys, values = (last_contiguous(x) for x in self.caches)
        if self.starts_q is not None:
            options = {**options, "cu_seqlens_q": self.starts_q, "max_q": self.max_q}
        if self.table is not None and self.device.type == "cpu":
            # The engine refuses such a number on the host, in a page of no key too.
            table = self.table.masked_fill(self.table >= self.caches[0].shape[0], -1)
        for name, descale in self.descales.items():
            if descale is not None:
                scale = key_scales(descale, table, self.lengths, self.caches[0])
                options = {**options, name.replace("descale", "scale"): scale}
        lengths, leftpad = as_int32(self.lengths), as_int32(self.leftpad)
        where = {"used_k": lengths, "first_k": leftpad, "page_table": as_int32(table)}
        return ft.decode(q, keys, values, **{"causal": False, **where, **options})


def _write(cache: Tensor, new: Tensor, where: Tensor, row: Tensor, inside: Tensor) -> None:
    """cache[where, row] = new in the rows that are inside. How many that are stays on the device:
    every other row writes what the first row inside does, at the same place; or, where there is no
    such row, what is there already."""
    if inside.numel() == 0 or cache.numel() == 0:
        return
    inside, where, row = inside.flatten(), where.flatten(), row.expand(where.shape).flatten()
    new = new.flatten(0, -3) if new.dim() > 3 else new
    any_row = torch.arange(inside.numel(), device=cache.device)
    source = torch.where(inside, any_row, inside.int().argmax())
    at = where[source].clamp(0, cache.shape[0] - 1), row[source].clamp(0, cache.shape[1] - 1)
    cache[at] = torch.where(inside.any(), new[source], cache[at])


def _check_caches(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, axes: int, may_be_bytes: bool
) -> None:
    if q.dim() != axes:
        raise Invalid(f"q has {q.dim()} axes; here it has {axes}")
    if k_cache.dim() != 4 or v_cache.dim() != 4 or k_cache.shape[:3] != v_cache.shape[:3]:
        shapes = f"{tuple(k_cache.shape)} and {tuple(v_cache.shape)}"
        raise Invalid(
            f"k_cache and v_cache have the shapes {shapes}; the first three of four axes are equal"
        )
    allowed = {q.dtype, BYTES} if may_be_bytes else {q.dtype}
    if k_cache.dtype not in allowed or k_cache.dtype != v_cache.dtype:
        types = f"{q.dtype}, {k_cache.dtype} and {v_cache.dtype}"
        other = f", or both caches of {BYTES}" if may_be_bytes else ""
        raise Invalid(f"q, k_cache and v_cache are of {types}; they must be of one type{other}")


def _check_new(
    k: Tensor | None,
    v: Tensor | None,
    caches: tuple[Tensor, Tensor],
    b: int,
    starts: Tensor | None,
) -> None:
    """New keys and values have the shapes that the caches say, so that none is repeated."""
    if k is None and v is None:
        return
    if k is None or v is None:
        raise Invalid("k and v are given together or not at all")
    if starts is not None and starts.numel() != b + 1:
        raise Invalid(f"cu_seqlens_k_new has {starts.numel()} numbers; it must have {b + 1}")
    for name, new, cache in ("k", k, caches[0]), ("v", v, caches[1]):
        rows = k.shape[-3] if k.dim() > 2 else 0
        shape = (*((b,) if starts is None else ()), rows, *cache.shape[2:])
        if tuple(new.shape) != shape:
            raise Invalid(f"{name} has the shape {tuple(new.shape)}; it must be {shape}")
        if new.dtype != cache.dtype and cache.dtype != BYTES:  # there the engine says what it must be
            raise Invalid(f"{name} is of {new.dtype}, and the caches are of {cache.dtype}")
