"""falchion.torch on tensors without memory, of the device meta, and on nested ones, which torch's own attention takes."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("falchion.torch")

import falchion  # noqa: E402
import falchion.torch as ft  # noqa: E402

META = torch.randn(2, 6, 4, 16, device="meta")
ROWS = torch.randn(10, 4, 16, device="meta")
STARTS = torch.zeros(3, dtype=torch.int64, device="meta")
CALLS = {
    "attention": lambda x: ft.attention(x, x, x, causal=True),
    "bhsd": lambda x: ft.attention(x, x, x, layout="bhsd"),
    "dropout": lambda x: ft.attention(x, x, x, dropout=0.5),
    "mask": lambda x: ft.attention(x, x, x, mask=x.new_ones(6, 6, dtype=torch.bool)),
    "sdpa": lambda x: ft.sdpa(x, x, x, is_causal=True),
    "linear": lambda x: ft.linear_attention(x, x, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_meta_has_the_shape(name):
    found = CALLS[name](META)
    want = CALLS[name](torch.zeros_like(META, device="cpu"))
    assert found.is_meta and found.shape == want.shape and found.stride() == want.stride()
    x = META.clone().requires_grad_()
    (grad,) = torch.autograd.grad(CALLS[name](x).sum(), x)
    assert grad.is_meta and grad.shape == x.shape


def test_meta_of_packed_rows():
    o, lse = ft.varlen(ROWS, ROWS, ROWS, STARTS, max_q=7, return_lse=True)
    assert o.is_meta and o.shape == ROWS.shape and lse.shape == (4, 10)
    with pytest.raises(falchion.Invalid, match="meta need max_q"):
        ft.varlen(ROWS, ROWS, ROWS, STARTS)


def test_meta_refuses_what_has_no_result():
    here = torch.zeros_like(META, device="cpu")
    cases = [
        ((META, META[:, :, :3], META[:, :, :3]), "h_q = 4 is not a multiple of h_k = 3"),
        ((META, META[..., :8], META), "do not fit"),
        ((META.double(),) * 3, "float64"),
        ((META, here, META), "k lies on cpu, but q on meta"),
        ((here, META, META), "k lies on the device meta"),
    ]
    for tensors, words in cases:
        with pytest.raises(falchion.Error, match=words):
            ft.attention(*tensors)
    linear = [
        ((META, META[:, :3], META), "do not fit"),
        ((META[:, :, :3], META[:, :, :3], META), "h_v = 4 is not a multiple of h_qk = 3"),
        ((META, here, META), "k lies on cpu, but q on meta"),
        ((META.double(),) * 3, "float64"),
    ]
    for tensors, words in linear:
        with pytest.raises(falchion.Error, match=words):
            ft.linear_attention(*tensors)
    assert ft.linear_attention(META[:, :, :2], META[:, :, :2], META).shape == META.shape
    with pytest.raises(falchion.Unsupported, match="q lies on the device meta and has no memory"):
        falchion.attention(META, META, META)


def test_a_module_on_meta():
    """As models are built before their weights are loaded."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(64, 192)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).unbind(-3)
            return ft.attention(q, k, v, causal=True).flatten(-2)

    with torch.device("meta"):
        block = Block()
        assert block(torch.randn(2, 6, 64)).shape == (2, 6, 64)


def nested(*lengths, like=None):
    rows = torch.randn(sum(lengths), 4, 16)
    starts = like.offsets() if like is not None else torch.tensor([0, *lengths]).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(rows, starts)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads_first", [False, True])
def test_nested_is_each_sequence(causal, heads_first):
    q = nested(3, 5, 1)
    k, v = nested(3, 5, 1, like=q), nested(3, 5, 1, like=q)
    if heads_first:
        o = ft.sdpa(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal).transpose(1, 2)
    else:
        o = ft.attention(q, k, v, causal=causal)
    assert o.is_nested and o.shape == q.shape
    assert (o + q).is_nested  # the lengths are those of q for torch too
    for got, *parts in zip(o.unbind(), q.unbind(), k.unbind(), v.unbind()):
        assert torch.allclose(got, ft.attention(*(x[None] for x in parts), causal=causal)[0], atol=1e-6)


