"""flash_attn_with_kvcache of both versions, pages and rotary embeddings, against the definition."""

from __future__ import annotations

import pytest
from torch_support import DEVICES, assert_near, definition, problem, torch

import falchion
import falchion.flash_attn as fa
import falchion.torch as ft
from falchion.flash_attn import _kvcache, _tables, v3
from falchion.flash_attn.rotary import apply_rotary_emb

on_devices = pytest.mark.parametrize("device", DEVICES)


def rotated(x, cos, sin, first, interleaved):
    """The definition in float64, by complex numbers."""
    half = cos.shape[1]
    turned = x.double()[..., : 2 * half]
    pairs = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.split(half, -1)
    angles = torch.complex(cos.double(), sin.double())
    rows = torch.stack([angles[f : f + x.shape[1]] for f in first])[:, :, None]
    z = torch.complex(*pairs) * rows
    parts = [z.real, z.imag]
    turned = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat([turned, x.double()[..., 2 * half :]], -1)


@on_devices
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(interleaved, device):
    x = torch.randn(2, 5, 3, 24, device=device)
    angle = torch.rand(40, 8, device=device)
    offsets = torch.tensor([0, 7], device=device)
    found = apply_rotary_emb(x, angle.cos(), angle.sin(), interleaved, seqlen_offsets=offsets)
    assert_near(found, rotated(x, angle.cos(), angle.sin(), [0, 7], interleaved))
    assert apply_rotary_emb(x, angle.cos(), angle.sin(), interleaved, inplace=True) is x


@on_devices
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("new", [0, 3])
@pytest.mark.parametrize("with_rotary", [False, True])
@pytest.mark.parametrize("by_index", [False, True])
def test_kvcache(causal, new, with_rotary, by_index, device):
    if with_rotary and not new:
        pytest.skip("rotary embeddings come with new keys")
    q, k_cache, v_cache = problem(b=2, s_q=3, s_k=20, device=device)
    _, k, v = problem(b=2, s_q=3, s_k=3, device=device, seed=1)
    lengths = torch.tensor([5, 14], dtype=torch.int32, device=device)
    index = torch.tensor([1, 0], dtype=torch.int32, device=device) if by_index else None
    angle = torch.rand(64, 8, device=device)
    cos, sin = (angle.cos(), angle.sin()) if with_rotary else (None, None)
    caches = k_cache.clone(), v_cache.clone()
    o, lse = fa.flash_attn_with_kvcache(
        q, *caches, k if new else None, v if new else None, cos, sin, lengths, index,
        causal=causal, return_softmax_lse=True,
    )  # fmt: skip
    for i, n in enumerate(lengths.tolist()):
        row = 1 - i if by_index else i
        one_q, one_k = q[i : i + 1], k[i : i + 1]
        if with_rotary:
            one_k = rotated(one_k, cos, sin, [n], True).float()
            starts = [n] if causal else None
            if starts:
                one_q = rotated(one_q, cos, sin, starts, True).float()
            else:
                rows = [rotated(one_q[:, t : t + 1], cos, sin, [n], True) for t in range(3)]
                one_q = torch.cat(rows, 1).float()
        keys, values = k_cache[row : row + 1].clone(), v_cache[row : row + 1].clone()
        if new:
            keys[:, n : n + 3], values[:, n : n + 3] = one_k, v[i : i + 1]
        assert_near(caches[0][row], keys[0], what="k_cache")
        assert torch.equal(caches[1][row], values[0])
        total = n + (3 if new else 0)
        band = {"causal": "bottom_right"} if causal else {}
        expected, expected_lse = definition(one_q, keys[:, :total], values[:, :total], **band)
        assert_near(o[i : i + 1], expected, what="o")
        assert_near(lse[i : i + 1], expected_lse, what="lse")


@on_devices
def test_torch_writes_what_the_engine_does_not(device, monkeypatch):
    """The engine takes a new key for each query, and turns both by their places; torch does the rest."""
    by_torch = []
    for name in ("_append", "_turned"):
        ours = getattr(_kvcache.Cache, name)

        def spy(*args, ours=ours, name=name, **options):
            by_torch.append(name)
            return ours(*args, **options)

        monkeypatch.setattr(_kvcache.Cache, name, spy)
    q, k_cache, v_cache = problem(b=2, s_q=3, s_k=20, device=device)
    _, k, v = problem(b=2, s_q=3, s_k=3, device=device, seed=1)
    angle = torch.rand(64, 8, device=device)
    turns = {"rotary_cos": angle.cos(), "rotary_sin": angle.sin()}
    left = torch.tensor([1, 0], dtype=torch.int32, device=device)
    for new, more, expected in (
        (3, {"causal": True, **turns}, []),
        (3, {}, []),
        (2, {}, ["_append"]),
        (3, turns, ["_turned"] * 2),
        (3, {"causal": True, "cache_leftpad": left, **turns}, ["_turned"] * 2),
    ):
        by_torch.clear()
        fa.flash_attn_with_kvcache(q, k_cache, v_cache, k[:, :new], v[:, :new], cache_seqlens=7, **more)
        assert by_torch == expected, more


