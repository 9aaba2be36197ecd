"""Caches of 8 bits, int8 and float8_e4m3fn, with scales: against the same caches in float32."""

from typing import Any

import numpy as np
import pytest
from torch_support import DEVICES, assert_near, torch

import falchion
import falchion.torch as ft
from falchion.flash_attn import v3

B, KV, D, SIZE, COLUMNS, PAGES = 3, 2, 32, 16, 4, 20
USED = [50, 1, 64]
TYPES = [torch.int8, torch.float8_e4m3fn]
SCALES = {"none": None, "tensor": (1, 1, 1), "head": (1, 1, KV), "page": (PAGES, 1, KV), "key": (PAGES, SIZE, KV)}
on_devices = pytest.mark.parametrize("device", DEVICES)
of_each_type = pytest.mark.parametrize("dtype", TYPES)
# What q is on a device: a GPU has no kernel for these caches under float32.
OF_Q = {"cpu": torch.float32, "cuda": torch.bfloat16}


def rounded(x: Any, dtype: Any, scale: Any = None) -> Any:
    """x as such a cache keeps it."""
    x = x if scale is None else x / scale[..., None]
    return x.round().clamp(-128, 127).to(dtype) if dtype is torch.int8 else x.clamp(-448, 448).to(dtype)


def meant(x: Any, scale: Any = None) -> Any:
    return x.float() if scale is None else x.float() * scale[..., None]


def problem(dtype: Any, device: str = "cpu", scales: str = "head", s_q: int = 2) -> Any:
    """q, the pages, what they mean, their scales, table and lengths."""
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(B, s_q, 4, D, generator=generator).to(device, OF_Q[device])
    pages, numbers, of = [], [], []
    for _ in range(2):
        x = 40 * torch.randn(PAGES, SIZE, KV, D, generator=generator).to(device)
        shape = SCALES[scales]
        scale = None if shape is None else (0.01 + 0.03 * torch.rand(shape, generator=generator)).to(device)
        pages.append(x.round().clamp(-128, 127).to(dtype))
        numbers.append(meant(pages[-1], scale))
        of.append(scale)
    table = torch.randperm(PAGES, generator=generator)[: B * COLUMNS].reshape(B, COLUMNS).int().to(device)
    if scales == "none":
        q = q / 100
    return q, pages, numbers, of, table, torch.tensor(USED, dtype=torch.int32, device=device)


def in_rows(x: Any, table: Any) -> Any:
    return x[table.long()].flatten(1, 2)


@on_devices
@of_each_type
@pytest.mark.parametrize("scales", SCALES)
def test_decode(dtype: Any, device: str, scales: str) -> None:
    q, pages, numbers, (k_scale, v_scale), table, used = problem(dtype, device, scales)
    given = {"k_scale": k_scale, "v_scale": v_scale, "used_k": used, "page_table": table}
    o, lse = ft.decode(q, *pages, return_lse=True, **given)
    wanted, stats = ft.decode(q.float(), *numbers, used_k=used, page_table=table, return_lse=True)
    assert_near(o, wanted, q.dtype)
    assert_near(lse, stats, q.dtype)
    rows = {"used_k": used}
    for name, scale in ("k_scale", k_scale), ("v_scale", v_scale):
        if scale is not None:
            rows[name] = in_rows(scale.expand(PAGES, SIZE, KV), table) if scales in ("page", "key") else scale
    found = ft.decode(q, *(in_rows(x.view(torch.uint8), table).view(dtype) for x in pages), **rows)
    assert_near(found, wanted, q.dtype)


@on_devices
@of_each_type
def test_scales_of_fewer_axes_are_shared(dtype: Any, device: str) -> None:
    q, pages, numbers, (k_scale, v_scale), table, used = problem(dtype, device)
    given = {"used_k": used, "page_table": table}
    o = ft.decode(q, *pages, k_scale=k_scale[0, 0], v_scale=v_scale[0], **given)
    assert_near(o, ft.decode(q.float(), *numbers, **given), q.dtype)


@on_devices
@of_each_type
def test_packed_queries_and_torch_compile(dtype: Any, device: str) -> None:
    q, pages, numbers, (k_scale, v_scale), table, used = problem(dtype, device)
    starts = torch.tensor([0, 2, 4, 6], dtype=torch.int32, device=device)
    given = {"used_k": used, "page_table": table, "cu_seqlens_q": starts, "max_q": 2}

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q: Any, k: Any, v: Any) -> Any:
        return ft.decode(q, k, v, k_scale=k_scale, v_scale=v_scale, **given)

    with torch.no_grad():
        wanted = ft.decode(q.flatten(0, 1).float(), *numbers, **given)
        assert_near(step(q.flatten(0, 1), *pages), wanted, q.dtype)


