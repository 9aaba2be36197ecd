"""falchion.flash_attn at the edges of FlashAttention's meaning: parts that nobody wrote, lengths
and pages out of bounds, rows of no sequence."""

from __future__ import annotations

import numpy as np
import pytest
from flash_attn_support import cache, ints, paged
from torch_support import DEVICES, DTYPES, assert_near, definition, problem, torch

import falchion
import falchion.flash_attn as fa
import falchion.torch as ft
from falchion.flash_attn import bert_padding, v3
from falchion.flash_attn.rotary import apply_rotary_emb

on_devices = pytest.mark.parametrize("device", DEVICES)
NAN = float("nan")


@pytest.fixture(autouse=True)
def ask_gpus():
    """On a GPU what is out of bounds is refused where somebody asks for it."""
    fa.check_bounds()
    yield
    fa.check_bounds(False)


INF = float("inf")


def parts_of(q, k, v, cuts, dtype=torch.float32):
    """Parts of the keys as flash_attn_combine takes them."""
    found = [ft.attention(q, k[:, i:j], v[:, i:j], return_lse=True) for i, j in cuts]
    o = torch.stack([x for x, _ in found]).to(dtype)
    return o, torch.stack([x.transpose(1, 2) for _, x in found])


@on_devices
@pytest.mark.parametrize("dtype", DTYPES)
def test_combine_leaves_out_what_nobody_wrote(dtype, device):
    q, k, v = problem(b=2, s_q=5, s_k=40, device=device)
    o, lse = parts_of(q, k, v, [(0, 9), (9, 12), (9, 40)], dtype)
    o[1], lse[1] = NAN, -INF
    o[0, 1, 2], lse[0, 1, 2] = INF, -INF  # one row of one part
    found, found_lse = v3.flash_attn_combine(o, lse)
    assert found.dtype == dtype and found_lse.dtype == torch.float32
    expected, expected_lse = definition(q, k, v)
    alone, alone_lse = definition(q, k[:, 9:], v[:, 9:])
    expected[1, 2], expected_lse[1, :, 2] = alone[1, 2], alone_lse[1, :, 2]
    assert_near(found, expected, dtype)
    assert_near(found_lse.transpose(1, 2), expected_lse)
    o[:, 0, 0], lse[:, 0, 0] = NAN, -INF
    found, found_lse = v3.flash_attn_combine(o, lse, out_dtype=torch.float32)
    assert found.dtype == torch.float32 and not found[0, 0].any()
    assert found_lse[0, 0].isneginf().all() and found[0, 1:].isfinite().all()
    lse[0, 0, 1] = NAN
    found, found_lse = v3.flash_attn_combine(o, lse)
    assert found[0, 1].isnan().all() and found_lse[0, 1].isnan().all()


@on_devices
def test_combine_of_packed_rows_into_out(device):
    q, k, v = problem(b=1, s_q=5, s_k=40, device=device)
    o, lse = parts_of(q, k, v, [(0, 9), (9, 40)])
    expected, expected_lse = v3.flash_attn_combine(o, lse + 1e4)
    out = torch.full_like(o[0, 0], NAN, dtype=torch.bfloat16)
    found, found_lse = v3.flash_attn_combine(o[:, 0], lse[:, 0] + 1e4, out)
    assert found is out and torch.equal(out, expected[0].bfloat16())
    assert torch.equal(found_lse, expected_lse[0])
    assert_near(expected, definition(q, k, v)[0], torch.float16)  # an LSE near 1e4: see contract.md
    one, one_lse = v3.flash_attn_combine(o[:1], lse[:1])
    assert torch.equal(one, o[0]) and torch.equal(one_lse, lse[0])


def refuse_parts(words, o=(2, 1, 3, 2, 4), lse=(2, 1, 3, 2), dtype=torch.float32, **options):
    with pytest.raises(falchion.Invalid, match=words):
        v3.flash_attn_combine(torch.zeros(o, dtype=dtype), torch.zeros(lse), **options)