@on_devices
def test_kvcache_with_left_padding(device):
    q, k, v = problem(b=2, s_q=1, s_k=20, device=device)
    first = torch.tensor([2, 0], dtype=torch.int32, device=device)
    o = fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=11, cache_leftpad=first, causal=True)
    assert_near(o[:1], definition(q[:1], k[:1, 2:11], v[:1, 2:11])[0])
    assert torch.equal(
        v3.flash_attn_with_kvcache(q, k, v, cache_seqlens=11, cache_leftpad=first), o
    )


def in_pages(x, size, table):
    """The sequences (b, s, h, d) as pages of this size, each where the table says; the rest is
    NaN."""
    pages = x.new_full((int(table.max()) + 3, size, *x.shape[2:]), float("nan"))
    pages[table[table >= 0].long()] = x.unflatten(1, (-1, size)).flatten(0, 1)
    return pages


@on_devices
@pytest.mark.parametrize("new", [0, 3])
def test_kvcache_in_pages(new, device):
    q, k_cache, v_cache = problem(b=2, s_q=3, s_k=20, device=device)
    _, k, v = problem(b=2, s_q=3, s_k=3, device=device, seed=1)
    table = torch.tensor([[7, 0, 3, 5, 1], [2, 9, 4, 8, 6]], dtype=torch.int32, device=device)
    pages = [in_pages(x, 4, table) for x in (k_cache, v_cache)]
    given = {"cache_seqlens": torch.tensor([5, 13], device=device), "causal": True}
    more = {"k": k, "v": v} if new else {}
    expected = fa.flash_attn_with_kvcache(q, k_cache, v_cache, **more, **given)
    wild = torch.cat([table, table.new_full((2, 1), -1)], 1)  # behind the end of both sequences
    o = fa.flash_attn_with_kvcache(q, *pages, block_table=wild, **more, **given)
    assert torch.equal(o, expected)
    assert torch.equal(pages[1][table.long()].flatten(1, 2), v_cache)
    if not new:
        assert torch.equal(v3.flash_attn_with_kvcache(q, *pages, page_table=wild, **given), o)
        whole = fa.flash_attn_with_kvcache(q, *pages, block_table=table)
        assert torch.equal(whole, fa.flash_attn_with_kvcache(q, k_cache, v_cache))


@on_devices
def test_varlen_in_pages(device):
    q, k, v = problem(b=2, s_q=6, s_k=20, device=device)
    table = torch.tensor([[3, 0, 6, 4, 1], [2, 5, 7, 9, 8]], dtype=torch.int32, device=device)
    used = [17, 2]
    starts_q = torch.tensor([0, 6, 12], dtype=torch.int32, device=device)
    starts_k = torch.tensor([0, 17, 19], dtype=torch.int32, device=device)
    rows = [torch.cat([x[i, :n] for i, n in enumerate(used)]) for x in (k, v)]
    lengths = starts_q, starts_k, 6, 17
    expected = fa.flash_attn_varlen_func(q.flatten(0, 1), *rows, *lengths, causal=True)
    wild = table.clone()
    wild[1, 1:] = 1 << 20
    pages = [in_pages(x, 4, table) for x in (k, v)]
    o = fa.flash_attn_varlen_func(q.flatten(0, 1), *pages, *lengths, causal=True, block_table=wild)
    assert torch.equal(o, expected)


@on_devices
@pytest.mark.parametrize("new", [0, 2])
def test_an_index_out_of_bounds_is_nobodys_pages(new, device, monkeypatch):
    """Where bounds are not asked, as on a GPU, no other sequence's pages are read or written."""
    monkeypatch.setattr(_kvcache.Bounds, "check", lambda self: None)
    q, k_cache, v_cache = problem(b=2, s_q=2, s_k=8, device=device)
    _, k, v = problem(b=2, s_q=2, s_k=2, device=device, seed=1)
    pages = [x.reshape(4, 4, *x.shape[2:]).clone() for x in (k_cache, v_cache)]
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32, device=device)
    lengths = torch.tensor([6, 6], dtype=torch.int32, device=device)
    index = torch.tensor([2, -1], dtype=torch.int32, device=device)
    seen = _kvcache.Cache(q, tuple(pages), ("page_table", table), index)
    assert seen.table.tolist() == [[-1, -1], [-1, -1]]
    if device == "cpu":
        return  # there the engine itself refuses such a table
    o = v3.flash_attn_with_kvcache(
        q, *pages, k if new else None, v if new else None, cache_seqlens=lengths,
        cache_batch_idx=index, page_table=table,
    )  # fmt: skip
    assert (o == 0).all()
    for found, old in zip(pages, (k_cache, v_cache)):
        assert torch.equal(found.reshape(old.shape), old)


