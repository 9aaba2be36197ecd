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


def test_a_slice_drops_what_the_whole_does() -> None:
    """In rows, sequences and heads, in both passes and by a plan."""
    drops = {"dropout": 0.4, "seed": 5, "offset": 2}
    o, lse = falchion.attention(Q, K, V, causal=True, return_lse=True, **drops)
    grad_o = np.ones_like(o)
    grad_q = falchion.attention_backward(grad_o, Q, K, V, o, lse, causal=True, **drops)[0]
    rows, there = slice(20, 30), (1, 2, 20, 0, 4)
    q, k, v = Q[1:, rows, 2:], K[1:, :, 1:], V[1:, :, 1:]
    wanted = o[1:, rows, 2:]
    part, part_lse = falchion.attention(q, k, v, causal=True, align=20, return_lse=True, origin=there, **drops)
    assert np.abs(part - wanted).max() < 1e-5
    elsewhere = falchion.attention(q, k, v, causal=True, align=20, **drops)
    assert np.abs(elsewhere - wanted).max() > 0.1
    plan = falchion.Plan(q, k, v, causal=True, align=20, dropout=0.4)
    assert np.array_equal(plan(q, k, v, seed=5, offset=2, origin=list(there)), part)
    mine = grad_o[1:, rows, 2:]
    grads = falchion.attention_backward(mine, q, k, v, part, part_lse, causal=True, align=20, origin=there, **drops)
    assert np.abs(grads[0] - grad_q[1:, rows, 2:]).max() < 1e-5


@pytest.mark.parametrize(
    ("origin", "error", "words"),
    [
        ((0, 0, 0), TypeError, r"origin must be \(b, h, i, j\) or"),
        (3, TypeError, r"origin must be \(b, h, i, j\) or"),
        ((0, 0, 1.5, 0), TypeError, r"origin\[2\] must be a whole number"),
        ((0, 0, 0, 6), falchion.Invalid, r"^origin\[3\] = 6: it must be a multiple of 4"),
        ((0, 1, 0, 0), falchion.Invalid, r"^origin\[1\] \+ h_q = 1 \+ 4 is over origin\[4\] = 4"),
    ],
)
def test_an_origin_that_is_none(origin: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        falchion.attention(Q, K, V, dropout=0.4, seed=1, origin=origin)  # type: ignore[arg-type]


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