def test_combine_refuses_what_does_not_fit():
    refuse_parts("lse_partial has the shape", lse=(2, 1, 2, 3))
    refuse_parts("lse_partial has the shape", lse=(2, 1, 3, 1))
    refuse_parts("out_partial has the shape", o=(0, 1, 3, 2, 4), lse=(0, 1, 3, 2))
    refuse_parts("out_partial has the shape", o=(2, 3, 4), lse=(2, 3))
    refuse_parts("float64", dtype=torch.float64)
    refuse_parts("int32", out_dtype=torch.int32)
    refuse_parts("out has the shape", out=torch.zeros(2, 3, 2, 4))
    refuse_parts("out_dtype", out=torch.zeros(1, 3, 2, 4), out_dtype=torch.float16)


# --- Caches -------------------------------------------------------------------------------------


TABLE = [7, 0, 3, 5, 1], [2, 9, 4, 8, 6]
TURNS = {"rotary_cos": torch.rand(16, 8), "rotary_sin": torch.rand(16, 8)}
REFUSED = [
    (cache, {"cache_seqlens": ints(5, 18)}, r"cache_seqlens\[1\] = 18, and 3 keys are new.* 20 "),
    (cache, {"cache_seqlens": ints(5, 21), "k": None, "v": None}, r"cache_seqlens\[1\] = 21: "),
    (cache, {"cache_seqlens": ints(-1, 14)}, r"cache_seqlens\[0\] = -1"),
    (cache, {"cache_seqlens": ints(2**32 + 1, 1, dtype=torch.int64)}, r"cache_seqlens\[0\] = 429"),
    (cache, {"cache_seqlens": 18}, "cache_seqlens = 18, and 3 keys are new"),
    (cache, {"cache_seqlens": -1, "k": None, "v": None}, "cache_seqlens = -1"),
    (cache, {"cache_seqlens": torch.tensor([5.0, 14.0])}, "cache_seqlens is of torch.float32"),
    (cache, {"cache_seqlens": ints(5)}, r"cache_seqlens has the shape \(1,\)"),
    (cache, {"cache_batch_idx": ints(0, 2)}, r"cache_batch_idx\[1\] = 2"),
    (cache, {"cache_batch_idx": ints(-1, 0)}, r"cache_batch_idx\[0\] = -1"),
    (cache, {"cache_leftpad": ints(0, -2)}, r"cache_leftpad\[1\] = -2"),
    (cache, {"cache_leftpad": ints(21, 0)}, r"cache_leftpad\[0\] = 21"),
    (cache, {"k": torch.zeros(2, 3, 1, 16)}, "k has the shape"),
    (cache, {"v": torch.zeros(2, 3, 2, 1)}, "v has the shape"),
    (cache, {"v": torch.zeros(2, 2, 2, 16)}, "v has the shape"),
    (cache, {"k": torch.zeros(2, 3, 2, 16).half()}, "k is of torch.float16"),
    (cache, {"q": torch.zeros(2, 3, 4, 16).half()}, "q, k_cache and v_cache are of"),
    (cache, {"q": torch.zeros(1, 3, 4, 16)}, "the caches have 2 sequences, and q has 1"),
    (cache, {"rotary_cos": torch.rand(64, 8)}, "rotary_cos is given without rotary_sin"),
    (cache, {"rotary_sin": torch.rand(64, 8)}, "rotary_sin is given without rotary_cos"),
    (cache, TURNS, r"cache_seqlens\[1\] = 14: rotary_cos has only 16 rows"),
    (cache, {**TURNS, "rotary_sin": torch.rand(64, 7)}, "have the shapes"),
    (cache, {"rotary_cos": torch.rand(64, 9), "rotary_sin": torch.rand(64, 9)}, "head dim is 16"),
    (paged, {"table": ([7, 0, 3, 5, 1], [2, 9, 4, 8, -1])}, r"block_table\[1, 4\] = -1"),
    (paged, {"table": ([7, -1, 3, 5, 1], [2, 9, 4, 8, 6])}, r"block_table\[0, 1\] = -1.*0 to 9"),
    (paged, {"table": ([10, 0, 3, 5, 1], [2, 9, 4, 8, 6])}, r"block_table\[0, 0\] = 10"),
    (paged, {"table": TABLE, "cache_seqlens": ints(5, 18)}, r"cache_seqlens\[1\] = 18"),
    (paged, {"table": (TABLE[0],)}, "block_table has 1 sequences, and q has 2"),
    (paged, {"table": torch.zeros(2, 5)}, "block_table is of torch.float32"),
]


