"""falchion.flash_attn against the definition: FlashAttention-2's and 3's signatures and meaning."""

from __future__ import annotations

import inspect
import sys

import pytest
from torch_support import DEVICES, assert_near, definition, leaves, problem, torch

import falchion
import falchion.flash_attn as fa
from falchion.flash_attn import v3
from falchion.flash_attn.bert_padding import pad_input, unpad_input
from falchion.flash_attn.rotary import apply_rotary_emb

on_devices = pytest.mark.parametrize("device", DEVICES)

OPTIONS = [
    {},
    {"causal": True},
    {"window_size": (4, 2)},
    {"window_size": (3, -1), "causal": True},
    {"softmax_scale": 0.4, "softcap": 3.0},
    {"softmax_scale": 0.0},
]


def options_of(causal=False, window_size=(-1, -1), softmax_scale=None, softcap=0.0):
    """The same options for the definition."""
    left, right = (None if side < 0 else side for side in window_size)
    window = None if left is None and right is None else (left, right)
    band = {"causal": "bottom_right" if causal else False, "window": window}
    return {**band, "scale": softmax_scale, "softcap": softcap}


def assert_gradients_near(ours, o, theirs, expected):
    o.square().sum().backward()
    expected.square().sum().backward()
    for i, (x, y) in enumerate(zip(ours, theirs)):
        assert_near(x.grad, y.grad, what=f"gradient {i}")


@on_devices
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("s_q, s_k", [(19, 19), (7, 19), (19, 7)])
def test_func(options, s_q, s_k, device):
    tensors = problem(s_q=s_q, s_k=s_k, device=device)
    ours, theirs = leaves(*tensors), leaves(*tensors)
    o, lse, nothing = fa.flash_attn_func(*ours, **options, return_attn_probs=True)
    expected, expected_lse = definition(*theirs, **options_of(**options))
    assert_near(o, expected, what="o")
    assert_near(lse, expected_lse, what="lse")
    assert nothing.numel() == 0
    assert torch.equal(fa.flash_attn_func(*tensors, **options), o)
    assert_gradients_near(ours, o, theirs, expected)
    assert torch.equal(v3.flash_attn_func(*tensors, **options), o)
    assert torch.equal(v3.flash_attn_func(*tensors, **options, return_attn_probs=True)[1], lse)


@on_devices
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_alibi(shape, device):
    tensors = problem(s_q=9, device=device)
    slopes = torch.rand(shape, device=device)
    o = fa.flash_attn_func(*tensors, causal=True, alibi_slopes=slopes)
    assert_near(o, definition(*tensors, causal="bottom_right", alibi=slopes)[0])


@on_devices
def test_packed_tensors(device):
    q, k, v = problem(h_k=4, device=device)
    expected = fa.flash_attn_func(q, k, v, causal=True)
    assert torch.equal(
        fa.flash_attn_kvpacked_func(q, torch.stack([k, v], 2), causal=True), expected
    )
    (qkv,) = leaves(torch.stack([q, k, v], 2))
    o = fa.flash_attn_qkvpacked_func(qkv, causal=True)
    assert torch.equal(o, expected)
    o.square().sum().backward()
    parts = leaves(q, k, v)
    fa.flash_attn_func(*parts, causal=True).square().sum().backward()
    for i, x in enumerate(parts):
        assert torch.equal(qkv.grad[:, :, i], x.grad)
    assert torch.equal(v3.flash_attn_qkvpacked_func(qkv, causal=True), expected)
    flat = torch.cat([q, k, v], 2)
    assert torch.equal(v3.flash_attn_qkvpacked_func(flat, causal=True, num_heads_q=4), expected)


def unpadded(device):
    """Padded tensors, their masks, and the packed tensors with cu_seqlens and longest lengths."""
    tensors = problem(h_k=4, device=device)
    row = torch.arange(19, device=device)
    masks = [row < torch.tensor(ends, device=device)[:, None] for ends in ([12, 19], [15, 4])]
    masks = [masks[0], masks[1], masks[1]]
    found = [unpad_input(x, mask) for x, mask in zip(tensors, masks)]
    rows = [x[0] for x in found]
    return tensors, masks, found, (*rows, found[0][2], found[1][2], found[0][3], found[1][3])


