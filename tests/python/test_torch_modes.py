"""falchion.torch under PyTorch's modes, and which tensors go past the operators straight to C."""

from __future__ import annotations

import pytest
# It comes before torch, since it skips this file where there is none.
from torch_support import DEVICES, causal, leaves, problem, torch
from torch.utils._python_dispatch import TorchDispatchMode

import falchion.torch as ft
from falchion.torch._eager import are_ordinary

pytestmark = pytest.mark.parametrize("device", DEVICES)


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
    state = torch.ones(2, 2, 16, 16, device=device)
    found, expected = (ft.linear_attention(x, k, v, initial_state=state) for x in (taken[0], q))
    assert torch.equal(found, expected)


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
