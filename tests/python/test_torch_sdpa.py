"""falchion.torch.sdpa beside torch's scaled_dot_product_attention: its math backend in float64 is
the reference."""

from __future__ import annotations

import pytest
# It comes before torch, since it skips this file where there is none.
from torch_support import DEVICES, DTYPES, assert_near, leaves, torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import falchion
import falchion.torch as ft

pytestmark = pytest.mark.parametrize("device", DEVICES)

# name, shapes of query, key and value, options; "bool" and "float" masks by their shape
CASES = [
    ("four_axes", [(2, 3, 7, 16)] * 3, {}),
    ("causal", [(2, 3, 7, 16)] * 3, {"is_causal": True}),
    ("causal_is_top_left", [(2, 3, 5, 16), (2, 3, 9, 16), (2, 3, 9, 16)], {"is_causal": True}),
    ("more_queries_than_keys", [(2, 3, 9, 16), (2, 3, 5, 16), (2, 3, 5, 16)], {"is_causal": True}),
    ("three_axes", [(3, 7, 16)] * 3, {"is_causal": True}),
    ("two_axes", [(7, 16)] * 3, {}),
    ("five_axes", [(2, 2, 3, 7, 16)] * 3, {"is_causal": True}),
    ("broadcast_batch", [(4, 3, 7, 16), (1, 3, 7, 16), (4, 3, 7, 16)], {}),
    ("broadcast_heads", [(2, 3, 7, 16), (2, 1, 7, 16), (2, 1, 7, 16)], {}),
    ("gqa", [(2, 6, 7, 16), (2, 2, 7, 16), (2, 2, 7, 16)], {"enable_gqa": True, "is_causal": True}),
    ("gqa_more_values", [(2, 6, 7, 16), (2, 1, 7, 16), (2, 3, 7, 24)], {"enable_gqa": True}),
    ("gqa_odd_values", [(2, 6, 7, 16), (2, 3, 7, 16), (2, 2, 7, 16)], {"enable_gqa": True}),
    ("d_v", [(2, 3, 7, 16), (2, 3, 7, 16), (2, 3, 7, 24)], {}),
    ("scale", [(2, 3, 7, 16)] * 3, {"scale": 0.7}),
    ("scale_of_zero", [(2, 3, 7, 16)] * 3, {"scale": 0.0}),
    ("bool_mask", [(2, 3, 7, 16)] * 3, {"bool": (7, 7)}),
    ("bool_mask_of_keys", [(2, 3, 7, 16)] * 3, {"bool": (2, 1, 1, 7)}),
    ("bool_mask_of_rows", [(2, 3, 7, 16)] * 3, {"bool": (2, 1, 7, 1)}),
    ("float_mask", [(2, 3, 7, 16)] * 3, {"float": (2, 3, 7, 7)}),
    ("float_mask_shared", [(2, 3, 7, 16)] * 3, {"float": (1, 1, 7, 7)}),
    ("float_mask_of_keys", [(2, 3, 7, 16)] * 3, {"float": (7,)}),
    ("float_mask_of_rows", [(2, 3, 7, 16)] * 3, {"float": (3, 7, 1)}),
    ("three_axes_mask", [(3, 7, 16)] * 3, {"bool": (3, 7, 7)}),
    ("five_axes_mask", [(2, 2, 3, 7, 16)] * 3, {"float": (2, 1, 1, 7, 7)}),
]


def arguments(shapes, options, dtype, device):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
    options = dict(options)
    mask = None
    if "bool" in options:
        mask = (torch.rand(options.pop("bool"), generator=generator) < 0.7).to(device)
    if "float" in options:
        mask = torch.randn(options.pop("float"), generator=generator).to(device, dtype)
    return tensors, mask, options