@pytest.mark.parametrize("name", ["fwd", "varlen_fwd", "bwd", "varlen_bwd"])
def test_the_compiled_module_takes_no_generator(name):
    place = {"fwd": 12, "varlen_fwd": 20, "bwd": 17, "varlen_bwd": 22}[name]
    q = torch.randn(1, 1, 1, 8)
    arguments = [q, q, q] + [None] * (place - 3) + [torch.empty(1)]
    with pytest.raises(RuntimeError, match="`generator` argument is no longer supported"):
        getattr(fa.flash_attn_interface.flash_attn_gpu, name)(*arguments)


@on_devices
def test_the_compiled_module_of_flash_attn(device):
    """The functions below FlashAttention's own, which its tests call, are those above."""
    gpu = fa.flash_attn_interface.flash_attn_gpu
    q, k, v = problem(b=2, s_q=6, s_k=20, device=device)
    out = torch.empty_like(q)
    o, lse, dropped, state = gpu.fwd(q, k, v, out, None, 0.0, 0.25, True, -1, -1, 0.0, False, None)
    expected = fa.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert o is out and torch.equal(o, expected[0]) and torch.equal(lse, expected[1])
    assert dropped is None and state.dtype == torch.int64
    table = torch.tensor([[3, 0, 6, 4, 1], [2, 5, 7, 9, 8]], dtype=torch.int32, device=device)
    starts = torch.tensor([0, 6, 12], dtype=torch.int32, device=device)
    used, left = (torch.tensor(x, dtype=torch.int32, device=device) for x in ([17, 9], [5, 0]))
    pages = [in_pages(x, 4, table) for x in (k, v)]
    varlen = fa.flash_attn_interface._flash_attn_varlen_forward
    o, lse, _, _ = varlen(
        q.flatten(0, 1), *pages, starts, 2 * starts, 6, 20, 0.0, 0.25, True,
        block_table=table, leftpad_k=left, seqused_k=used,
    )  # fmt: skip
    for i in range(2):
        rows = slice(int(left[i]), int(used[i]))
        expected, expected_lse = definition(q[i, None], k[i, None, rows], v[i, None, rows], causal="bottom_right")
        assert_near(o[6 * i : 6 * i + 6], expected[0])
        assert_near(lse[:, 6 * i : 6 * i + 6], expected_lse[0])
    flat = [x.flatten(0, 1) for x in (k, v)]
    packed = varlen(q.flatten(0, 1), *flat, starts, starts // 6 * 20, 6, 20, 0.0, 0.25, False, leftpad_k=left)
    assert_near(packed[0][:6], definition(q[:1], k[:1, 5:], v[:1, 5:])[0][0])
    cached = q, k, v, None, None, used, None, None, None, None, None, None, out, 0.25, True, -1, -1, 0.0, True, 0
    o, lse = gpu.fwd_kvcache(*cached)
    assert o is out and torch.equal(o, fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=used, causal=True))
    with pytest.raises(falchion.Unsupported, match="no longer supported"):
        gpu.fwd(q, k, v, None, None, 0.0, 0.25, True, -1, -1, 0.0, False, torch.Generator())
    with pytest.raises(falchion.Unsupported, match="dropout_p = 0.5 is given with block_table"):
        varlen(q.flatten(0, 1), *pages, starts, starts, 6, 20, 0.5, 0.25, True, block_table=table)


@on_devices
def test_rotary_with_left_padding(device):
    """Places count from the start of the cache, as in FlashAttention."""
    q, k_cache, v_cache = problem(b=2, s_q=3, s_k=20, device=device)
    _, k, v = problem(b=2, s_q=3, s_k=3, device=device, seed=1)
    angle = torch.rand(64, 8, device=device)
    rotary = {"rotary_cos": angle.cos(), "rotary_sin": angle.sin()}
    n, first = torch.tensor([5, 14], device=device), torch.tensor([2, 0], device=device)
    caches = k_cache.clone(), v_cache.clone()
    o = fa.flash_attn_with_kvcache(
        q, *caches, k, v, cache_seqlens=n, cache_leftpad=first, causal=True, **rotary
    )
    turned = [rotated(x, angle.cos(), angle.sin(), [5, 14], True).float() for x in (q, k)]
    assert_near(caches[0][0, 5:8], turned[1][0])
    expected = definition(
        turned[0][:1], caches[0][:1, 2:8], caches[1][:1, 2:8], causal="bottom_right"
    )
    assert_near(o[:1], expected[0])


