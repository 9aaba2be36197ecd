"""Every function of falchion.flash_attn under torch.compile as one graph, and in a CUDA graph."""

from __future__ import annotations

import pytest
from flash_attn_support import cache, ints, paged
from torch_support import DEVICES, problem, torch

import falchion
import falchion.flash_attn as fa
from falchion.flash_attn import bert_padding, v3
from falchion.flash_attn.rotary import apply_rotary_emb

on_devices = pytest.mark.parametrize("device", DEVICES)


def calls(device):
    """Calls of every function, each of which gives tensors."""
    q, k, v = problem(b=2, s_q=12, s_k=12, h_k=4, device=device)
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    starts = ints(0, 12, 24).to(device)
    lengths = starts, starts, 12, 12
    qkv, kv = torch.stack([q, k, v], 2), torch.stack([k, v], 2)
    angles = torch.rand(64, 8, device=device)
    turns = {"rotary_cos": angles.cos(), "rotary_sin": angles.sin(), "causal": True}
    tables = [7, 0, 3, 5, -1], [2, 9, 4, 8, 6]
    parts = torch.stack([q, k]), torch.randn(2, 2, 12, 4, device=device)
    slopes = torch.rand(4, device=device)
    one = cache(device, cache_seqlens=5)
    used = ints(5, 12).to(device)
    page = paged(device, tables)
    page3 = {"page_table" if n == "block_table" else n: x for n, x in page.items()}
    new = {**cache(device), "cu_seqlens_q": ints(0, 2, 5).to(device), "max_seqlen_q": 3}
    new.update(q=new["q"].flatten(0, 1)[:5], cu_seqlens_k_new=ints(0, 3, 4).to(device))
    new.update({x: new[x].flatten(0, 1)[:4] for x in "kv"})
    half = angles.cos(), angles.sin()
    return {
        "func": (fa.flash_attn_func, (q, k, v), {"causal": True, "alibi_slopes": slopes}),
        "probs": (fa.flash_attn_func, (q, k, v), {"return_attn_probs": True}),
        "drop": (fa.flash_attn_func, (q, k, v, 0.3), {"return_attn_probs": True}),
        "qkv": (fa.flash_attn_qkvpacked_func, (qkv,), {"window_size": (3, 0)}),
        "kv": (fa.flash_attn_kvpacked_func, (q, kv), {"softcap": 3.0}),
        "varlen": (fa.flash_attn_varlen_func, (*flat, *lengths), {"return_attn_probs": True}),
        "varlen_drop": (
            fa.flash_attn_varlen_func, (*flat, *lengths, 0.3), {"return_attn_probs": True}
        ),
        "varlen_qkv": (
            fa.flash_attn_varlen_qkvpacked_func, (qkv.flatten(0, 1), starts, 12), {}
        ),
        "varlen_kv": (
            fa.flash_attn_varlen_kvpacked_func, (flat[0], kv.flatten(0, 1), *lengths), {}
        ),
        "varlen_pages": (
            fa.flash_attn_varlen_func,
            (flat[0], page["k_cache"], page["v_cache"], starts, starts, 12, 12),
            {"block_table": page["block_table"]},
        ),
        "cache": (fa.flash_attn_with_kvcache, (), {**cache(device), **turns}),
        "cache_one_length": (fa.flash_attn_with_kvcache, (), one),
        "cache_index": (
            fa.flash_attn_with_kvcache, (), cache(device, cache_batch_idx=ints(1, 0))
        ),
        "cache_left": (fa.flash_attn_with_kvcache, (), cache(device, cache_leftpad=ints(1, 0))),
        "cache_pages": (fa.flash_attn_with_kvcache, (), page),
        "v3": (v3.flash_attn_func, (q, k, v), {"return_attn_probs": True}),
        "v3_qkv": (v3.flash_attn_qkvpacked_func, (qkv.flatten(2, 3),), {"num_heads_q": 4}),
        "v3_varlen": (
            v3.flash_attn_varlen_func, (*flat, *lengths), {"seqused_q": used, "seqused_k": used}
        ),
        "v3_cache": (v3.flash_attn_with_kvcache, (), page3),
        "v3_cache_packed": (v3.flash_attn_with_kvcache, (), {**new, **turns}),
        "combine": (v3.flash_attn_combine, parts, {}),
        "rotary": (apply_rotary_emb, (q, *half), {"seqlen_offsets": used}),
        "rotary_number": (apply_rotary_emb, (q, *half), {"seqlen_offsets": 3}),
        "rotary_packed": (
            apply_rotary_emb, (flat[0], *half), {"cu_seqlens": starts, "max_seqlen": 12}
        ),
        "pad": (bert_padding.pad_input, (flat[0], torch.arange(24, device=device) + 2, 2, 13), {}),
    }  # fmt: skip