@on_devices
@pytest.mark.parametrize("options", OPTIONS)
def test_varlen(options, device):
    tensors, masks, found, arguments = unpadded(device)
    ours = leaves(*arguments[:3])
    o = fa.flash_attn_varlen_func(*ours, *arguments[3:], **options)
    o = pad_input(o, found[0][1], 2, 19)
    theirs = leaves(*tensors)
    parts = []
    for i, (n_q, n_k) in enumerate([(12, 15), (19, 4)]):
        part = [x[i : i + 1, :n] for x, n in zip(theirs, (n_q, n_k, n_k))]
        whole = definition(*part, **options_of(**options))[0]
        parts.append(torch.nn.functional.pad(whole, (0, 0, 0, 0, 0, 19 - n_q)))
    expected = torch.cat(parts)
    assert_near(o, expected)
    o.square().sum().backward()
    expected.square().sum().backward()
    for x, y, (_, places, *_) in zip(ours, theirs, found):
        assert_near(pad_input(x.grad, places, 2, 19), y.grad)
    plain = fa.flash_attn_varlen_func(*arguments, **options)
    assert torch.equal(v3.flash_attn_varlen_func(*arguments, **options), plain)
    q, k, v, *lengths = arguments
    kv = torch.stack([k, v], 1)
    assert torch.equal(fa.flash_attn_varlen_kvpacked_func(q, kv, *lengths, **options), plain)


@on_devices
def test_varlen_qkvpacked_and_used_lengths(device):
    qkv = torch.randn(20, 3, 4, 16, device=device)
    cu = torch.tensor([0, 8, 20], dtype=torch.int32, device=device)
    o = fa.flash_attn_varlen_qkvpacked_func(qkv, cu, 12, causal=True)
    assert torch.equal(o, fa.flash_attn_varlen_func(*qkv.unbind(1), cu, cu, 12, 12, causal=True))
    used = torch.tensor([5, 12], dtype=torch.int32, device=device)
    o = v3.flash_attn_varlen_func(*qkv.unbind(1), cu, cu, 12, 12, seqused_q=used, seqused_k=used)
    expected = definition(*(x[None, :5] for x in qkv.unbind(1)))[0][0]
    assert_near(o[:5], expected)
    assert torch.equal(o[5:8], torch.zeros_like(o[5:8]))


@on_devices
@pytest.mark.parametrize("packed", [False, True])
def test_s_dmask_says_what_was_dropped(packed, device):
    q, k, v = problem(s_q=30, s_k=300, h_k=4, device=device)
    torch.manual_seed(4)
    if packed:
        cu_q = torch.tensor([0, 30, 60], dtype=torch.int32, device=device)
        flat = [x.flatten(0, 1) for x in (q, k, v)]
        o, lse, s = fa.flash_attn_varlen_func(
            *flat, cu_q, cu_q * 10, 30, 300, 0.3, causal=True, return_attn_probs=True
        )
        o, lse = o.unflatten(0, (2, 30)), lse.unflatten(1, (2, 30)).transpose(0, 1)
    else:
        o, lse, s = fa.flash_attn_func(q, k, v, 0.3, causal=True, return_attn_probs=True)
    after = torch.rand(1, device=device)
    assert s.shape == (2, 4, 30, 300)
    scores = torch.einsum("bthd,bshd->bhts", q, k) / 4
    seen = torch.ones(30, 300, device=device).tril(270).bool()
    scores = scores.masked_fill(~seen, -torch.inf)
    largest = scores.amax(-1, keepdim=True)
    assert_near(s.abs(), (scores - largest).exp(), torch.float16, "|S|")
    kept = s >= 0
    share = (~kept).sum() / seen.sum() / 8
    assert abs(share - 0.3) < 0.01
    p = s.abs() * (largest - lse[..., None]).exp()
    expected = torch.einsum("bhts,bshd->bthd", p * kept / 0.7, v)
    assert_near(o, expected, torch.float16, "o from S")
    torch.manual_seed(4)
    fa.flash_attn_func(q, k, v, 0.3, causal=True)
    assert torch.equal(torch.rand(1, device=device), after), "the generator went on by one draw"


