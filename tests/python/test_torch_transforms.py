"""falchion.torch under opcheck, torch.compile, export, checkpoint, torch.func, autocast and
modes."""

from __future__ import annotations

import pytest
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch_support import DEVICES, assert_near, leaves, problem, torch

import falchion
import falchion.torch as ft
from falchion.torch._eager import are_ordinary
from falchion.torch._options import Options

pytestmark = pytest.mark.parametrize("device", DEVICES)


def causal(q, k, v):
    return ft.attention(q, k, v, causal=True)


def gradients(run, *tensors):
    tensors = leaves(*tensors)
    run(*tensors).square().sum().backward()
    return [x.grad for x in tensors]


OPERATOR_CASES = ["plain", "bias", "alibi", "used", "packed", "dropout"]


def operator_arguments(case, device):
    q, k, v = problem(device=device)
    more = dict.fromkeys(
        ["bias", "alibi", "mask", "used_q", "used_k", "first_k", "cu_q", "cu_k", "rng"]
    )
    options = Options(0, 0, -1, 0, "bottom_right", None, 0.0, 0.0, "bshd", "best")
    if case == "bias":
        more["bias"] = torch.randn(2, 4, 19, 19, device=device)
    if case == "alibi":
        more["alibi"] = torch.rand(1, 4, device=device)
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
    wanted = [True, True, True, case == "bias", case == "alibi"]
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
        rest = (None,) * 9, Options(0, 0, -1, 0, "top_left", None, 0.0, 0.0, "bshd", "best")
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


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def test_modes_see_the_operator(device):
    tensors = problem(device=device)
    with Names() as names:
        o = causal(*tensors)
    assert "falchion::attention" in names.seen
    assert torch.equal(o, causal(*tensors))


def test_fake_tensors(device):
    with torch._subclasses.FakeTensorMode():
        q = torch.empty(2, 9, 4, 16, device=device, requires_grad=True)
        o, lse = ft.attention(q, q, q, causal=True, return_lse=True)
        o.sum().backward()
    assert o.shape == q.shape and lse.shape == (2, 4, 9) and q.grad.shape == q.shape


class FunctionNames(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Sub(torch.Tensor):
    pass


def test_what_goes_past_the_operators(device):
    q, k, v = problem(device=device)

    def is_plain(x):  # wherever it stands among the tensors
        found = {
            are_ordinary(x),
            are_ordinary(x, None, q),
            are_ordinary(q, x),
            are_ordinary(None, q, x),
        }
        assert len(found) == 1
        return found.pop()

    assert are_ordinary(q, k, v, None) and is_plain(torch.nn.Parameter(q, requires_grad=False))
    assert not is_plain(q.as_subclass(Sub))
    assert not is_plain(torch.randn(4, dtype=torch.complex64).conj().imag)
    with torch.inference_mode():
        assert is_plain(q) and is_plain(torch.ones(2, device=device))
    with torch.autograd.forward_ad.dual_level():
        assert not is_plain(q)
    with Names():
        assert not is_plain(q)
    with torch.device(device):  # a mode that only says where new tensors are made
        assert is_plain(q)
        with FunctionNames():
            assert not is_plain(q)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(q)
    assert not is_plain(fake)
    seen = []
    torch.vmap(lambda x: seen.append(is_plain(x)) or x)(q)
    torch.func.grad(lambda x: seen.append(is_plain(x)) or x.sum())(q)
    assert seen == [False, False]


def test_a_tensor_that_was_taken_out_of_a_transform(device):
    """It wraps another one, and has no memory of its own; torch's functions look through it."""
    q, k, v = problem(h_q=2, device=device)
    taken = []
    torch.func.grad(lambda x: taken.append(x) or x.sum())(q)
    assert not are_ordinary(taken[0])
    assert torch.equal(causal(taken[0], k, v), causal(q, k, v))
    (leaf,) = leaves(v)
    o = causal(taken[0], k, leaf)
    assert torch.equal(o, causal(q, k, v)) and o.requires_grad
    assert torch.equal(linear(taken[0], k, v), linear(q, k, v))


class Orders(TorchDispatchMode):
    """Notes any_order of each backward pass."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name() == "falchion::attention_backward":
            self.seen.append(args[-2])
        return func(*args, **(kwargs or {}))


def test_deterministic_algorithms_switch_any_order_off(device):
    def orders():
        with Orders() as mode:
            ft.attention(*leaves(*problem(device=device)), any_order=True).sum().backward()
        return mode.seen

    assert orders() == [True]
    torch.use_deterministic_algorithms(True)
    try:
        assert orders() == [False]
    finally:
        torch.use_deterministic_algorithms(False)