@on_devices
@of_each_type
def test_new_keys_are_rounded(dtype: Any, device: str) -> None:
    q, pages, _, scales, table, used = problem(dtype, device, "key")
    new = [torch.randn(B, 2, KV, D).to(q) for _ in range(2)]
    table[1] = -1  # it has one key, and two are new
    used[1] = 0
    caches = [x.clone() for x in pages]
    given = dict(zip(("k_scale", "v_scale", "k_new", "v_new"), (*scales, *new)))
    o = ft.decode(q, *caches, used_k=used, page_table=table, **given)
    for cache, before, scale, rows in zip(caches, pages, scales, new):
        wanted = before.clone()
        for b in (0, 2):
            for i, key in enumerate((USED[b] - 2, USED[b] - 1)):
                at = table[b, key // SIZE], key % SIZE
                wanted[at] = rounded(rows[b, i].float(), dtype, scale[at])
        assert torch.equal(cache.view(torch.uint8), wanted.view(torch.uint8))
    numbers = (meant(x, scale) for x, scale in zip(caches, scales))
    assert_near(o, ft.decode(q.float(), *numbers, used_k=used, page_table=table), q.dtype)


def test_arrays_of_numpy_and_a_plan() -> None:
    q, pages, numbers, (k_scale, v_scale), table, used = problem(torch.int8)
    k, v, table, used = (x.numpy() for x in (*pages, table, used))
    scales = {"k_scale": k_scale.numpy(), "v_scale": v_scale.numpy()}
    given = {"page_table": table, "used_k": used}
    o = falchion.attention(q.numpy(), k, v, backend="ref", **given, **scales)
    wanted = falchion.attention(q.numpy(), *(x.numpy() for x in numbers), backend="ref", **given)
    assert np.allclose(o, wanted, atol=1e-6)
    coming = {"used_k": True, "page_table": True, "k_scale": True, "v_scale": True}
    plan = falchion.Plan(q.numpy(), k, v, max_k=64, backend="ref", **coming)
    assert "k and v of i8" in plan.explain() and "k_scale" in plan.explain()
    assert np.allclose(plan(q.numpy(), k, v, **given, **scales), o, atol=1e-6)


def test_what_is_refused() -> None:
    q, pages, numbers, (k_scale, v_scale), table, used = problem(torch.int8)
    given = {"page_table": table, "used_k": used}
    with pytest.raises(falchion.Invalid, match="only numbers of 8 bits"):
        ft.decode(q, *numbers, k_scale=k_scale, **given)
    with pytest.raises(falchion.Unsupported, match="different types"):
        ft.decode(q, pages[0], numbers[1], **given)
    with pytest.raises(falchion.Invalid, match="k has the type int8: it must be float32, float16 or bfloat16"):
        falchion.attention(q, *pages)
    with pytest.raises(falchion.Invalid, match="k_scale"):
        ft.decode(q, *pages, k_scale=k_scale.double(), **given)


@on_devices
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_descales_of_flash_attn(paged: bool, shared: bool, device: str) -> None:
    """One number for a sequence and head, as FlashAttention-3 has them; shared: of stride 0."""
    dtype = torch.float8_e4m3fn
    q, pages, _, _, table, used = problem(dtype, device)
    of = [0.01 + 0.03 * torch.rand(B, KV, device=device) for _ in range(2)]
    if shared:
        of = [x[0, 0].expand(B, KV) for x in of]
    rows = [in_rows(x.view(torch.uint8), table).view(dtype) for x in pages]
    numbers = [meant(x, scale[:, None]) for x, scale in zip(rows, of)]
    table[1, 1:] = -1
    table[1, 1] = table[0, 0]  # of no key that it has, so its number is not that page's
    options = {"causal": True, "cache_seqlens": used}
    more = {"page_table": table} if paged else {}
    descales = dict(zip(("k_descale", "v_descale"), of))
    used[0] = 48
    wanted = v3.flash_attn_with_kvcache(q.float(), *numbers, **options)
    found = v3.flash_attn_with_kvcache(q, *(pages if paged else rows), **options, **more, **descales)
    assert_near(found, wanted, q.dtype)
    # New keys, which a page of their own takes.
    new = [torch.randn(B, 2, KV, D).to(q) for _ in range(2)]
    options["cache_seqlens"] = torch.tensor([40, 3, 60], dtype=torch.int32, device=device)
    found = v3.flash_attn_with_kvcache(q, *(pages if paged else rows), *new, **options, **more, **descales)
    for b, n in enumerate((40, 3, 60)):
        for number, x, scale in zip(numbers, new, of):
            number[b, n : n + 2] = meant(rounded(x[b].float(), dtype, scale[b][None]), scale[b][None])
    options["cache_seqlens"] += 2
    assert_near(found, v3.flash_attn_with_kvcache(q.float(), *numbers, **options), q.dtype)


def test_what_flash_attn_refuses() -> None:
    q, pages, numbers, _, table, used = problem(torch.float8_e4m3fn)
    given = {"page_table": table, "cache_seqlens": used}
    descale = torch.ones(B, KV)
    for bad, why in (
        ({"k_descale": descale[:, :1]}, "k_descale is"),
        ({"v_descale": descale.double()}, "v_descale is"),
        ({"q_descale": descale}, "q_descale"),
    ):
        with pytest.raises((falchion.Invalid, falchion.Unsupported), match=why):
            v3.flash_attn_with_kvcache(q, *pages, **given, **bad)
    with pytest.raises(falchion.Invalid, match="k_descale is given, and the caches are of torch.float32"):
        v3.flash_attn_with_kvcache(q, *numbers, k_descale=descale, **given)
    with pytest.raises(falchion.Unsupported, match="one key for each query"):
        v3.flash_attn_with_kvcache(q, *pages, *(torch.ones(B, 1, KV, D) for _ in "kv"), **given | {"cache_seqlens": 3})
    with pytest.raises(falchion.Invalid, match="must be of one type, or both caches of torch.float8_e4m3fn"):
        v3.flash_attn_with_kvcache(q, pages[0], numbers[1], **given)