REFUSED = [
    (
        lambda q, i: fa.flash_attn_with_kvcache(q, q, q, block_table=i, cache_batch_idx=i),
        "block_table",
    ),
    (lambda q, i: fa.flash_attn_with_kvcache(q, q, q, k=q), "k and v"),
    (lambda q, i: fa.flash_attn_with_kvcache(q, q, q, k=q, v=q), "cache_seqlens"),
    (lambda q, i: fa.flash_attn_with_kvcache(q, q, q, rotary_cos=q, rotary_sin=q), "rotary_cos"),
    (lambda q, i: fa.flash_attn_kvpacked_func(q, q), "kv has the shape"),
    (lambda q, i: v3.flash_attn_func(q, q, q, qv=q), "qv"),
    (lambda q, i: v3.flash_attn_func(q, q, q, k_descale=q), "k_descale"),
    (lambda q, i: v3.flash_attn_func(q, q, q, attention_chunk=4), "attention_chunk = 4"),
    (lambda q, i: v3.flash_attn_with_kvcache(q, q, q, qv=q), "qv"),
    (lambda q, i: v3.flash_attn_with_kvcache(q[0], q, q, cu_seqlens_q=i), "max_seqlen_q"),
    (lambda q, i: v3.flash_attn_qkvpacked_func(q), "num_heads_q"),
]


@pytest.mark.parametrize("call, words", REFUSED, ids=[f"{i}-{r[1]}" for i, r in enumerate(REFUSED)])
def test_refusals(call, words):
    with pytest.raises(falchion.Error, match=words):
        call(torch.randn(1, 4, 2, 16), torch.tensor([0, 4], dtype=torch.int32))


# The order of the arguments is what callers rely on; this is that of flash_attn 2.8.
SCORE = "softmax_scale causal window_size softcap"
SIGNATURES = {
    "flash_attn_func": f"q k v dropout_p {SCORE} alibi_slopes deterministic return_attn_probs",
    "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p "
    f"{SCORE} alibi_slopes deterministic return_attn_probs block_table",
    "flash_attn_with_kvcache": "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens "
    f"cache_batch_idx cache_leftpad block_table {SCORE} rotary_interleaved alibi_slopes "
    "num_splits return_softmax_lse",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    assert " ".join(inspect.signature(getattr(fa, name)).parameters) == SIGNATURES[name]


def test_install_is_on_request_only():
    assert "flash_attn" not in sys.modules
    fa.install()
    try:
        import flash_attn
        from flash_attn.bert_padding import pad_input as pad
        from flash_attn.flash_attn_interface import USE_TRITON_ROCM, _flash_attn_varlen_forward
        from flash_attn.flash_attn_interface import _get_block_size_n, flash_attn_func, flash_attn_gpu
        from flash_attn.layers.rotary import apply_rotary_emb as rotary

        assert flash_attn is fa and flash_attn_func is fa.flash_attn_func
        assert not USE_TRITON_ROCM and callable(_flash_attn_varlen_forward)
        assert sys.modules["flash_attn_2_cuda"] is flash_attn_gpu
        assert pad is pad_input and rotary is apply_rotary_emb
        assert _get_block_size_n("cuda", 64, True, False) >= 1 << 20
    finally:
        fa.uninstall()
    assert "flash_attn" not in sys.modules
    sys.modules["flash_attn"] = inspect
    try:
        with pytest.raises(RuntimeError, match="already imported"):
            fa.install()
    finally:
        del sys.modules["flash_attn"]


def test_the_first_axis_is_indexed():
    from falchion.flash_attn.bert_padding import index_first_axis

    x = torch.randn(5, 2, 3, requires_grad=True)
    places = torch.tensor([4, 1])
    found = index_first_axis(x, places)
    found.sum().backward()
    assert torch.equal(found, x[[4, 1]]) and x.grad.sum((1, 2)).tolist() == [0, 6, 0, 0, 6]