def flattened(found):
    return [found] if isinstance(found, torch.Tensor) else list(found)


def copies(arguments, options):
    def copy(x):
        return x.clone() if isinstance(x, torch.Tensor) else x

    return [copy(x) for x in arguments], {name: copy(x) for name, x in options.items()}


def tensors_of(arguments, options):
    return [x for x in (*arguments, *options.values()) if isinstance(x, torch.Tensor)]


def assert_same(found, expected, given, ours, name):
    """Results, and what was written into the arguments."""
    for i, (x, y) in enumerate(zip(found, expected)):
        assert x.shape == y.shape and x.dtype == y.dtype, f"{name}: result {i}"
        assert torch.equal(x, y) or name.endswith("drop"), f"{name}: result {i}"
    for x, y in zip(tensors_of(*given), tensors_of(*ours)):
        assert torch.equal(x, y), f"{name}: an argument"


@on_devices
@pytest.mark.parametrize("name", list(calls("cpu")))
def test_compiled_as_one_graph(name, device):
    run, arguments, options = calls(device)[name]
    ours = copies(arguments, options)
    expected = flattened(run(*arguments, **options))
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    found = flattened(compiled(*ours[0], **ours[1]))
    assert_same(found, expected, (arguments, options), ours, name)


@pytest.mark.skipif("cuda" not in DEVICES, reason="no CUDA device")
@pytest.mark.parametrize("name", list(calls("cpu")))
def test_captured_as_a_cuda_graph(name):
    run, arguments, options = calls("cuda")[name]
    ours, warm = copies(arguments, options), copies(arguments, options)
    expected = flattened(run(*arguments, **options))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # what is made at the first call is no part of the graph
        run(*warm[0], **warm[1])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = flattened(run(*ours[0], **ours[1]))
    graph.replay()
    torch.cuda.synchronize()
    assert_same(found, expected, (arguments, options), ours, name)
    if name.endswith("drop"):
        first = found[0].clone()
        graph.replay()
        torch.cuda.synchronize()
        assert not torch.equal(first, found[0]), "each replay draws anew"


@pytest.mark.skipif("cuda" not in DEVICES, reason="no CUDA device")
@pytest.mark.parametrize("name", [name for name in calls("cpu") if "cache" in name or "pages" in name])
def test_caches_wait_for_no_gpu(name):
    run, arguments, options = calls("cuda")[name]
    run(*arguments, **options)
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(*arguments, **options)
        if "pages" in name:
            fa.check_bounds()
            with pytest.raises(RuntimeError, match="synchron"):
                run(*arguments, **options)
    finally:
        fa.check_bounds(False)
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif("cuda" not in DEVICES, reason="no CUDA device")
def test_on_a_gpu_the_contract_holds():
    """What is out of bounds is masked, or clamped, and not written; the rest is."""
    tables = [7, -1, 3, 5, 1], [2, 9, 4, 12, 6]
    given = paged("cuda", tables, cache_seqlens=ints(2, 19))
    before = given["k_cache"].clone()
    o = fa.flash_attn_with_kvcache(**given)
    expected = before.clone()
    expected[7, 2:], expected[6, 3] = given["k"][0, :2], given["k"][1, 0]
    assert torch.equal(given["k_cache"], expected) and o.isfinite().all()
    index = cache("cuda", cache_batch_idx=ints(1, 5), k=None, v=None)
    o = fa.flash_attn_with_kvcache(**index)
    assert o[0].any() and not o[1].any()


@on_devices
def test_what_cannot_be_asked_is_neither_read_nor_written(device):
    """Under torch.compile rows without a place are left out; the others are written. Where the host has
    the lengths the engine refuses them, and nothing is written."""
    tables = [7, -1, 3, 5, 1], [2, 9, 4, 12, 6]
    given = paged(device, tables, cache_seqlens=ints(2, 19))
    before = given["k_cache"].clone()
    torch._dynamo.reset()
    run = torch.compile(fa.flash_attn_with_kvcache, fullgraph=True, backend="aot_eager")
    if device == "cpu":
        with pytest.raises(falchion.Invalid, match=r"used_k\[1\] = 22"):
            run(**given)
    else:
        run(**given)
    expected = before.clone()
    if device != "cpu":
        expected[7, 2:], expected[6, 3] = given["k"][0, :2], given["k"][1, 0]
    assert torch.equal(given["k_cache"], expected)
