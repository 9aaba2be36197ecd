"""A KV cache in rows and in pages: attention, varlen, Plan and validate_lengths with cache, page_table and page_starts."""

from typing import Any

import falchion
import numpy as np
import pytest

B, HEADS, KV, D, SIZE, COLUMNS, PAGES = 3, 4, 2, 16, 4, 5, 20
USED = np.array([17, 0, 9], np.int32)
RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


TABLE = RNG.permutation(PAGES)[: B * COLUMNS].reshape(B, COLUMNS).astype(np.int32)
K, V = normal(PAGES, SIZE, KV, D), normal(PAGES, SIZE, KV, D)
Q = normal(B, 2, HEADS, D)
ROWS_K, ROWS_V = (x[TABLE].reshape(B, COLUMNS * SIZE, KV, D) for x in (K, V))
BAND = {"causal": "bottom_right", "backend": "cpu"}
WANTED, LSE = falchion.attention(Q, ROWS_K, ROWS_V, used_k=USED, return_lse=True, **BAND)
USED_PAGES = np.arange(COLUMNS)[None] * SIZE < USED[:, None]


def spoiled(pages: Any) -> Any:
    """Whatever no sequence has is NaN."""
    bad = np.full_like(pages, np.nan)
    for i in range(B):
        for j in range(USED[i]):
            at = TABLE[i, j // SIZE], j % SIZE
            bad[at] = pages[at]
    return bad


def test_pages_give_the_bits_of_rows() -> None:
    table = np.where(USED_PAGES, TABLE, -1).astype(np.int32)
    o, lse = falchion.attention(Q, spoiled(K), spoiled(V), page_table=table, used_k=USED, return_lse=True, **BAND)
    assert np.array_equal(o, WANTED) and np.array_equal(lse, LSE) and o[0].any() and not o[1].any()


def test_pages_whose_heads_come_first() -> None:
    o = falchion.attention(
        *(np.ascontiguousarray(x.swapaxes(1, 2)) for x in (Q, K, V)),
        page_table=TABLE,
        used_k=USED,
        layout="bhsd",
        **BAND,
    )
    assert np.array_equal(o.swapaxes(1, 2), WANTED)


def test_starts_cut_one_table() -> None:
    starts = np.concatenate([[0], USED_PAGES.sum(1).cumsum()]).astype(np.int32)
    flat = TABLE[USED_PAGES]
    for table in flat, flat[None]:
        o = falchion.attention(Q, K, V, page_table=table, page_starts=starts, used_k=USED, **BAND)
        assert np.array_equal(o, WANTED)


def test_the_table_may_lie_anyhow() -> None:
    gaps = np.full((COLUMNS, 2 * B), -7, np.int32)
    gaps[:, ::2] = TABLE.T
    assert np.array_equal(falchion.attention(Q, K, V, page_table=gaps[:, ::2].T, used_k=USED, **BAND), WANTED)


@pytest.mark.parametrize("pages", [True, False])
def test_packed_queries(pages: bool) -> None:
    starts = np.array([0, 2, 2, 3], np.int32)
    packed = np.concatenate([Q[0], Q[2, 1:]])
    cache = {"page_table": TABLE} if pages else {"cache": True}
    k, v = (K, V) if pages else (ROWS_K, ROWS_V)
    o, lse = falchion.varlen(packed, k, v, starts, used_k=USED, return_lse=True, **cache, **BAND)
    assert np.array_equal(o[:2], WANTED[0]) and np.allclose(o[2], WANTED[2, 1], atol=1e-6)
    assert np.allclose(lse[:, 2], LSE[2, :, 1], atol=1e-6)
    same = falchion.varlen(packed, k, v, starts, used_k=USED, max_q=2, max_k=17, **cache, **BAND)
    assert np.array_equal(same, o)


def test_a_cache_in_rows_is_used_k() -> None:
    assert np.array_equal(falchion.attention(Q, ROWS_K, ROWS_V, cache=True, used_k=USED, **BAND), WANTED)


def test_a_plan_that_is_kept() -> None:
    plan = falchion.Plan(Q, K, V, page_table=True, used_k=True, max_k=COLUMNS * SIZE, **BAND)
    assert np.array_equal(plan(Q, K, V, page_table=TABLE, used_k=USED), WANTED)
    again = falchion.Plan(Q.shape, K.shape, dtype="float32", page_table=TABLE, used_k=True, max_k=20, **BAND)
    assert np.array_equal(again(Q, K, V, page_table=TABLE, used_k=USED), WANTED)
    packed = falchion.Plan(Q[0], K, sequences=3, max_q=2, max_k=20, page_table=True, used_k=True, **BAND)
    starts = np.array([0, 2, 4, 6], np.int32)
    o = packed(Q.reshape(6, HEADS, D), K, V, cu_seqlens_q=starts, page_table=TABLE, used_k=USED)
    assert np.array_equal(o.reshape(WANTED.shape), WANTED)
    text = falchion.explain((1, 1, 8, 64), (64, 16, 2, 64), dtype="float16", page_table=True, used_k=True, max_k=512)
    assert "page_size" in str(text.json["problem"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"used_k": None}, "cache without used_k"),
    ({"used_k": [21, 0, 9]}, r"used_k\[0\] = 21: it must be in \[0, 20\]"),
    ({"page_table": np.where(TABLE == TABLE[0, 0], PAGES, TABLE)}, r"page_table\[0\]\[0\] = 20: it must be in \[0, 20\)"),
    ({"page_table": np.where(TABLE == TABLE[2, 2], -1, TABLE)}, r"page_table\[2\]\[2\] = -1: .*since its keys are seen"),
    ({"page_table": TABLE[:2]}, r"page_table.shape\[0\] = 2"),
    ({"page_table": TABLE.astype(np.int64)}, "page_table has the type int64: it must be int32"),
    ({"page_table": TABLE.astype(np.float32)}, "page_table.dtype = float32"),
    ({"page_table": TABLE[None]}, r"page_table has 3 axes: it must have 2, \(b, columns\), or 1 with page_starts"),
    ({"page_starts": [0, 5]}, r"page_starts has 2 numbers: it must have b \+ 1, and b = 3"),
    ({"page_table": TABLE.ravel(), "page_starts": [0, 5, 4, 15]}, r"page_starts\[2\] = 4"),
    ({"page_table": None, "page_starts": [0, 5, 10, 15]}, "page_starts"),
    ({"bias": np.zeros((2, 20), np.float32)}, "bias with a cache is not built"),
    ({"dropout": 0.5, "seed": 1}, "dropout with a cache is not built"),
    ({"causal": True}, "causal=True does not say how the diagonal lies"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(options: dict[str, Any], words: str) -> None:
    given = {"q": Q, "k": K, "v": V, "page_table": TABLE, "used_k": USED, **BAND, **options}
    with pytest.raises(falchion.Error, match=words):
        falchion.attention(**given)


def test_refused_with_packed_queries() -> None:
    starts = np.array([0, 2, 4, 6], np.int32)
    q = Q.reshape(6, HEADS, D)
    with pytest.raises(falchion.Invalid, match="cu_seqlens_k is given, but k and v are a cache"):
        falchion.varlen(q, K, V, starts, starts, page_table=TABLE, used_k=USED)
    with pytest.raises(falchion.Invalid, match=r"k has 4 axes: it must have 3, \(total, h, d\)"):
        falchion.varlen(q, K, V, starts, used_k=USED)
    with pytest.raises(falchion.Invalid, match=r"v.shape\[2\] = 3"):
        falchion.varlen(q, K, normal(PAGES, SIZE, 3, D), starts, page_table=TABLE, used_k=USED)
    with pytest.raises(falchion.Invalid, match="needs max_k, the most keys of a sequence"):
        falchion.Plan(Q, K, V, page_table=True, used_k=True)
    with pytest.raises(TypeError, match=r"attention_backward\(\) has no argument 'page_table'"):
        falchion.attention_backward(WANTED, Q, K, V, WANTED, LSE, page_table=TABLE)  # type: ignore[call-arg]


def test_validate_lengths_reads_pages() -> None:
    falchion.validate_lengths(Q, K, V, page_table=TABLE, used_k=USED)
    bad = TABLE.copy()
    bad[2, 1] = PAGES
    with pytest.raises(falchion.Invalid, match=r"page_table\[2\]\[1\] = 20"):
        falchion.validate_lengths(Q, K, V, page_table=bad, used_k=USED)
    starts = np.array([0, 2, 4, 6], np.int32)
    with pytest.raises(falchion.Invalid, match=r"used_k\[0\] = 17: it must be in \[0, 16\]"):
        q = Q.reshape(6, HEADS, D)
        falchion.validate_lengths(q, K, V, starts, max_q=2, max_k=16, page_table=TABLE, used_k=USED)


def test_shared_and_dropped_pages() -> None:
    """Pages before a window may be given back, and one page may be two sequences'."""
    table = TABLE.copy()
    table[0, :2] = -1  # of keys 0 to 7; the window of the last two queries begins at key 11
    table[2] = TABLE[0]
    band = {"window": (4, 0), "align": "bottom_right", "backend": "cpu"}
    o = falchion.attention(Q, K, V, page_table=table, used_k=[17, 0, 17], **band)
    rows = (x[np.stack([TABLE[0], TABLE[1], TABLE[0]])].reshape(ROWS_K.shape) for x in (K, V))
    assert np.array_equal(o, falchion.attention(Q, *rows, used_k=[17, 0, 17], **band))


# --- New keys, which a run writes into the cache ------------------------------------------------------------------------


def turned(x: Any, angles: Any, places: Any, pairs: bool) -> Any:
    """The definition: x (rows, h, d) by the rows `places` of angles (positions, columns / 2)."""
    half = angles.shape[1]
    c, s = (f(angles[places])[:, None] for f in (np.cos, np.sin))
    both = (x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]) if pairs else (x[..., :half], x[..., half : 2 * half])
    a, b = both[0] * c - both[1] * s, both[1] * c + both[0] * s
    out = x.copy()
    if pairs:
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = a, b
    else:
        out[..., :half], out[..., half : 2 * half] = a, b
    return out


NEW_K, NEW_V = normal(B, 2, KV, D), normal(B, 2, KV, D)
GROWN = np.array([17, 2, 9], np.int32)


@pytest.mark.parametrize("pages", [True, False])
@pytest.mark.parametrize("rotary", [None, False, True], ids=["plain", "halves", "pairs"])
def test_new_keys_are_written_and_seen(pages: bool, rotary: bool | None) -> None:
    angles = RNG.random((32, 6))
    table = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    rows_k, rows_v, q = ROWS_K.copy(), ROWS_V.copy(), Q.copy()
    for i, n in enumerate(GROWN):
        places = np.arange(n - 2, n)
        rows_k[i, places], rows_v[i, places] = NEW_K[i], NEW_V[i]
        if rotary is not None:
            rows_k[i, places] = turned(NEW_K[i], angles, places, rotary)
            q[i] = turned(Q[i], angles, places, rotary)
    wanted = falchion.attention(q, rows_k, rows_v, used_k=GROWN, **BAND)
    k, v = (K.copy(), V.copy()) if pages else (ROWS_K.copy(), ROWS_V.copy())
    cache: dict[str, Any] = {"page_table": TABLE} if pages else {}
    if rotary is not None:
        cache |= {"rotary": table, "rotary_pairs": rotary}
    o = falchion.attention(Q, k, v, k_new=NEW_K, v_new=NEW_V, used_k=GROWN, **cache, **BAND)
    assert np.allclose(o, wanted, atol=1e-5)
    in_rows = [x[TABLE].reshape(ROWS_K.shape) if pages else x for x in (k, v)]
    assert np.allclose(in_rows[0], rows_k, atol=1e-5) and np.array_equal(in_rows[1], rows_v)
    if rotary is not None:  # the form of vLLM's cache: (positions, columns)
        cache["rotary"] = table.reshape(32, 12)
        again = falchion.attention(Q, k, v, k_new=NEW_K, v_new=NEW_V, used_k=GROWN, **cache, **BAND)
        assert np.array_equal(again, o)
    starts = np.array([0, 2, 4, 6], np.int32)
    packed = [x.reshape(6, -1, D) for x in (Q, NEW_K, NEW_V)]
    if not pages:
        cache["cache"] = True
    o = falchion.varlen(packed[0], k, v, starts, k_new=packed[1], v_new=packed[2], used_k=GROWN, **cache, **BAND)
    assert np.allclose(o.reshape(wanted.shape), wanted, atol=1e-5)


def test_a_plan_with_new_keys() -> None:
    angles = RNG.random((32, D // 2))
    table = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    more: dict[str, Any] = {"k_new": NEW_K, "v_new": NEW_V, "rotary": table}
    k, v, k_plan, v_plan = (x.copy() for x in (K, V, K, V))
    wanted = falchion.attention(Q, k, v, page_table=TABLE, used_k=GROWN, **more, **BAND)
    for given in dict.fromkeys(more, True), more:
        plan = falchion.Plan(Q, K, page_table=True, used_k=True, max_k=20, **given, **BAND)
        o = plan(Q, k_plan, v_plan, page_table=TABLE, used_k=GROWN, **more)
        assert np.array_equal(o, wanted) and np.array_equal(k_plan, k) and np.array_equal(v_plan, v)


def test_new_keys_that_are_refused() -> None:
    frozen = K.copy()
    frozen.setflags(write=False)
    given: dict[str, Any] = {"page_table": TABLE, "used_k": GROWN, "k_new": NEW_K, "v_new": NEW_V, **BAND}
    with pytest.raises(falchion.Invalid, match="k is read-only"):
        falchion.attention(Q, frozen, V.copy(), **given)
    for changes, words in (
        ({"v_new": None}, "v_new"),
        ({"k_new": NEW_K[:, :1]}, r"k_new.shape\[1\] = 1"),
        ({"rotary": np.zeros((32, 5), np.float32)}, "rotary must be"),
        ({"rotary": np.zeros((32, 3, 4), np.float32)}, r"rotary.shape\[1\] = 3"),
        ({"rotary": np.zeros((32, 2, 9), np.float32)}, "rotary_dim = 18"),
        ({"rotary_pairs": True}, "rotary_pairs without rotary_dim"),
        ({"used_k": [21, 2, 9]}, r"used_k\[0\] = 21"),
    ):
        with pytest.raises(falchion.Error, match=words):
            falchion.attention(Q, K.copy(), V.copy(), **{**given, **changes})
