"""falchion.torch.decode: rows and pages, packed queries, torch.compile, a captured graph, what is refused."""

import falchion
import pytest
from torch_support import DEVICES, assert_near, definition, torch

import falchion.torch as ft

B, SIZE, COLUMNS = 3, 16, 4
USED = [50, 1, 64]


def problem(device="cpu", s_q=2, dtype=torch.float32, d=32):
    generator = torch.Generator().manual_seed(1)
    table = torch.randperm(20, generator=generator)[: B * COLUMNS].reshape(B, COLUMNS)
    shapes = (B, s_q, 4, d), (20, SIZE, 2, d), (20, SIZE, 2, d)
    q, k, v = (torch.randn(*shape, generator=generator) for shape in shapes)
    rows = tuple(x[table].reshape(B, -1, 2, d) for x in (k, v))
    wanted = [
        definition(q[i, None], *(x[i, None, :n] for x in rows), causal="bottom_right") for i, n in enumerate(USED)
    ]
    o, lse = (torch.cat(parts) for parts in zip(*wanted))
    moved = [x.to(device, dtype) for x in (q, k, v, *rows)]
    lengths = torch.tensor(USED, dtype=torch.int32, device=device)
    return *moved, table.int().to(device), lengths, o, lse


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("s_q", [1, 2])
def test_rows_and_pages(device, s_q):
    q, k, v, row_k, row_v, table, used, o, lse = problem(device, s_q)
    for found in (
        ft.decode(q, k, v, used_k=used, page_table=table, return_lse=True),
        ft.decode(q, row_k, row_v, used_k=used, return_lse=True),
    ):
        assert_near(found[0], o)
        assert_near(found[1], lse)
    first = ft.decode(
        *(x.transpose(1, 2) for x in (q, k, v)), used_k=used, page_table=table.long(), layout="bhsd"
    )
    assert_near(first.transpose(1, 2), o)
    if device == "cpu":
        assert_near(ft.decode(q, row_k, row_v, used_k=USED), o)


@pytest.mark.parametrize("device", DEVICES)
def test_packed_queries_and_starts(device):
    q, k, v, row_k, row_v, table, used, o, lse = problem(device)
    starts = torch.tensor([0, 2, 4, 6], dtype=torch.int32, device=device)
    packed = q.flatten(0, 1)
    if device != "cpu":  # the last row is nobody's, which is refused where the host has the lengths
        packed = torch.cat([packed, q[0, :1]])
    for more in {}, {"max_q": 2, "max_k": 64}:
        found, stats = ft.decode(
            packed, k, v, used_k=used, page_table=table, cu_seqlens_q=starts, return_lse=True, **more
        )
        assert_near(found[:6].view_as(q), o)
        assert_near(stats[:, :6].reshape(4, B, 2).transpose(0, 1), lse)
        assert not found[6:].any() and stats[:, 6:].isneginf().all()
    found = ft.decode(packed, row_k, row_v, used_k=used, cu_seqlens_q=starts)
    assert_near(found[:6].view_as(q), o)
    cut = torch.tensor([0, 4, 8, 12], dtype=torch.int32, device=device)
    found = ft.decode(q, k, v, used_k=used, page_table=table.flatten(), page_starts=cut)
    assert_near(found, o)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled(device):
    q, k, v, _, _, table, used, o, _ = problem(device)
    starts = torch.tensor([0, 2, 4, 6], dtype=torch.int32, device=device)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q, k, v, used, table):
        return ft.decode(2 * q, k, v, used_k=used, page_table=table, scale=32**-0.5) + 1

    @torch.compile(fullgraph=True, backend="aot_eager")
    def packed(q, used):
        return ft.decode(q, k, v, used_k=used, page_table=table, cu_seqlens_q=starts, max_q=2)

    with torch.no_grad():
        assert_near(step(q / 2, k, v, used, table) - 1, o)
        assert_near(packed(q.flatten(0, 1), used).view_as(q), o)


