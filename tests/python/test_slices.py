"""align=n: a call may be a chunk of a larger problem, whose query 0 stands at key n."""

from __future__ import annotations

import numpy as np
import pytest

import falchion

ROWS = np.random.default_rng(3)
Q, K, V = (ROWS.standard_normal((2, 60, h, 16)).astype(np.float32) for h in (4, 2, 2))
WHOLE = falchion.attention(Q, K, V, causal=True)


@pytest.mark.parametrize("row", [0, 1, 35, np.int64(35)])
def test_a_chunk_is_its_rows(row: int) -> None:
    chunk = falchion.attention(Q[:, row : row + 20], K, V, causal=True, align=row)
    assert np.abs(chunk - WHOLE[:, row : row + 20]).max() < 1e-5


def test_keys_behind_the_queries_are_not_seen() -> None:
    o, lse = falchion.attention(Q[:, :10], K, V, causal=True, align=-10, return_lse=True)
    assert (o == 0).all() and np.isneginf(lse).all()


def test_plans_and_explanations_say_where() -> None:
    plan = falchion.Plan((1, 4, 2, 8), (1, 9, 2, 8), dtype="float32", window=(3, 0), align=5, backend="ref")
    assert plan.explain().json["problem"]["band"] == {"left": 3, "right": 0, "align": "at", "offset": 5}
    assert "window(3, 0, at 5)" in plan.describe()


def test_torch_and_its_gradients() -> None:
    torch = pytest.importorskip("torch")
    import falchion.torch as ft

    q, k, v = (torch.tensor(x, requires_grad=True) for x in (Q, K, V))
    whole = ft.attention(q, k, v, causal=True)
    chunk = ft.attention(q[:, 20:30], k, v, causal=True, align=20)
    assert (chunk - whole[:, 20:30]).abs().max() < 1e-5
    ours = torch.autograd.grad(chunk.square().sum(), (q, k, v))
    theirs = torch.autograd.grad(whole[:, 20:30].square().sum(), (q, k, v))
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() < 1e-4
    compiled = torch.compile(ft.attention, fullgraph=True)
    assert (compiled(q[:, 20:30], k, v, causal=True, align=20) - chunk).abs().max() < 1e-6


def test_packed_rows_of_torch_take_0() -> None:
    torch = pytest.importorskip("torch")
    import falchion.torch as ft

    q, k, v = (torch.tensor(x[0]) for x in (Q, K, V))
    starts = torch.tensor([0, 25, 60], dtype=torch.int32)
    at = ft.varlen(q, k, v, starts, max_q=35, causal=True, align=0)
    assert (at - ft.varlen(q, k, v, starts, max_q=35, causal="top_left")).abs().max() == 0


def test_jax() -> None:
    pytest.importorskip("jax")
    import falchion.jax as fj

    chunk = fj.attention(Q[:, 20:30], K, V, causal=True, align=20)
    assert np.abs(np.asarray(chunk) - WHOLE[:, 20:30]).max() < 1e-5
    with pytest.raises(falchion.Invalid, match="align = 1073741825"):
        fj.attention(Q, K, V, causal=True, align=2**30 + 1)
