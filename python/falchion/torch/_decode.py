"""decode(): queries against a KV cache, whose lengths and pages lie on the device. It has no gradients.

One call of C where the tensors are ordinary. Under torch.compile and modes of torch it is one of two
operators with one schema: torch.ops.falchion.decode, and append_and_decode, which writes into k and
v."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Never

import torch
from torch import Tensor

from falchion import Invalid
from falchion._fields import CACHE_TENSORS, LENGTHS, TENSORS
from falchion._names import refuse
from falchion.types import Align, Backend, Causal, Layout, Window

from ._eager import are_ordinary
from ._ops import check_kinds, empty_output, empty_outputs, library
from ._options import SCHEMA, Options, as_int32, band_keywords, band_of, engine, flag, lengths
from ._options import number, numbers_and_flags, whole, with_axes, word

# What a cache may have besides q, k and v.
_OPTIONAL = (
    *(name for name in TENSORS if name not in ("bias", "mask")),
    *LENGTHS,
    *CACHE_TENSORS,
    "cu_seqlens_q",
)
_COUNT = 3 + len(_OPTIONAL)
_REST = ", ".join(f"Tensor? {name}" for name in _OPTIONAL)
_REST = f"{_REST}, {SCHEMA}, bool rotary_pairs, SymInt split_keys) -> (Tensor, Tensor)"
_is_compiling = torch.compiler.is_compiling
library.define(f"decode(Tensor q, Tensor k, Tensor v, {_REST}")
library.define(f"append_and_decode(Tensor q, Tensor(a!) k, Tensor(b!) v, {_REST}")


def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    used_k: Tensor,
    page_table: Tensor | None = None,
    page_starts: Tensor | None = None,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    rotary: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    rotary_pairs: bool = False,
    cu_seqlens_q: Tensor | None = None,
    max_q: int | None = None,
    max_k: int | None = None,
    causal: Causal = "bottom_right",
    window: Window | None = None,
    align: Align | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: Tensor | None = None,
    sinks: Tensor | None = None,
    first_k: Tensor | None = None,
    split_keys: int = 0,
    layout: Layout = "bshd",
    backend: Backend = "best",
    return_lse: bool = False,
    **foreign: Never,
) -> Any:
    """A step over a KV cache: O of the queries q, (b, s_q, h_q, d), or packed (total, h_q, d) with
    cu_seqlens_q. The last query of a sequence sees its last key.

    k and v are the cache: (b, capacity, h_k, d), or with page_table, (b, columns) int32, pages (pages,
    size, h_k, d) in any order of strides. Both may be of float8_e4m3fn, or of int8, with k_scale and
    v_scale: float32 (h_k), (capacity, h_k) or (b, capacity, h_k), with pages (pages, size, h_k), where an
    axis of 1 is shared; numbers of k stand for k * k_scale. used_k (b) says how many keys each sequence has, those of this
    step included. With k_new and v_new, as many rows as q has, the last keys are written into the cache
    by the same run. falchion.attention says what the others are.

    Nothing is copied and nothing waited for: a captured CUDA graph reads lengths and pages anew at each
    replay. On a GPU what is out of range counts as docs/contract.md says (a length is clamped, a page
    that is not there is masked), on a CPU it is refused. The plan is kept from the first call on, for
    calls with the same shapes and options. There are no gradients: call it under torch.no_grad()."""
    if foreign:
        refuse(decode, foreign)
    if cu_seqlens_q is None and not (max_q is max_k is None):
        raise Invalid("max_q or max_k is given without cu_seqlens_q: the shapes of q and k say the same")
    used_k, first_k = lengths("used_k", used_k, q), lengths("first_k", first_k, q)
    page_table, page_starts = as_int32(page_table), lengths("page_starts", page_starts, q)
    cu_seqlens_q = lengths("cu_seqlens_q", cu_seqlens_q, q)
    given: dict[str, Any] = {
        "alibi": alibi,
        "sinks": sinks,
        "used_k": used_k,
        "first_k": first_k,
        "page_table": page_table,
        "page_starts": page_starts,
        "k_new": k_new,
        "v_new": v_new,
        "rotary": rotary,
        "k_scale": k_scale,
        "v_scale": v_scale,
    }
    options: dict[str, Any] = {
        "causal": causal,
        "window": window,
        "align": align,
        "scale": scale,
        "softcap": softcap,
        "rotary_pairs": rotary_pairs,
        "split_keys": split_keys,
        "layout": layout,
        "backend": backend,
    }
    tensors = *given.values(), cu_seqlens_q
    if not _is_compiling() and are_ordinary(q, k, v, *tensors):
        return _run(q, k, v, cu_seqlens_q, given, options, max_q, max_k, return_lse)
    given.update(alibi=with_axes("alibi", alibi), sinks=with_axes("sinks", sinks))
    given["cu_seqlens_q"] = cu_seqlens_q
    options["softcap"] = number("softcap", softcap)
    if scale is not None:
        options["scale"] = number("scale", scale)
    word("layout", layout, ("bshd", "bhsd"))
    chosen = Options(
        whole("max_q", max_q) or 0,
        whole("max_k", max_k) or 0,
        *band_of(causal, window, align, 0, 0, "used_k"),
        *numbers_and_flags(options),
        layout,
        backend,
    )
    more = flag("rotary_pairs", rotary_pairs), whole("split_keys", split_keys)
    append = k_new is not None or v_new is not None
    run = torch.ops.falchion.append_and_decode if append else torch.ops.falchion.decode
    o, lse = run(q, k, v, *(given.get(name) for name in _OPTIONAL), *chosen, *more)
    return (o, lse) if flag("return_lse", return_lse) else o


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor | None,
    given: dict[str, Any],
    options: dict[str, Any],
    max_q: int | None,
    max_k: int | None,
    return_lse: bool,
) -> Any:
    """Straight to C. Rows of no sequence are 0, which the engine does not promise."""
    if starts is None:
        return engine.attention(q, k, v, cache=True, return_lse=return_lse, **given, **options)
    out: dict[str, Any] = {"out": empty_output(q, v).zero_()}
    if flag("return_lse", return_lse):
        out["out"], out["lse"] = empty_outputs(q, v, None, starts, options["layout"])
    out.update(max_q=max_q, max_k=max_k, cache=True, return_lse=return_lse)
    return engine.varlen(q, k, v, starts, **out, **given, **options)


def _forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    given = dict(zip(_OPTIONAL, rest))
    starts = given.pop("cu_seqlens_q")
    options = Options(*rest[_COUNT - 3 : -2])
    chosen = {**band_keywords(options), "softcap": options.softcap, "layout": options.layout}
    chosen.update(scale=options.scale, backend=options.backend)
    chosen.update(rotary_pairs=rest[-2], split_keys=rest[-1])
    longest = options.max_q or None, options.max_k or None
    found: tuple[Tensor, Tensor] = _run(q, k, v, starts, given, chosen, *longest, True)
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    options = Options(*rest[_COUNT - 3 : -2])
    if q.device.type == "meta":
        check_kinds(q, k, v, may_be_bytes=True)
    return empty_outputs(q, v, None, rest[_OPTIONAL.index("cu_seqlens_q")], options.layout)


for _name in "decode", "append_and_decode":
    for _device in "CPU", "CUDA":
        library.impl(_name, torch.no_grad()(_forward), _device)
    torch.library.register_fake(f"falchion::{_name}", _fake, lib=library)