def test_opcheck():
    q, k, v, _, _, table, used, *_ = problem()
    given = {"used_k": used, "page_table": table}
    from falchion.torch import _decode

    tensors = [given.get(name) for name in _decode._OPTIONAL]
    band = (-1, 0, "bottom_right", 0)
    options = _decode.Options(0, 0, *band, *_decode.numbers_and_flags({}), "bshd", "best")
    torch.library.opcheck(torch.ops.falchion.decode.default, (q, k, v, *tensors, *options, False, 0))


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_one_graph_serves_every_length_and_table():
    q, k, v, _, _, table, used, o, _ = problem("cuda", 1, torch.bfloat16, 64)
    ft.decode(q, k, v, used_k=used, page_table=table)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ft.decode(q, k, v, used_k=used, page_table=table)
    for i in range(50):
        used.copy_(torch.randint(0, 65, (B,)))
        table.copy_(torch.randint(-1, 20, table.shape))
        graph.replay()
        assert torch.equal(found, ft.decode(q, k, v, used_k=used, page_table=table)), i


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_pages_out_of_range_are_masked_on_a_gpu():
    q, k, v, _, _, table, used, *_ = problem("cuda", 1)
    table[0] = torch.tensor([-1, 20, 1 << 30, -(1 << 31)])
    used[2] = 1 << 30  # clamped to the 64 keys of its pages
    o, lse = ft.decode(q, k, v, used_k=used, page_table=table, return_lse=True)
    assert not o[0].any() and lse[0].isneginf().all()
    used[2] = 64
    assert torch.equal(o, ft.decode(q, k, v, used_k=used, page_table=table))


def test_refused():
    q, k, v, _, _, table, used, *_ = problem()
    for given, words in (
        ({"page_table": table + 19}, r"page_table\[0\]\[.\] = .*: it must be in \[0, 20\)"),
        ({"used_k": used + 20}, r"used_k\[0\] = 70: it must be in \[0, 64\]"),
        ({"causal": True}, "does not say how the diagonal lies"),
        ({"max_q": 2}, "max_q or max_k is given without cu_seqlens_q"),
        ({"page_table": table.float()}, "page_table.dtype = float32"),
        ({"layout": "sbhd"}, "layout = 'sbhd'"),
    ):
        with pytest.raises(falchion.Invalid, match=words):
            ft.decode(q, k, v, **{"used_k": used, "page_table": table, **given})
    with pytest.raises(TypeError, match=r"decode\(\) has no argument 'block_table'.*page_table"):
        ft.decode(q, k, v, used_k=used, block_table=table)
    with pytest.raises(falchion.Invalid, match="q requires a gradient"):
        ft.decode(q.requires_grad_(), k, v, used_k=used, page_table=table)


@pytest.mark.parametrize("device", DEVICES)
def test_a_sequence_alone_has_the_bits_it_has_among_others(device):
    q, k, v, _, _, table, _, _, _ = problem(device)
    table = table.repeat(1, 4)  # 256 keys
    used = torch.tensor([250, 1, 190], dtype=torch.int32, device=device)
    together = ft.decode(q, k, v, used_k=used, page_table=table, split_keys=64)
    assert_near(together, ft.decode(q, k, v, used_k=used, page_table=table))
    for i in range(B):
        one = slice(i, i + 1)
        alone = ft.decode(q[one], k, v, used_k=used[one].clone(), page_table=table[one], split_keys=64)
        assert torch.equal(alone, together[one])
    with pytest.raises(falchion.Invalid, match="split_keys = 3: it must be 0"):
        ft.decode(q, k, v, used_k=used, page_table=table, split_keys=3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compiled", [False, True])
def test_new_keys_are_written_by_the_same_run(device, compiled):
    q, k, v, _, _, table, used, _, _ = problem(device)
    used = used.clamp(min=2)
    fresh = [torch.randn(B, 2, 2, 32, device=device) for _ in range(2)]
    angles = torch.rand(64, 16, device=device)
    rotary = torch.cat([angles.cos(), angles.sin()], 1)  # vLLM's form

    def step(q, k, v, k_new, v_new):
        return ft.decode(q, k, v, k_new=k_new, v_new=v_new, used_k=used, page_table=table, rotary=rotary)

    def turned(x):
        places = used[:, None].long() - 2 + torch.arange(2, device=device)
        c, s = (y[places][:, :, None] for y in rotary.split(16, 1))
        a, b = x.split(16, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    after = k.clone(), v.clone()
    for i, n in enumerate(used.tolist()):
        for t in range(2):
            at = int(table[i, (n - 2 + t) // SIZE]), (n - 2 + t) % SIZE
            after[0][at], after[1][at] = turned(fresh[0])[i, t], fresh[1][i, t]
    expected = ft.decode(turned(q), *after, used_k=used, page_table=table)
    torch._dynamo.reset()
    run = torch.compile(step, fullgraph=True, backend="aot_eager") if compiled else step
    with torch.no_grad():
        assert_near(run(q, k, v, *fresh), expected)
    assert_near(k, after[0])
    assert torch.equal(v, after[1])
