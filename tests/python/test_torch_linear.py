"""falchion.torch.linear_attention against its recurrence in float64."""

from __future__ import annotations

import functools
import math

import pytest
# It comes before torch, since it skips this file where there is none.
from torch_support import DEVICES, assert_near, gradients, leaves, torch
from torch.library import opcheck

import falchion
import falchion.torch as ft
from falchion.torch._linear_ops import LinearOptions

pytestmark = pytest.mark.parametrize("device", DEVICES)


def recurrence(
    q,
    k,
    v,
    *,
    decay=None,
    feature_map=None,
    normalise=False,
    eps=1e-6,
    scale=None,
    reverse=False,
    state=None,
):
    """(O, S, z) of tensors (b, s, h, d), token by token. Differentiable."""
    q, k, v = (x.double() for x in (q, k, v))
    group = v.shape[2] // q.shape[2]
    q, k = (x.repeat_interleave(group, 2) for x in (q, k))
    if feature_map == "elu_plus_one":
        q, k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    b, s, h, d_qk = q.shape
    scale = 1 / math.sqrt(d_qk) if scale is None else scale
    total = q.new_zeros(b, h, d_qk, v.shape[-1]) if state is None else state[0].double()
    z = q.new_zeros(b, h, d_qk) if state is None or state[1] is None else state[1].double()
    rows = {}
    for j in reversed(range(s)) if reverse else range(s):
        if decay is not None:
            g = (decay if decay.dim() == 1 else decay[:, j]).double().exp()
            g = g.expand(b, h)
            total, z = total * g[..., None, None], z * g[..., None]
        total = total + k[:, j, :, :, None] * v[:, j, :, None]
        z = z + k[:, j]
        row = scale * torch.einsum("bhd,bhde->bhe", q[:, j], total)
        if normalise:
            row = row / (scale * (q[:, j] * z).sum(-1, keepdim=True) + eps)
        rows[j] = row
    return torch.stack([rows[j] for j in range(s)], 1), total, z


def problem(device, b=2, s=21, h_qk=2, h_v=4, d_qk=16, d_v=8):
    generator = torch.Generator().manual_seed(0)
    shapes = (b, s, h_qk, d_qk), (b, s, h_qk, d_qk), (b, s, h_v, d_v)
    return [torch.randn(shape, generator=generator).to(device) for shape in shapes]


def decays(kind, device):
    generator = torch.Generator().manual_seed(1)
    shape = {"head": (4,), "token": (2, 21, 4)}.get(kind)
    return None if shape is None else -torch.rand(shape, generator=generator).to(device)


CASES = [
    {},
    {"decay": "head"},
    {"decay": "token"},
    {"feature_map": "elu_plus_one", "normalise": True},
    {"feature_map": "elu_plus_one", "normalise": True, "decay": "token", "scale": 0.7},
    {"reverse": True, "decay": "head"},
]


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)) or "plain")
def test_is_the_recurrence(case, with_state, device):
    options = dict(case)
    decay = decays(options.pop("decay", None), device)
    normalise = options.get("normalise", False)
    tensors = problem(device)
    more = [] if decay is None else [decay]
    state = [
        0.5 + torch.rand(2, 4, 16, 8, device=device),
        0.5 + torch.rand(2, 4, 16, device=device),
    ]
    if with_state:
        more += state if normalise else state[:1]
    ours, theirs = leaves(*tensors, *more), leaves(*tensors, *more)

    def split(x):
        x = list(x[3:])
        given = x.pop(0) if decay is not None else None
        return given, ((x[0], x[1] if normalise else None) if with_state else None)

    given, initial = split(ours)
    plain = initial if normalise or initial is None else initial[0]
    o, last = ft.linear_attention(
        *ours[:3], decay=given, initial_state=plain, return_state=True, **options
    )
    last = last if normalise else (last,)
    given, initial = split(theirs)
    expected, *expected_last = recurrence(*theirs[:3], decay=given, state=initial, **options)
    assert_near(o, expected, torch.float16, "o")
    for x, y in zip(last, expected_last):
        assert_near(x, y, torch.float16, "state")
    (o.square().sum() + sum(x.square().sum() for x in last)).backward()
    (
        expected.square().sum() + sum(y.square().sum() for y, _ in zip(expected_last, last))
    ).backward()
    for i, (x, y) in enumerate(zip(ours, theirs)):
        assert_near(x.grad, y.grad, torch.float16, f"gradient {i}")
    with torch.no_grad():
        given, initial = split(ours)
        plain = initial if normalise or initial is None else initial[0]
        again, kept = ft.linear_attention(
            *ours[:3], decay=given, initial_state=plain, return_state=True, **options
        )
    assert torch.equal(again, o)
    assert all(torch.equal(x, y) for x, y in zip(kept if normalise else (kept,), last))


