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
    size, h_k, d) in any order of strides. used_k (b) says how many keys each sequence has, those of this
    step included. With k_new and v_new, as many rows as q has, the last keys are written into the cache
    by the same run. falchion.attention says what the others are.

    Nothing is copied and nothing waited for: a captured CUDA graph reads lengths and pages anew at each
    replay. On a GPU what is out of range counts as docs/contract.md says (a length is clamped, a page
    that is not there is masked), on a CPU it is refused. The plan is kept from the first call on, for
    calls with the same shapes and options. There are no gradients: call it under torch.no_grad()."""
    if foreign:
        refuse(decode, foreign)
    given: dict[str, Any] = {"alibi": with_axes("alibi", alibi)}
    given.update(used_k=lengths("used_k", used_k, q), first_k=lengths("first_k", first_k, q))
    given.update(page_table=as_int32(page_table), page_starts=lengths("page_starts", page_starts, q))
    given.update(k_new=k_new, v_new=v_new, rotary=rotary)
    given["cu_seqlens_q"] = starts = lengths("cu_seqlens_q", cu_seqlens_q, q)
    rotary_pairs, return_lse = flag("rotary_pairs", rotary_pairs), flag("return_lse", return_lse)
    split_keys = whole("split_keys", split_keys)
    word("layout", layout, ("bshd", "bhsd"))
    if starts is None and not (max_q is max_k is None):
        raise Invalid("max_q or max_k is given without cu_seqlens_q: the shapes of q and k say the same")
    options: dict[str, Any] = {"causal": causal, "window": window, "align": align}
    options.update(softcap=number("softcap", softcap), backend=backend)
    if scale is not None:
        options["scale"] = number("scale", scale)
    tensors = [given.get(name) for name in _OPTIONAL]
    if not torch.compiler.is_compiling() and are_ordinary(q, k, v, *tensors):
        options.update(rotary_pairs=rotary_pairs, split_keys=split_keys, layout=layout)
        return _run(q, k, v, given, options, max_q, max_k, return_lse)
    band = band_of(causal, window, align, 0, 0, "used_k")
    chosen = Options(
        whole("max_q", max_q) or 0,
        whole("max_k", max_k) or 0,
        *band,
        *numbers_and_flags(options),
        layout,
        backend,
    )
    append = k_new is not None or v_new is not None
    run = torch.ops.falchion.append_and_decode if append else torch.ops.falchion.decode
    o, lse = run(q, k, v, *tensors, *chosen, rotary_pairs, split_keys)
    return (o, lse) if return_lse else o


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    given: dict[str, Any],
    options: dict[str, Any],
    max_q: int | None,
    max_k: int | None,
    return_lse: bool,
) -> Any:
    """Straight to C. Rows of no sequence are 0, which the engine does not promise."""
    given = {name: x for name, x in given.items() if x is not None}
    starts = given.pop("cu_seqlens_q", None)
    common = {**given, **options, "return_lse": return_lse, "cache": True}
    if starts is None:
        return engine.attention(q, k, v, **common)
    if not return_lse:
        common["out"] = empty_output(q, v).zero_()
    else:
        common["out"], common["lse"] = empty_outputs(q, v, None, starts, options["layout"])
    return engine.varlen(q, k, v, starts, max_q=max_q, max_k=max_k, **common)


def _forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    given = dict(zip(_OPTIONAL, rest))
    options = Options(*rest[_COUNT - 3 : -2])
    chosen = {**band_keywords(options), "softcap": options.softcap, "layout": options.layout}
    chosen.update(scale=options.scale, backend=options.backend)
    chosen.update(rotary_pairs=rest[-2], split_keys=rest[-1])
    found: tuple[Tensor, Tensor]
    found = _run(q, k, v, given, chosen, options.max_q or None, options.max_k or None, True)
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    options = Options(*rest[_COUNT - 3 : -2])
    if q.device.type == "meta":
        check_kinds(q, k, v)
    return empty_outputs(q, v, None, rest[_OPTIONAL.index("cu_seqlens_q")], options.layout)


for _name in "decode", "append_and_decode":
    for _device in "CPU", "CUDA":
        library.impl(_name, torch.no_grad()(_forward), _device)
    torch.library.register_fake(f"falchion::{_name}", _fake, lib=library)