def math_backend(tensors, mask, options):
    doubles = [x.double() for x in tensors]
    mask = mask.double() if mask is not None and mask.is_floating_point() else mask
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(*doubles, attn_mask=mask, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("name, shapes, options", CASES, ids=[c[0] for c in CASES])
def test_is_torchs(name, shapes, options, dtype, device):
    tensors, mask, options = arguments(shapes, options, dtype, device)
    ours, theirs = leaves(*tensors), leaves(*tensors)
    our_mask = their_mask = mask
    if mask is not None and mask.is_floating_point():
        (our_mask,), (their_mask,) = leaves(mask), leaves(mask)
    o = ft.sdpa(*ours, attn_mask=our_mask, **options)
    expected = math_backend(theirs, their_mask, options)
    assert_near(o, expected, dtype, "o")
    o.square().sum().backward()
    expected.square().sum().backward()
    for what, x, y in zip("qkv", ours, theirs):
        assert_near(x.grad, y.grad, dtype, f"grad_{what}")
    if our_mask is not None and our_mask.is_floating_point():
        assert our_mask.grad.dtype == our_mask.dtype
        assert_near(our_mask.grad, their_mask.grad, dtype, "grad of the mask")
    with torch.no_grad():
        assert torch.equal(ft.sdpa(*tensors, attn_mask=mask, **options), o)


def test_a_row_that_sees_no_key_is_zero(device):
    q, k, v = (torch.randn(1, 2, 4, 16, device=device) for _ in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool, device=device)
    mask[1] = False
    o = ft.sdpa(q, k, v, attn_mask=mask)
    assert torch.equal(o[:, :, 1], torch.zeros_like(o[:, :, 1])) and o.isfinite().all()


def test_a_last_axis_that_is_not_contiguous(device):
    q, k, v = (torch.randn(1, 2, 16, 9, device=device).transpose(2, 3) for _ in range(3))
    assert_near(ft.sdpa(q, k, v), math_backend((q, k, v), None, {}))


def test_a_lazily_negated_tensor(device):
    z = torch.randn(1, 2, 9, 16, dtype=torch.complex64, device=device)
    q = z.conj().imag
    assert q.is_neg()
    k = v = z.imag.contiguous()
    assert_near(ft.sdpa(q, k, v), math_backend((q.resolve_neg(), k, v), None, {}))


def test_dropout_has_the_mean_of_no_dropout(device):
    q, k, v = (torch.randn(1, 1, 32, 16, device=device) for _ in range(3))
    torch.manual_seed(0)
    mean = sum(ft.sdpa(q, k, v, dropout_p=0.2) for _ in range(400)) / 400
    assert (mean - ft.sdpa(q, k, v)).abs().mean() < 0.02


def test_autocast_casts_as_torch_does(device):
    q, k, v = leaves(*(torch.randn(2, 2, 9, 16, device=device) for _ in range(3)))
    mask = torch.randn(9, 9, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        o = ft.sdpa(q, k, v, attn_mask=mask)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert o.dtype == expected.dtype == torch.bfloat16
    assert_near(o, expected, torch.bfloat16)
    o.float().sum().backward()
    assert q.grad.dtype == torch.float32
    with torch.autocast(device, enabled=False):
        assert ft.sdpa(q, k, v).dtype == torch.float32


REFUSED = [
    (
        [(2, 3, 7, 16)] * 3,
        {"is_causal": True, "attn_mask": torch.ones(7, 7)},
        ["is_causal", "attn_mask"],
    ),
    ([(2, 4, 7, 16), (2, 2, 7, 16), (2, 2, 7, 16)], {}, ["enable_gqa", "4", "2"]),
    ([(2, 4, 7, 16), (2, 3, 7, 16), (2, 3, 7, 16)], {"enable_gqa": True}, ["enable_gqa", "4", "3"]),
    ([(2, 4, 7, 16), (2, 2, 7, 16), (2, 3, 7, 16)], {"enable_gqa": True}, ["4 heads", "value's 3"]),
    ([(2, 3, 7, 16)] * 3, {"attn_mask": torch.ones(6, 7)}, ["attn_mask", "(6, 7)"]),
    (
        [(2, 3, 7, 16)] * 3,
        {"attn_mask": torch.ones(7, 7, dtype=torch.int32)},
        ["attn_mask", "int32"],
    ),
    ([(16,)] * 3, {}, ["axes", "2"]),
]


@pytest.mark.parametrize("shapes, options, words", REFUSED)
def test_refusals(shapes, options, words, device):
    options = {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in options.items()}
    with pytest.raises(falchion.Invalid) as caught:
        ft.sdpa(*(torch.randn(shape, device=device) for shape in shapes), **options)
    for word in words:
        assert word in str(caught.value)


def test_float64_is_refused(device):
    q = torch.randn(1, 1, 4, 8, dtype=torch.float64, device=device)
    with pytest.raises((falchion.Error, TypeError), match="float64"):
        ft.sdpa(q, q, q)


@pytest.mark.parametrize(
    "shapes, options",
    [
        ([(2, 3, 7, 16)] * 3, {"attn_mask": torch.ones(6, 7)}),
        ([(2, 3, 7, 16)] * 3, {"attn_mask": torch.ones(7, 7, dtype=torch.int32)}),
        ([(2, 4, 7, 16), (2, 2, 7, 16), (2, 2, 7, 16)], {}),
        ([(2, 4, 7, 16), (2, 3, 7, 16), (2, 3, 7, 16)], {"enable_gqa": True}),
        ([(2, 3, 7, 16), (2, 3, 7, 24), (2, 3, 7, 16)], {}),
        ([(2, 3, 7, 16), (3, 3, 7, 16), (2, 3, 7, 16)], {}),
        ([(2, 3, 7, 16)] * 3, {"dropout_p": 1.5}),
        ([(2, 3, 7, 16)] * 3, {"key": torch.float16}),
    ],
)
def test_what_torch_refuses_by_a_runtime_error_is_one_here(shapes, options, device):
    options = {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in options.items()}
    q, k, v = (torch.randn(shape, device=device) for shape in shapes)
    k = k.to(options.pop("key", k.dtype))
    if device == "cpu":  # on a GPU torch takes a share of 1.5
        with pytest.raises(RuntimeError):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    with pytest.raises(RuntimeError) as caught:
        ft.sdpa(q, k, v, **options)
    assert isinstance(caught.value, falchion.Error)
    if isinstance(caught.value, falchion.Invalid):
        assert isinstance(caught.value, ValueError) and caught.value.code == "invalid"