def test_the_gradient_of_a_sum(device):
    """It is one number, expanded, and no axis of it is contiguous."""
    ours, theirs = leaves(*problem(device)), leaves(*problem(device))
    ft.linear_attention(*ours).sum().backward()
    recurrence(*theirs)[0].sum().backward()
    for x, y in zip(ours, theirs):
        assert_near(x.grad, y.grad, torch.float16)


def test_packed_sequences(device):
    q, k, v = (x.flatten(0, 1) for x in problem(device))
    cu = torch.tensor([0, 9, 42], dtype=torch.int32, device=device)
    o, state = ft.linear_attention(q, k, v, cu_seqlens=cu, return_state=True)
    for n, (a, b) in enumerate([(0, 9), (9, 42)]):
        part, last = ft.linear_attention(*(x[None, a:b] for x in (q, k, v)), return_state=True)
        assert_near(o[a:b], part[0])
        assert_near(state[n], last[0])


@pytest.mark.parametrize("kind", [None, "head", "token"])
def test_opcheck(kind, device):
    decay = decays(kind, device)
    options = LinearOptions(0, "elu_plus_one", True, 1e-6, None, False, "bshd", "best", 0, True)
    tensors = (*problem(device), decay, None, None, None)
    opcheck(torch.ops.falchion.linear_attention, (*tensors, *options))
    grads = torch.ops.falchion.linear_attention(*tensors, *options)
    opcheck(torch.ops.falchion.linear_attention_backward, (*grads, *tensors, *options))


@pytest.mark.parametrize("kind", ["head", "token"])
def test_compile_vmap_and_func_grad(kind, device):
    tensors = (*problem(device), decays(kind, device))

    def run(q, k, v, g):
        return ft.linear_attention(q, k, v, decay=g)

    expected = gradients(run, *tensors)
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
    assert all(torch.equal(x, y) for x, y in zip(gradients(compiled, *tensors), expected))
    grad = torch.func.grad(lambda *x: run(*x).square().sum(), argnums=(0, 1, 2, 3))
    assert all(torch.equal(x, y) for x, y in zip(grad(*tensors), expected))
    many = [torch.stack([x, 0.5 * x]) for x in tensors[:3]]
    found = torch.vmap(grad, (0, 0, 0, None))(*many, tensors[3])
    for n in range(2):
        for x, y in zip(found, gradients(run, *(x[n] for x in many), tensors[3])):
            assert_near(x[n], y, torch.float16)


def test_refusals(device):
    q, k, v = leaves(*problem(device))
    with pytest.raises(falchion.Invalid, match="h_v"):
        ft.linear_attention(q, k, v[:, :, :3])
    (grad,) = torch.autograd.grad(ft.linear_attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(falchion.Unsupported, match="second derivative"):
        grad.sum().backward()


@pytest.mark.parametrize("normalise", [False, True])
def test_the_initial_state_has_the_form_that_normalise_asks_for(normalise, device):
    q, k, v = (torch.randn(2, 9, 2, 16, device=device) for _ in range(3))
    state, z = torch.randn(2, 2, 16, 16, device=device), torch.ones(2, 2, 16, device=device)
    good = [(state, z), [state, z]] if normalise else [state]
    bad = [state, (state,), (state, None)] if normalise else [(state, z), [state]]
    text = r"pair of tensors \(S, z\)" if normalise else "without normalise=True it is S alone"
    run = functools.partial(ft.linear_attention, q, k, v, normalise=normalise)
    plain = run()
    for given in good:
        assert not torch.equal(run(initial_state=given), plain)
    for given in bad:
        with pytest.raises(TypeError, match=f"initial_state.*{text}"):
            run(initial_state=given)