def test_nested_other_lengths_of_k():
    q, k = nested(3, 5), nested(7, 2)
    v = nested(7, 2, like=k)
    o = ft.sdpa(*(x.transpose(1, 2) for x in (q, k, v)))
    for got, *parts in zip(o.unbind(), q.unbind(), k.unbind(), v.unbind()):
        want = ft.attention(*(x[None] for x in parts))[0]
        assert torch.allclose(got.transpose(0, 1), want, atol=1e-6)
    with pytest.raises(falchion.Invalid, match="k and v are nested tensors of different lengths"):
        ft.attention(q, k, nested(2, 7))


def test_nested_with_holes():
    base, starts, lengths = torch.randn(2, 6, 4, 16), torch.tensor([0, 1]), torch.tensor([3, 4])
    x = torch.nested.narrow(base, 1, starts, lengths, layout=torch.jagged)
    o = ft.attention(x, x, x)
    for got, part in zip(o.unbind(), x.unbind()):
        assert torch.allclose(got, ft.attention(*[part[None]] * 3)[0], atol=1e-6)


def test_nested_gradients_and_compile():
    q = nested(3, 5).detach().requires_grad_()
    k, v = nested(3, 5, like=q), nested(3, 5, like=q)
    (grad,) = torch.autograd.grad(ft.attention(q, k, v, causal=True).values().square().sum(), q)
    for got, *parts in zip(grad.unbind(), q.unbind(), k.unbind(), v.unbind()):
        leaf = parts[0].detach().requires_grad_()
        o = ft.attention(leaf[None], parts[1][None], parts[2][None], causal=True)
        assert torch.allclose(got, torch.autograd.grad(o.square().sum(), leaf)[0], atol=1e-5)
    torch._dynamo.reset()
    tensors = [x.detach().transpose(1, 2) for x in (q, k, v)]
    run = torch.compile(lambda *x: ft.sdpa(*x, is_causal=True), fullgraph=True, backend="aot_eager")
    assert torch.allclose(run(*tensors).values(), ft.sdpa(*tensors, is_causal=True).values(), atol=1e-6)


def test_nested_is_refused_by_name():
    x = nested(3, 5)
    heads = x.transpose(1, 2)
    strided = torch.nested.nested_tensor([torch.randn(3, 4, 16), torch.randn(5, 4, 16)])
    mask = torch.ones(5, 5, dtype=torch.bool)
    cases = [
        (lambda: falchion.attention(x, x, x), "q is a nested tensor"),
        (lambda: falchion.attention(strided, strided, strided), "q is a nested tensor"),
        (lambda: ft.attention(strided, strided, strided), "make it with layout=torch.jagged"),
        (lambda: ft.linear_attention(x, x, x), "linear_attention takes no nested tensors"),
        (lambda: ft.varlen(x, x, x, x.offsets()), "varlen takes no nested tensors"),
        (lambda: ft.attention(x, x, x, mask=mask), "mask is given with nested tensors"),
        (lambda: ft.attention(x, x, x, return_lse=True), "return_lse is given with nested tensors"),
        (lambda: ft.sdpa(heads, heads, heads, attn_mask=mask), "attn_mask is given with nested tensors"),
        (lambda: ft.attention(heads, heads, heads), "whose axes are not"),
        (lambda: ft.attention(x, torch.randn(2, 5, 4, 16), x), "k is no nested tensor"),
        (lambda: ft.attention(torch.randn(2, 5, 4, 16), x, x), "nested"),
    ]
    for run, words in cases:
        with pytest.raises(falchion.Error, match=words):
            run()


def test_deepcopy_of_a_module_with_a_plan():
    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.plan = falchion.Plan((1, 6, 4, 16), dtype="float32", causal=True)

    assert copy.deepcopy(Holder()).plan.describe() == Holder().plan.describe()
