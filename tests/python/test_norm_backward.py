"""Gradients of layer_norm and rms_norm: of falchion and through autograd in falchion.torch, beside torch in float64."""

import numpy as np
import pytest

import falchion

torch = pytest.importorskip("torch")
import falchion.torch as fal  # noqa: E402

KINDS = ("layer", "rms")


def definition(kind, x, weight, bias, eps):
    d = (x.shape[-1],)
    if kind == "layer":
        y = torch.nn.functional.layer_norm(x, d, None, None, eps)
    else:
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y * (1 if weight is None else weight) + (0 if bias is None else bias)


def of_falchion(kind):
    return falchion.layer_norm_backward if kind == "layer" else falchion.rms_norm_backward


def of_torch(kind):
    return fal.layer_norm if kind == "layer" else fal.rms_norm


def near(found, exact, share):
    limit = share * max(exact.abs().max().item(), 1e-6)
    assert (torch.as_tensor(found).double() - exact).abs().max().item() <= limit


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape, of_weight", [((5, 96), (96,)), ((2, 7, 3, 40), (3, 40)), ((2, 4, 33), (2, 1, 33)), ((64,), (64,))])
def test_beside_float64(kind, shape, of_weight):
    torch.manual_seed(3)
    x, weight, bias = (torch.randn(s, dtype=torch.float64).float().double().requires_grad_() for s in (shape, of_weight, of_weight))
    grad_y = torch.randn(shape).double()
    definition(kind, x, weight, bias, 1e-5).backward(grad_y)
    arrays = [y.detach().float().numpy() for y in (grad_y, x, weight, bias)]
    found = of_falchion(kind)(*arrays[:3], bias=arrays[3])
    for grad, of in zip(found, (x, weight, bias)):
        assert grad.shape == of.shape
        near(grad, of.grad, 2e-6)


def test_what_is_not_there_is_none():
    x = np.random.rand(3, 8).astype(np.float32)
    grad_x, grad_weight, grad_bias = falchion.rms_norm_backward(x, x)
    assert grad_x.shape == x.shape and grad_weight is None and grad_bias is None
    more = np.ones_like(x)
    with_more = falchion.rms_norm_backward(x, x, grad_residual_out=more)[0]
    np.testing.assert_allclose(with_more, grad_x + 1, rtol=1e-6)


def test_bad_arguments_are_refused():
    x = np.zeros((3, 8), np.float32)
    with pytest.raises(falchion.Invalid, match="grad_y"):
        falchion.layer_norm_backward(x[:2], x)
    with pytest.raises(falchion.Invalid, match="eps"):
        falchion.layer_norm_backward(x, x, eps=-1.0)
    with pytest.raises(falchion.Invalid, match="zero_centered"):
        falchion.layer_norm_backward(x, x, zero_centered=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("zero_centered", (False, True))
def test_autograd_with_a_residual(kind, dtype, zero_centered):
    torch.manual_seed(4)
    make = lambda *shape: torch.randn(*shape).to(dtype).requires_grad_()
    x, residual, weight, bias = make(4, 9, 48), make(4, 9, 48), make(48), make(48)
    grad_y, grad_total = torch.randn(4, 9, 48).to(dtype), torch.randn(4, 9, 48).to(dtype)
    y, total = of_torch(kind)(x, weight, bias=bias, residual=residual, zero_centered=zero_centered)
    torch.autograd.backward([y, total], [grad_y, grad_total])
    v, w, b = (t.detach().double().requires_grad_() for t in (total, weight, bias))
    exact = definition(kind, v, w + 1 if zero_centered else w, b, 1e-5)
    exact.backward(grad_y.double())
    share = 2e-6 if dtype == torch.float32 else 2**-7
    near(y.detach(), exact.detach(), share if dtype == torch.float32 else 2**-5)
    for found, of in ((x.grad, v.grad + grad_total.double()), (weight.grad, w.grad), (bias.grad, b.grad)):
        assert found.dtype == dtype
        near(found, of, share)
    assert torch.equal(x.grad, residual.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_a_residual_of_float32_beside_bf16(kind):
    x = torch.randn(6, 32).bfloat16().requires_grad_()
    residual = torch.randn(6, 32).requires_grad_()
    y, total = of_torch(kind)(x, residual=residual)
    assert y.dtype == torch.bfloat16 and total.dtype == torch.float32
    y.sum().backward()
    assert x.grad.dtype == torch.bfloat16 and residual.grad.dtype == torch.float32
    assert torch.equal(x.grad, residual.grad.bfloat16())


def test_only_what_is_asked_for():
    x, weight = torch.randn(5, 16), torch.randn(16, requires_grad=True)
    fal.layer_norm(x, weight).square().sum().backward()
    assert x.grad is None and weight.grad.shape == (16,)
    total = torch.randn(5, 16, requires_grad=True)
    fal.rms_norm(x, residual=total)[1].sum().backward()  # the sum alone
    assert torch.equal(total.grad, torch.ones(5, 16))


def test_the_operators():
    x, weight, bias = torch.randn(3, 5, 16, requires_grad=True), torch.randn(16, requires_grad=True), torch.randn(16)
    options = ("layer", 1e-5, False, "best")
    for residual in (None, torch.randn(3, 5, 16)):
        torch.library.opcheck(torch.ops.falchion.norm, (x, weight, bias, residual, *options))
    plain = (torch.randn(3, 5, 16), None, x.detach(), weight.detach(), None, *options)
    torch.library.opcheck(torch.ops.falchion.norm_backward, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_func(kind):
    x, weight = torch.randn(4, 5, 16), torch.randn(16)
    norm = of_torch(kind)
    loss = lambda x, weight: norm(x, weight).pow(3).sum()
    by_one = [torch.func.grad(loss, (0, 1))(row, weight) for row in x]
    mapped = torch.func.vmap(torch.func.grad(loss, (0, 1)), (0, None))(x, weight)
    for i, name in enumerate(("x", "weight")):
        torch.testing.assert_close(mapped[i], torch.stack([row[i] for row in by_one]), msg=name)
    exact = lambda x, weight: definition(kind, x, weight, None, 1e-5).pow(3).sum()
    wanted = torch.func.grad(exact, (0, 1))(x.double(), weight.double())
    for found, of in zip(torch.func.grad(loss, (0, 1))(x, weight), wanted):
        near(found, of, 1e-5)


def test_there_is_no_second_derivative():
    x = torch.randn(4, 16, requires_grad=True)
    (grad,) = torch.autograd.grad(fal.rms_norm(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(falchion.Unsupported, match="second derivative"):
        grad.sum().backward()
