"""falchion.merge of lists of parts, of torch's tensors, and on a GPU."""

import falchion
import numpy as np
import pytest
from torch_support import DEVICES, assert_near, torch

CUTS = [0, 11, 11, 30, 50, 90]


def parts_of(device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, s, 4, 64, generator=generator).to(device, dtype) for s in (5, 90, 90))
    whole = falchion.attention(q, k, v, return_lse=True)
    ends = list(zip(CUTS, CUTS[1:]))
    parts = [falchion.attention(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ends]
    return whole, [o for o, _ in parts], [lse for _, lse in parts]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lists_of_parts(device, dtype):
    (o, lse), os, lses = parts_of(device, dtype)
    near = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}
    for found in (falchion.merge(os, lses), falchion.merge(tuple(os), tuple(lses))):
        assert found[0].device == o.device and found[0].dtype == dtype
        torch.testing.assert_close(found[0], o, **near)
        torch.testing.assert_close(found[1], lse, **near)
    turned = falchion.merge([x.transpose(1, 2) for x in os], lses, layout="bhsd")[0]
    assert torch.equal(turned.transpose(1, 2), found[0])
    first, first_lse = falchion.merge(os[:1], lses[:1])
    assert torch.equal(first, os[0]) and torch.equal(first_lse, lses[0])
    two = falchion.merge(os[0], lses[0], os[2], lses[2])
    assert all(torch.equal(x, y) for x, y in zip(two, falchion.merge([os[2], os[0]], [lses[2], lses[0]])))
    into = falchion.merge(os, lses, out=os[1], lse=lses[3])
    assert into[0] is os[1] and torch.equal(os[1], found[0]) and torch.equal(lses[3], found[1])


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_on_a_stream_and_in_a_graph():
    (o, _), os, lses = parts_of("cuda")
    out, lse = torch.empty_like(o), torch.empty_like(lses[0])
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    assert_near(falchion.merge(os, lses, stream=stream)[0].cpu(), o.cpu())
    with torch.cuda.graph(graph):
        falchion.merge(os, lses, out=out, lse=lse)
    os[0].fill_(2)
    graph.replay()
    assert torch.equal(out, falchion.merge(os, lses)[0])
    with pytest.raises(falchion.Invalid, match="lie on one device"):
        falchion.merge(os[0], lses[0], os[1].cpu(), lses[1])
    lses[1][0, 0, 0] = torch.inf
    assert falchion.merge(os, lses)[0][0, 0, 0].isnan().all()


def test_what_is_refused():
    o, lse = np.ones((1, 2, 1, 8), np.float32), np.zeros((1, 1, 2), np.float32)
    for arguments, kind, words in (
        (([o, o], [lse]), falchion.Invalid, "o_a has 2 parts and lse_a 1"),
        (([], []), falchion.Invalid, "o_a has 0 parts"),
        (([o] * 33, [lse] * 33), falchion.Invalid, "o_a has 33 parts"),
        (([o], lse), TypeError, "so is lse_a"),
        (([o], [lse], o, lse), TypeError, "o_b and lse_b are not given"),
        ((o, lse), TypeError, "needs o_b and lse_b"),
        ((o, lse, o), TypeError, "needs o_b and lse_b"),
        (([o, o[:, :1]], [lse, lse]), falchion.Invalid, r"o_parts\[1\].shape\[1\] = 1"),
        (([o, o], [lse, lse + np.inf]), falchion.Invalid, r"lse_parts\[1\]\[0, 0, 0\] = inf"),
        (([o, "x"], [lse, lse]), TypeError, r"o_parts\[1\]"),
    ):
        with pytest.raises(kind, match=words):
            falchion.merge(*arguments)
    assert falchion.merge([o] * 32, [lse] * 32)[1][0, 0, 0] == np.float32(np.log(32))
