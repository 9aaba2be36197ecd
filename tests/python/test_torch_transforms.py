"""falchion.torch under opcheck, torch.compile, export, checkpoint, torch.func and autocast."""

from __future__ import annotations

import pytest
# It comes before torch, since it skips this file where there is none.
from torch_support import DEVICES, assert_near, causal, gradients, leaves, problem, torch
from torch.library import opcheck

import falchion
import falchion.torch as ft
from falchion.torch._options import Options

pytestmark = pytest.mark.parametrize("device", DEVICES)


OPERATOR_CASES = ["plain", "bias", "alibi", "sinks", "used", "packed", "dropout"]


def operator_arguments(case, device):
    q, k, v = problem(device=device)
    more = dict.fromkeys(
        ["bias", "alibi", "sinks", "mask", "used_q", "used_k", "first_k", "cu_q", "cu_k", "rng"]
    )
    options = Options(0, 0, -1, 0, "bottom_right", 0, None, 0.0, 0.0, "bshd", "best")
    if case == "bias":
        more["bias"] = torch.randn(2, 4, 19, 19, device=device)
    if case == "alibi":
        more["alibi"] = torch.rand(1, 4, device=device)
    if case == "sinks":
        more["sinks"] = torch.randn(1, 4, device=device)
    if case == "used":
        more["used_q"] = torch.tensor([3, 19], dtype=torch.int32, device=device)
        more["used_k"] = torch.tensor([8, 9], dtype=torch.int32, device=device)
    if case == "packed":
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        more["cu_q"] = more["cu_k"] = torch.tensor([0, 20, 38], dtype=torch.int32, device=device)
        options = options._replace(max_q=20, max_k=20)
    if case == "dropout":
        more["rng"] = torch.tensor([5, 7], device=device)
        options = options._replace(dropout=0.25)
    return (q, k, v, *more.values()), options


@pytest.mark.parametrize("case", OPERATOR_CASES)
def test_opcheck(case, device):
    tensors, options = operator_arguments(case, device)
    opcheck(torch.ops.falchion.attention, (*tensors, *options))
    o, lse = torch.ops.falchion.attention(*tensors, *options)
    wanted = [True, True, True, case == "bias", case == "alibi", case == "sinks"]
    grads = (torch.randn_like(o), torch.randn_like(lse))
    arguments = (*grads, o, lse, *tensors, *options, False, wanted)
    opcheck(torch.ops.falchion.attention_backward, arguments)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_in_one_graph_with_dynamic_shapes(backend, device):
    compiled = torch.compile(causal, fullgraph=True, dynamic=True, backend=backend)
    for s in (19, 33):
        tensors = problem(s_q=s, s_k=s, device=device)
        assert torch.equal(compiled(*tensors), causal(*tensors))
        for x, y in zip(gradients(compiled, *tensors), gradients(causal, *tensors)):
            assert torch.equal(x, y)


def test_compile_with_dropout_bias_and_lse(device):
    bias = torch.randn(1, 4, 1, 19, device=device)

    def run(q, k, v):
        o, lse = ft.attention(q, k, v, bias=bias, dropout=0.3, return_lse=True)
        return o.sum() + lse.sum()

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    tensors = problem(device=device)
    torch.manual_seed(2)
    expected = gradients(run, *tensors)
    torch.manual_seed(2)
    for x, y in zip(gradients(compiled, *tensors), expected):
        assert_near(x, y)


def sdpa(q, k, v):
    return ft.sdpa(*(x.transpose(1, 2) for x in (q, k, v)))


def linear(q, k, v):
    return ft.linear_attention(q, k, v, initial_state=torch.ones(2, 2, 16, 16, device=q.device))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("run", [causal, sdpa, linear])
def test_compile_of_func_grad(run, backend, device):
    q, k, v = problem(h_q=2, device=device)

    def loss(q, k, v):
        return run(q, k, v).square().sum()

    def both(q, k, v):
        return torch.func.grad(loss, argnums=(0, 1, 2))(q, k, v)

    torch._dynamo.reset()
    compiled = torch.compile(both, backend=backend, fullgraph=True)
    for found, expected in zip(compiled(q, k, v), gradients(run, q, k, v)):
        assert expected.abs().max() > 0.1
        assert_near(found, expected)