@on_devices
@pytest.mark.parametrize("in_table", [False, True])
def test_v3_takes_packed_queries_and_new_keys(in_table, device):
    """Each sequence as if it were alone, with its own rotary place."""
    _, k_cache, v_cache = problem(b=2, s_q=1, s_k=20, device=device)
    q, k, v = problem(b=1, s_q=5, s_k=4, device=device, seed=1)
    starts_q = torch.tensor([0, 2, 5], dtype=torch.int32, device=device)
    starts_k = torch.tensor([0, 3, 4], dtype=torch.int32, device=device)
    angle = torch.rand(64, 8, device=device)
    lengths = torch.tensor([5, 14], dtype=torch.int32, device=device)
    more = {"causal": True, "rotary_cos": angle.cos(), "rotary_sin": angle.sin()}
    table = torch.tensor([[7, 0, 3, 5, 1], [2, 9, 4, 8, 6]], dtype=torch.int32, device=device)
    caches = [in_pages(x, 4, table) if in_table else x.clone() for x in (k_cache, v_cache)]
    o, lse = v3.flash_attn_with_kvcache(
        q[0], *caches, k[0], v[0], cache_seqlens=lengths, rotary_seqlens=lengths // 2,
        page_table=table if in_table else None, cu_seqlens_q=starts_q, cu_seqlens_k_new=starts_k,
        max_seqlen_q=3, return_softmax_lse=True, **more,
    )  # fmt: skip
    for i in range(2):
        rows, new = slice(*starts_q[i : i + 2].tolist()), slice(*starts_k[i : i + 2].tolist())
        alone = [x[i : i + 1].clone() for x in (k_cache, v_cache)]
        expected, expected_lse = v3.flash_attn_with_kvcache(
            q[:, rows], *alone, k[:, new], v[:, new], cache_seqlens=lengths[i : i + 1],
            rotary_seqlens=lengths[i : i + 1] // 2, return_softmax_lse=True, **more,
        )  # fmt: skip
        assert_near(o[rows], expected[0], what="o")
        assert_near(lse[:, rows], expected_lse[0], what="lse")
        for cache, one in zip(caches, alone):
            found = cache[table[i].long()].flatten(0, 1) if in_table else cache[i]
            assert torch.equal(found, one[0])


@on_devices
def test_v3_combine(device):
    q, k, v = problem(b=2, s_q=5, s_k=40, device=device)
    parts = [ft.attention(q, k[:, i:j], v[:, i:j], return_lse=True) for i, j in ((0, 9), (9, 40))]
    o, lse = v3.flash_attn_combine(
        torch.stack([x for x, _ in parts]), torch.stack([x.transpose(1, 2) for _, x in parts])
    )
    expected, expected_lse = definition(q, k, v)
    assert_near(o, expected)
    assert_near(lse.transpose(1, 2), expected_lse)
    nothing = torch.full((2, 1, 3, 2), float("-inf"), device=device)
    o, lse = v3.flash_attn_combine(torch.zeros(2, 1, 3, 2, 4, device=device), nothing)
    assert not o.any() and lse.isneginf().all() and v3.get_scheduler_metadata(1, 2) is None


@on_devices
def test_rotary_tables_are_made_once(device, monkeypatch):
    """For a pair of cos and sin, also where they are cut anew, until torch writes to them; never for halves of one."""
    made = []
    make = _tables._make
    monkeypatch.setattr(_tables, "_make", lambda *pair: made.append(pair) or make(*pair))
    monkeypatch.setattr(_tables, "_kept", {})
    q, k_cache, v_cache = problem(b=2, s_q=3, s_k=20, device=device)
    _, k, v = problem(b=2, s_q=3, s_k=3, device=device, seed=1)
    angle = torch.rand(64, 8, device=device)
    cos, sin, one = angle.cos(), angle.sin(), torch.cat([angle.cos(), angle.sin()], 1)

    def run(cos, sin):
        return fa.flash_attn_with_kvcache(q, k_cache.clone(), v_cache.clone(), k, v, cos, sin, 5, causal=True)

    first = run(cos, sin)
    assert torch.equal(run(cos[:40], sin[:40]), first) and torch.equal(run(cos[:40], sin[:40]), first)
    assert torch.equal(run(cos, sin), first) and len(made) == 2
    assert torch.equal(run(*one.chunk(2, 1)), first) and len(made) == 2
    cos.zero_()
    changed = run(cos, sin)
    assert not torch.equal(changed, first) and len(made) == 3 and len(_tables._kept) == 2
    assert torch.equal(run(torch.zeros_like(cos), sin), changed) and len(made) == 4
    del cos, sin
    made.clear()
    assert not _tables._kept