@on_devices
@pytest.mark.parametrize("make, changes, words", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_is_out_of_bounds_is_refused_and_nothing_is_written(make, changes, words, device):
    given = make(device, **changes)
    before = given["k_cache"].clone(), given["v_cache"].clone()
    with pytest.raises((falchion.Invalid, falchion.Unsupported), match=words):
        fa.flash_attn_with_kvcache(**given)
    assert torch.equal(given["k_cache"], before[0]) and torch.equal(given["v_cache"], before[1])
    # The context of a GPU lives on.
    assert fa.flash_attn_with_kvcache(**cache(device)).isfinite().all()


BAD = [
    ({"cache_seqlens": [5, 14]}, TypeError, "cache_seqlens must be a whole number"),
    ({"cache_seqlens": 5.0}, TypeError, "not float"),
    ({"cache_seqlens": torch.tensor(21)}, falchion.Invalid, r"cache_seqlens\[0\] = 21"),
    ({"cache_seqlens": torch.tensor(5.0)}, falchion.Invalid, "cache_seqlens is of torch.float32"),
    ({"block_table": torch.tensor(0)}, falchion.Invalid, "block_table has"),
    ({"block_table": ints(0, 1)}, falchion.Invalid, "block_table has the shape"),
    ({"block_table": ints([[0]], [[0]])}, falchion.Invalid, "block_table has the shape"),
    ({"q": torch.zeros(3, 4, 16)}, falchion.Invalid, "q has 3 axes"),
    ({"window_size": (1, 2, 3)}, falchion.Invalid, "window_size"),
    ({"window_size": 4}, falchion.Invalid, "window_size = 4"),
]


@pytest.mark.parametrize("changes, kind, words", BAD)
def test_what_is_no_length_table_or_window(changes, kind, words):
    with pytest.raises(kind, match=words):
        fa.flash_attn_with_kvcache(**{**cache("cpu"), **changes})


def test_numbers_of_other_libraries():
    """A whole number may come from NumPy or have no axes, and a part of one is refused and not cut off."""
    x, angles = torch.randn(2, 5, 4, 16), torch.rand(9, 8)
    want = fa.flash_attn_with_kvcache(**{**cache("cpu"), "cache_seqlens": 5})
    turned = apply_rotary_emb(x, angles, angles, seqlen_offsets=3)
    starts = ints(0, 5, 10)
    rows = x.flatten(0, 1)
    packed = fa.flash_attn_varlen_func(rows, rows, rows, starts, starts, 5, 5)
    near, same = (fa.flash_attn_with_kvcache(**cache("cpu"), window_size=w) for w in ((3, 2), torch.tensor([3, 2])))
    assert torch.equal(near, same)
    for made in (np.int32, np.array, torch.tensor):
        got = fa.flash_attn_with_kvcache(**{**cache("cpu"), "cache_seqlens": made(5)})
        assert torch.equal(got, want)
        assert torch.equal(apply_rotary_emb(x, angles, angles, seqlen_offsets=made(3)), turned)
        got = fa.flash_attn_varlen_func(rows, rows, rows, starts, starts, made(5), made(5))
        assert torch.equal(got, packed)
    off = {"causal": None, "return_attn_probs": None}
    assert torch.equal(fa.flash_attn_varlen_func(rows, rows, rows, starts, starts, 5, 5, **off), packed)
    off = {"causal": None, "return_softmax_lse": None, "cache_seqlens": 5}
    assert torch.equal(fa.flash_attn_with_kvcache(**{**cache("cpu"), **off}), want)
    noise = {"dropout_p": 0.5, "return_attn_probs": True}
    for made in (starts, starts.long(), [0, 5, 10]):
        torch.manual_seed(1)
        found = fa.flash_attn_varlen_func(rows, rows, rows, made, made, 5, 5, **noise)
        want = found if made is starts else want
        assert all(torch.equal(x, y) for x, y in zip(found, want))
    with pytest.raises(TypeError, match="max_seqlen_k must be a whole number, not float"):
        fa.flash_attn_varlen_func(rows, rows, rows, starts, starts, 5, 5.5)


@on_devices
@pytest.mark.parametrize("starts", [(0, 2, 5), (0, 3, 1), (-1, 2, 3)])
def test_new_keys_that_are_not_there_are_refused(starts, device):
    given = cache(device, cu_seqlens_k_new=ints(*starts))
    given.update({x: given[x].flatten(0, 1)[:3] for x in "kv"})
    before = given["k_cache"].clone()
    with pytest.raises(falchion.Invalid, match="cu_seqlens_k_new.* from 0 to 3"):
        v3.flash_attn_with_kvcache(**given)
    assert torch.equal(given["k_cache"], before)


@pytest.mark.parametrize("name", ["k_cache", "v", "cache_seqlens", "block_table"])
def test_tensors_of_two_devices_are_refused_by_name(name):
    given = paged("cpu", TABLE)
    given[name] = given[name].to("meta")
    with pytest.raises(falchion.Invalid, match=f"{name} is on meta; it must be on cpu"):
        fa.flash_attn_with_kvcache(**given)


@on_devices
def test_pages_that_no_key_is_in_may_have_any_number(device):
    """Behind the end, and before cache_leftpad."""
    whole = paged(device, TABLE, cache_leftpad=ints(4, 8))
    wild = paged(device, ([-1, 0, 10, 99, -7], [-1, 11, 4, 8, 6]), cache_leftpad=ints(4, 8))
    assert torch.equal(fa.flash_attn_with_kvcache(**whole), fa.flash_attn_with_kvcache(**wild))
    for name in ("k_cache", "v_cache"):
        assert torch.equal(whole[name], wild[name])


@on_devices
def test_varlen_in_pages_out_of_bounds(device):
    given = paged(device, TABLE)
    starts = ints(0, 3, 6).to(device)

    def run(table, *lengths):
        starts_k = ints(0, *lengths).cumsum(0, dtype=torch.int32).to(device)
        caches = given["k_cache"], given["v_cache"]
        q, table = given["q"].flatten(0, 1), ints(*table).to(device)
        return fa.flash_attn_varlen_func(
            q, *caches, starts, starts_k, 3, max(lengths), block_table=table
        )

    bad = ([7, 0, 3, 10, -1], r"\[0, 3\] = 10"), ([7, -1, 3, 0, 0], r"\[0, 1\] = -1")
    for table, words in bad:
        with pytest.raises(falchion.Invalid, match="block_table" + words):
            run((table, TABLE[1]), 13, 20)
    with pytest.raises(falchion.Invalid, match="sequence 1 21 keys; block_table has places for 20"):
        run(TABLE, 13, 21)
    assert torch.equal(run(([7, 0, 3, 5, -1], TABLE[1]), 13, 20), run(TABLE, 13, 20))


@on_devices
def test_a_window_as_wide_as_the_cache_turns_queries_as_none_does(device):
    """FlashAttention takes such a side for none, and then all queries have the place of the
    first."""
    turns = {"rotary_cos": torch.rand(64, 8), "rotary_sin": torch.rand(64, 8)}
    expected = fa.flash_attn_with_kvcache(**cache(device, **turns))
    wide = fa.flash_attn_with_kvcache(**cache(device, **turns), window_size=(20, 20))
    near = fa.flash_attn_with_kvcache(**cache(device, **turns), window_size=(19, 19))
    assert torch.equal(wide, expected) and not torch.equal(near, expected)
    none = fa.flash_attn_with_kvcache(**cache(device, **turns), window_size=(None, None))
    assert torch.equal(none, expected)
    wide = v3.flash_attn_with_kvcache(**cache(device, **turns), window_size=(19, 2))
    assert torch.equal(wide, expected)


# --- Rotary embeddings, padding, probabilities --------------------------------------------------


@on_devices
def test_rotary_past_the_tables_and_of_packed_rows(device):
    x = torch.randn(2, 5, 3, 24, device=device)
    cos, sin = torch.rand(9, 8, device=device), torch.rand(9, 8, device=device)
    found = apply_rotary_emb(x, cos, sin, seqlen_offsets=ints(0, 7).to(device))
    assert torch.equal(found[0], apply_rotary_emb(x[:1], cos, sin)[0])
    assert torch.equal(found[1, :2], apply_rotary_emb(x[1:, :2], cos, sin, seqlen_offsets=7)[0])
    assert torch.equal(found[1, 2:], x[1, 2:]), "no row of the tables: as it was"
    starts = ints(0, 5, 7).to(device)
    flat = x.flatten(0, 1)[:8]
    packed = apply_rotary_emb(flat, cos, sin, cu_seqlens=starts, max_seqlen=5)
    assert torch.equal(packed[:5], found[0])
    assert torch.equal(packed[5:7], apply_rotary_emb(x[1:, :2], cos, sin)[0])
    for options, words in (
        ({"seqlen_offsets": 5}, "seqlen_offsets = 5"),
        ({"seqlen_offsets": -1}, "seqlen_offsets = -1"),
        ({"seqlen_offsets": ints(1).to(device)}, "seqlen_offsets has the shape"),
        ({"cu_seqlens": starts}, "max_seqlen"),
    ):
        with pytest.raises(falchion.Invalid, match=words):
            apply_rotary_emb(x, cos, sin, **options)
    with pytest.raises(falchion.Invalid, match="have the shapes"):
        apply_rotary_emb(x, cos, sin[:, :4])


def test_padding_of_concatenated_sequences():
    x = torch.randn(2, 6, 3)
    lengths = ints([2, 3, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0])
    rows, places, starts, longest = bert_padding.unpad_input_for_concatenated_sequences(x, lengths)
    assert torch.equal(rows, torch.cat([x[0, :5], x[1]])) and longest == 6
    assert starts.tolist() == [0, 2, 5, 11] and places.tolist() == [0, 1, 2, 3, 4, *range(6, 12)]
    padded = bert_padding.pad_input(rows, places, 2, 6)
    assert torch.equal(padded[0, :5], x[0, :5]) and not padded[0, 5].any()
    with pytest.raises(falchion.Invalid, match="indices"):
        bert_padding.index_put_first_axis(rows, places[:3], 12)
    with pytest.raises(falchion.Invalid, match="mask has the shape"):
        bert_padding.unpad_input(x, torch.ones(2, 5))
    none = bert_padding.unpad_input(x, torch.zeros(2, 6, dtype=torch.bool))
    assert none[0].shape == (0, 3) and none[2].tolist() == [0, 0, 0] and none[3] == 0


@on_devices
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_probabilities_of_no_key_and_of_rows_of_no_sequence(dropout, device):
    q, k, v = problem(b=1, s_q=7, s_k=0, h_k=4, device=device)
    o, lse, s = fa.flash_attn_func(q, k, v, dropout, return_attn_probs=True)
    assert not o.any() and lse.isneginf().all() and s.shape == ((1, 4, 7, 0) if dropout else (0,))
    more = 3 if device == "cuda" else 0  # rows of no sequence, which only the host refuses
    q, k, v = (x[0] for x in problem(b=1, s_q=9 + more, s_k=9 + more, h_k=4, device=device))
    starts_q, starts_k = ints(0, 3, 3, 9).to(device), ints(0, 4, 8, 9).to(device)
    arguments = starts_q, starts_k, 6, 4, dropout
    state = torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()
    o, lse, s = fa.flash_attn_varlen_func(q, k, v, *arguments, return_attn_probs=True)
    assert o.shape == q.shape and not o[9:].any() and o.isfinite().all()
    (torch.set_rng_state if device == "cpu" else torch.cuda.set_rng_state)(state)
    assert torch.equal(fa.flash_attn_varlen_func(q, k, v, *arguments), o), "the same draw"
    if dropout:
        assert s.shape == (3, 4, 6, 4) and not s[1].any() and not s[0, :, 3:].any()
        assert (s[0, :, :3].abs().amax(-1) == 1).all() and not s[2, :, :, 1:].any()


@on_devices
def test_probabilities_leave_gradients_as_they_are(device):
    found = []
    for probabilities in (False, True):
        q, k, v = (x.requires_grad_() for x in problem(h_k=4, device=device))
        torch.manual_seed(3)
        o = fa.flash_attn_func(q, k, v, 0.3, causal=True, return_attn_probs=probabilities)
        (o[0] if probabilities else o).square().sum().backward()
        found.append([q.grad, k.grad, v.grad])
    for x, y in zip(*found):
        assert torch.equal(x, y)