@pytest.mark.parametrize("operator", ["attention", "linear_attention"])
def test_the_operators_themselves_are_differentiable(operator, device):
    """Under autograd and under torch.func, also where one level of it is around another."""
    q, k, v = problem(h_q=2, device=device)
    if operator == "attention":
        rest = (None,) * 10, Options(0, 0, -1, 0, "top_left", 0, None, 0.0, 0.0, "bshd", "best")
    else:
        rest = (None,) * 4, (0, "identity", False, 1e-6, None, False, "bshd", "best", 0, False)
    run = causal if operator == "attention" else ft.linear_attention

    def raw(q, k, v):
        return getattr(torch.ops.falchion, operator)(q, k, v, *rest[0], *rest[1])[0]

    expected = gradients(run, q, k, v)
    for found in (
        gradients(raw, q, k, v),
        torch.func.grad(lambda *x: raw(*x).square().sum(), argnums=(0, 1, 2))(q, k, v),
        torch.func.vmap(torch.func.grad(lambda *x: raw(*x).square().sum(), argnums=(0, 1, 2)))(
            q[:, None], k[:, None], v[:, None]
        ),
    ):
        for x, y in zip(found, expected):
            assert_near(x.reshape(y.shape), y)
    with pytest.raises(falchion.Unsupported, match="second derivative"):
        gradient = torch.func.grad(lambda q: raw(q, k, v).square().sum())
        torch.func.grad(lambda q: gradient(q).sum())(q)


def test_gradients_of_what_a_transform_does_not_see(device):
    """q, k, v need gradients and are not mapped or differentiated by torch.func themselves."""
    q, k, v = leaves(*problem(device=device))
    mask = torch.ones(19, 19, dtype=torch.bool, device=device)
    xs = torch.arange(1.0, 4.0, device=device)
    for more in ({}, {"mask": mask}):
        expected = ft.attention(q, k, v, **more).sum()
        found = torch.func.vmap(lambda x: x * ft.attention(q, k, v, **more).sum())(xs)
        assert_near(found, xs * expected)
        grads = torch.autograd.grad(found.sum(), (q, k, v))
        for x, y in zip(grads, torch.autograd.grad(expected, (q, k, v))):
            assert_near(x, xs.sum() * y)
        found = torch.func.grad(lambda x: x * ft.attention(q, k, v, **more).sum())(xs[0])
        assert_near(found, expected)


def test_compile_under_autocast(device):
    def run(q, k, v):
        with torch.autocast(device, dtype=torch.bfloat16):
            return causal(q, k, v)

    tensors = problem(device=device)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert compiled(*tensors).dtype == torch.bfloat16
    assert torch.equal(compiled(*tensors), run(*tensors))
    for x, y in zip(gradients(compiled, *tensors), gradients(run, *tensors)):
        assert torch.equal(x, y)


def test_export(device):
    class Layer(torch.nn.Module):
        def forward(self, q, k, v):
            return causal(q, k, v)

    tensors = problem(device=device)
    s = torch.export.Dim("s", min=2, max=512)
    program = torch.export.export(Layer(), tensors, dynamic_shapes=({1: s},) * 3)
    longer = problem(s_q=40, s_k=40, device=device)
    assert torch.equal(program.module()(*longer), causal(*longer))
    assert torch.equal(program.module()(*leaves(*longer)), causal(*longer))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("run", [causal, ft.linear_attention, lambda *x: ft.sdpa(*x)])
