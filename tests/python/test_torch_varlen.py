"""falchion.torch.varlen: packed sequences against attention on each of them."""

from __future__ import annotations

import pytest
from torch_support import DEVICES, assert_near, leaves, torch

import falchion
import falchion.torch as ft

pytestmark = pytest.mark.parametrize("device", DEVICES)

LENGTHS = [([5, 0, 17, 1], [5, 0, 17, 1]), ([3, 9], [11, 9]), ([8], [8])]


def packed(lengths_q, lengths_k, device, extra=0, d=16):
    generator = torch.Generator().manual_seed(0)
    starts = [
        torch.tensor([0, *ls], device=device).cumsum(0).int() for ls in (lengths_q, lengths_k)
    ]
    totals = sum(lengths_q) + extra, sum(lengths_k) + extra
    shapes = (totals[0], 4, d), (totals[1], 2, d), (totals[1], 2, d)
    return [torch.randn(shape, generator=generator).to(device) for shape in shapes], starts


@pytest.mark.parametrize("lengths_q, lengths_k", LENGTHS)
@pytest.mark.parametrize(
    "options", [{}, {"causal": "bottom_right"}, {"causal": "top_left", "softcap": 2.0}]
)
def test_is_attention_on_each_sequence(lengths_q, lengths_k, options, device):
    tensors, (cu_q, cu_k) = packed(lengths_q, lengths_k, device)
    ours, theirs = leaves(*tensors), leaves(*tensors)
    o, lse = ft.varlen(*ours, cu_q, cu_k, return_lse=True, **options)
    assert lse.shape == (4, tensors[0].shape[0])
    q, k, v = theirs
    parts = [
        ft.attention(q[a:b][None], k[c:d][None], v[c:d][None], return_lse=True, **options)
        for a, b, c, d in zip(cu_q, cu_q[1:], cu_k, cu_k[1:])
    ]
    expected = torch.cat([part[0][0] for part in parts])
    assert_near(o, expected, what="o")
    assert_near(lse, torch.cat([part[1][0] for part in parts], dim=1), what="lse")
    o.square().sum().backward()
    expected.square().sum().backward()
    for what, x, y in zip("qkv", ours, theirs):
        assert_near(x.grad, y.grad, what=f"grad_{what}")


def test_the_longest_lengths_may_be_given(device):
    tensors, (cu_q, cu_k) = packed([3, 9], [11, 9], device)
    read = ft.varlen(*tensors, cu_q, cu_k)
    assert torch.equal(ft.varlen(*tensors, cu_q, cu_k, max_q=9, max_k=11), read)


def test_one_cu_seqlens_serves_both(device):
    tensors, (cu_q, cu_k) = packed([5, 4], [5, 4], device)
    both = ft.varlen(*tensors, cu_q, cu_k, causal="bottom_right")
    assert torch.equal(ft.varlen(*tensors, cu_q, causal=True), both)


def test_rows_of_no_sequence(device):
    tensors, (cu_q, cu_k) = packed([5, 4], [5, 4], device, extra=3)
    tensors = leaves(*tensors)
    if device == "cpu":  # lengths on the host are read
        with pytest.raises(falchion.Invalid, match="12"):
            ft.varlen(*tensors, cu_q, cu_k, max_q=12, max_k=12)
        return
    o = ft.varlen(*tensors, cu_q, cu_k, max_q=12, max_k=12)
    assert torch.equal(o[9:], torch.zeros_like(o[9:]))
    o.sum().backward()
    for x in tensors:
        assert torch.equal(x.grad[9:], torch.zeros_like(x.grad[9:])) and x.grad[:9].abs().sum() > 0


def test_dropout_is_repeated_in_the_backward_pass(device):
    tensors, (cu_q, cu_k) = packed([8, 5], [8, 5], device)

    def loss(v):
        torch.manual_seed(3)
        return ft.varlen(tensors[0], tensors[1], v, cu_q, cu_k, dropout=0.5).sum()

    # o is linear in v, so the gradient times v is the sum itself.
    (v,) = leaves(tensors[2])
    total = loss(v)
    total.backward()
    assert abs((v.grad * v).sum().item() - total.item()) < 1e-3


def test_compile_needs_the_longest_lengths(device):
    tensors, (cu_q, cu_k) = packed([8, 5], [8, 5], device)

    def run(q, k, v, cu_q, cu_k):
        return ft.varlen(q, k, v, cu_q, cu_k, max_q=8, max_k=8, causal="top_left")

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*tensors, cu_q, cu_k), run(*tensors, cu_q, cu_k))


def test_causal_needs_a_corner_where_lengths_differ(device):
    tensors, (cu_q, cu_k) = packed([3, 9], [11, 9], device)
    with pytest.raises(falchion.Invalid, match="bottom_right"):
        ft.varlen(*leaves(*tensors), cu_q, cu_k, causal=True)