def test_jit_trace(run, device):
    """What goes straight to C leaves nothing in a trace, which then gave memory that nobody wrote."""
    first, other = problem(device=device)[0], problem(device=device, seed=1)[0]
    traced = torch.jit.trace(run, (first, first, first), check_trace=False)
    assert torch.equal(traced(other, other, other), run(other, other, other))
    assert all(map(torch.equal, gradients(traced, *[other] * 3), gradients(run, *[other] * 3)))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_repeats_dropout(use_reentrant, device):
    def run(q, k, v):
        return ft.attention(q, k, v, dropout=0.3)

    def again(q, k, v):
        return torch.utils.checkpoint.checkpoint(run, q, k, v, use_reentrant=use_reentrant)

    tensors = problem(device=device)
    torch.manual_seed(4)
    expected = gradients(run, *tensors)
    torch.manual_seed(4)
    assert all(torch.equal(x, y) for x, y in zip(gradients(again, *tensors), expected))


def test_func_grad(device):
    tensors = problem(device=device)
    found = torch.func.grad(lambda *x: causal(*x).square().sum(), argnums=(0, 1, 2))(*tensors)
    assert all(torch.equal(x, y) for x, y in zip(found, gradients(causal, *tensors)))
    nested = torch.func.grad(
        lambda x: torch.func.grad(lambda y: causal(y, y, y).square().sum())(x).sum()
    )
    with pytest.raises(falchion.Unsupported, match="second derivative"):
        nested(problem(h_k=4, device=device)[0])


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (2, 0, None), (0, None, None)])
def test_vmap(in_dims, device):
    tensors = problem(device=device)
    many = [
        torch.stack([x, -x, x.flip(1)], dim) if dim is not None else x
        for x, dim in zip(tensors, in_dims)
    ]

    def one(n):
        return [x.select(dim, n) if dim is not None else x for x, dim in zip(many, in_dims)]

    found = torch.vmap(causal, in_dims)(*many)
    for n in range(3):
        assert_near(found[n], causal(*one(n)))
    grad = torch.func.grad(lambda *x: causal(*x).square().sum(), argnums=(0, 1, 2))
    found = torch.vmap(grad, in_dims)(*many)
    for n in range(3):
        for x, y in zip(found, gradients(causal, *one(n))):
            assert_near(x[n], y)


def test_the_gradient_of_vmap(device):
    q, k, v = problem(device=device)
    many = torch.stack([q, -q])

    def run(q, k, v):
        return torch.vmap(causal, (0, None, None))(q, k, v)

    def loop(q, k, v):
        return torch.stack([causal(x, k, v) for x in q])

    for x, y in zip(gradients(run, many, k, v), gradients(loop, many, k, v)):
        assert_near(x, y)


def test_vmap_over_a_shared_bias_and_lengths(device):
    q, k, v = problem(device=device)
    bias = torch.randn(1, 4, 1, 19, device=device)
    used = torch.tensor([4, 19], dtype=torch.int32, device=device)

    def run(q, bias):
        return ft.attention(q, k, v, bias=bias, used_k=used)

    many = torch.stack([q, -q])
    found = torch.vmap(run, (0, None))(many, bias)
    assert_near(found[1], run(-q, bias))
    grad = torch.func.grad(lambda q, b: run(q, b).square().sum(), argnums=1)
    found = torch.vmap(grad, (0, None))(many, bias)
    (leaf,) = leaves(bias)
    run(-q, leaf).square().sum().backward()
    assert found.shape == (2, *bias.shape)
    assert_near(found[1], leaf.grad)


def test_vmap_refuses_what_it_cannot_keep(device):
    q, k, v = problem(device=device)
    cu = torch.tensor([0, 19], dtype=torch.int32, device=device)

    def packed(q, k, v):
        return ft.varlen(q, k, v, cu, max_q=19)

    with pytest.raises(falchion.Unsupported, match="cu_seqlens"):
        torch.vmap(packed)(q, k, v)

    def dropped(q, k, v):
        return ft.attention(q[None], k[None], v[None], dropout=0.5)

    with pytest.raises(falchion.Unsupported, match="same"):
        torch.vmap(dropped, randomness="same")(q, k, v)
    found = torch.vmap(dropped, randomness="different")(torch.stack([q[0]] * 2), k, v)
    assert found.shape == (2, 1, *q.shape[1:])
