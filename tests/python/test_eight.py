"""Attention of q and k of 8 bits with scales: against its definition in float64 of numbers times scales, and
FlashAttention-3's functions of float8_e4m3fn."""

from typing import Any

import pytest
from torch_support import DEVICES, definition, torch
from torch.library import opcheck

import falchion
import falchion.torch as ft
from falchion.flash_attn import v3

B, S_Q, S_K, H_Q, H_K, D, D_V = 2, 40, 300, 4, 2, 64, 48
E4M3, I8, BF16, F16 = torch.float8_e4m3fn, torch.int8, torch.bfloat16, torch.float16
TYPES = {"e4m3": (E4M3, E4M3), "i8 e4m3": (I8, E4M3), "i8 bf16": (I8, BF16), "i8 f16": (I8, F16)}
on_devices = pytest.mark.parametrize("device", DEVICES)
of_each_type = pytest.mark.parametrize("types", TYPES)


def keys_of(scale: Any, rows: int, s_k: int) -> Any:
    """A scale of k, (b, blocks, h), for each key."""
    return scale.repeat_interleave(rows, dim=1)[:, :s_k] if rows else scale


def problem(types: str, rows: int = 128, device: str = "cpu", s_q: int = S_Q, s_k: int = S_K) -> Any:
    """q, k, v of these types, the scales as options, and the numbers that they stand for, in float64."""
    of_q, of_v = TYPES[types]
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(B, s_q, H_Q, D, generator=generator).to(device)
    y = torch.randn(B, s_k, H_K, D, generator=generator).to(device)
    z = (torch.randn(B, s_k, H_K, D_V, generator=generator) + 0.5).to(device)
    q, q_scale = falchion.quantise(x, of_q)
    k, k_scale = falchion.quantise(y, of_q, rows=rows)
    options = {"q_scale": q_scale, "k_scale": k_scale, "k_scale_rows": rows}
    numbers = [q.double() * q_scale[..., None], k.double() * keys_of(k_scale, rows, s_k)[..., None]]
    if of_v is E4M3:
        v, options["v_scale"] = falchion.quantise(z, of_v, rows=0)
        numbers.append(v.double() * options["v_scale"][..., None])
    else:
        v = z.to(of_v)
        numbers.append(v.double())
    return (q, k, v), options, numbers


def assert_attention(o: Any, wanted: Any, of_v: Any, spread: Any, v: Any) -> None:
    """V of 16 bits: as that type is compared anywhere. V of e4m3: each P may be off by half a unit of its 4 bits, and by what
    Hopper's sums lose of scores, so O by some 2^-4 of what the deviations of V add up to; small P may be lost, and O is
    rounded to its type."""
    error = (o.double() - wanted).abs()
    unit = 2**-8 if o.dtype is BF16 else 2**-11
    if of_v is not E4M3:
        assert (error <= 2 * unit * wanted.abs().max()).all()
        return
    n, most = v.shape[1], v.abs().max()
    assert (error <= 1.4 * 2**-4 * spread + n * 2**-15 * most + unit * wanted.abs()).all()
    rms, of_spread, of_o = (x.square().mean().sqrt() for x in (error, spread, wanted))
    assert rms <= 0.03 * of_spread + n**0.5 * 2**-16 * most + unit * of_o


def spread_of(q: Any, k: Any, v: Any, wanted: Any, **options: Any) -> Any:
    """At least sum p |v - o| of each number of O: by |v - o| <= (v - o)^2 / 2t + t / 2, with t the root of the sum of p (v -
    o)^2, it is at most that root."""
    squares, _ = definition(q, k, v.square(), **options)
    return (squares - wanted.square()).clamp(min=0).sqrt()


def assert_is(o: Any, v: Any, numbers: Any, **options: Any) -> None:
    wanted, _ = definition(*numbers, **options)
    assert_attention(o, wanted, v.dtype, spread_of(*numbers, wanted, **options), numbers[2])


@on_devices
@of_each_type
@pytest.mark.parametrize("rows", [128, 0])
def test_it_is_attention_of_what_the_numbers_stand_for(types: str, rows: int, device: str) -> None:
    (q, k, v), scales, numbers = problem(types, rows, device)
    o, lse = falchion.attention(q, k, v, return_lse=True, **scales)
    assert o.dtype is (v.dtype if v.dtype in (BF16, F16) else BF16) and o.shape == (B, S_Q, H_Q, D_V)
    assert_is(o, v, numbers)
    assert (lse - definition(*numbers)[1]).abs().max() < 2e-3
    assert torch.equal(ft.attention(q, k, v, **scales), o)
    half = torch.empty(o.shape, dtype=F16, device=device)
    if v.dtype is E4M3:
        assert_is(falchion.attention(q, k, v, out=half, **scales), v, numbers)


@on_devices
@of_each_type
def test_options(types: str, device: str) -> None:
    (q, k, v), scales, numbers = problem(types, 0, device, s_q=S_K)
    for options in {"causal": True}, {"window": (20, 5), "align": "bottom_right"}, {"softcap": 2.0, "scale": 0.3}:
        assert_is(falchion.attention(q, k, v, **options, **scales), v, numbers, **options)
    used = torch.tensor([300, 17], dtype=torch.int32, device=device)
    o = ft.attention(q, k, v, used_k=used, **scales)
    assert_is(o[1:], v, [numbers[0][1:], *(x[1:, :17] for x in numbers[1:])])
    flipped = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    o = falchion.attention(*flipped, layout="bhsd", causal=True, **scales)
    assert_is(o.transpose(1, 2), v, numbers, causal=True)


@on_devices
@of_each_type
def test_shared_scales(types: str, device: str) -> None:
    (q, k, v), _, _ = problem(types, 0, device)
    one, of_heads = torch.full((1,), 0.02, device=device), torch.tensor([0.01, 0.03], device=device)
    numbers = [0.02 * q.double(), k.double() * of_heads[:, None], v.double()]
    scales = {"q_scale": one, "k_scale": of_heads}
    if v.dtype is E4M3:
        scales["v_scale"] = of_heads.expand(B, 1, H_K)
        numbers[2] = numbers[2] * of_heads[:, None]
    assert_is(falchion.attention(q, k, v, **scales), v, numbers)
    plain = falchion.attention(q, k, v)  # without scales they are 1
    ones = {name: torch.ones(1, device=device) for name in scales}
    assert torch.equal(falchion.attention(q, k, v, **ones), plain)


@on_devices
@of_each_type
def test_packed_sequences(types: str, device: str) -> None:
    (q, k, v), _, _ = problem(types, 0, device)
    starts_q, starts_k = [0, 30, 41, 80], [0, 130, 259, 600]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    generator = torch.Generator().manual_seed(4)

    def scale(*shape: int) -> Any:
        return (0.01 + 0.02 * torch.rand(shape, generator=generator)).to(device)

    scales = {"q_scale": scale(80, H_Q), "k_scale": scale(600 // 128 + 3, H_K), "k_scale_rows": 128}
    if v.dtype is E4M3:
        scales["v_scale"] = scale(1, H_K)
    given = [torch.tensor(x, dtype=torch.int32, device=device) for x in (starts_q, starts_k)]
    o, lse = falchion.varlen(q, k, v, *given, return_lse=True, **scales)
    again = ft.varlen(q, k, v, *given, **scales)
    assert torch.equal(o, again) and lse.shape == (H_Q, 80)
    for i in range(3):
        rows, keys = slice(*starts_q[i : i + 2]), slice(*starts_k[i : i + 2])
        blocks = scales["k_scale"][starts_k[i] // 128 + i :][None]
        numbers = [
            q[None, rows].double() * scales["q_scale"][None, rows, :, None],
            k[None, keys].double() * keys_of(blocks, 128, keys.stop - keys.start)[..., None],
            v[None, keys].double() * (scales["v_scale"][..., None] if "v_scale" in scales else 1),
        ]
        assert_is(o[None, rows], v, numbers)


def test_a_v_that_is_the_same_for_all_keys_comes_back() -> None:
    """Probabilities that are rounded are divided by the sum of what they were rounded to."""
    (q, k, v), scales, _ = problem("e4m3")
    o = falchion.attention(q, k, torch.ones_like(v, dtype=torch.float32).to(E4M3), q_scale=scales["q_scale"])
    assert (o == 1).all()


def test_arrays_of_numpy() -> None:
    np, types = pytest.importorskip("numpy"), pytest.importorskip("ml_dtypes")
    for name in TYPES:
        tensors, scales, numbers = problem(name)
        of_numpy = {BF16: types.bfloat16, E4M3: types.float8_e4m3fn}
        q, k, v = (
            x.view(torch.uint8).numpy().view(of_numpy[x.dtype]) if x.dtype in of_numpy else x.numpy() for x in tensors
        )
        o = falchion.attention(q, k, v, **{n: x.numpy() if isinstance(x, torch.Tensor) else x for n, x in scales.items()})
        assert str(o.dtype) == ("float16" if name.endswith("f16") and "bf16" not in name else "bfloat16")
        found = torch.from_numpy(o.astype(np.float32)).to(F16 if str(o.dtype) == "float16" else BF16)
        assert torch.equal(found, falchion.attention(*tensors, **scales))


def test_a_plan_and_explain() -> None:
    tensors, scales, _ = problem("i8 bf16")
    plan = falchion.Plan(*tensors, q_scale=True, k_scale=True, k_scale_rows=128)
    scales.pop("k_scale_rows")
    o = plan(*tensors, **scales)
    assert torch.equal(o, falchion.attention(*tensors, k_scale_rows=128, **scales))
    with pytest.raises(falchion.Invalid, match="k_scale is not given, but the plan was made with one"):
        plan(*tensors, q_scale=scales["q_scale"])
    text = falchion.explain((1, 4096, 8, 128), dtype="int8", dtype_v="bfloat16", q_scale=True)
    assert text.json["problem"]["dtype"] == "i8" and "q_scale, v of bf16, o of bf16" in text


REFUSED = [
    ({"k_scale_rows": 100}, falchion.Invalid, "k_scale_rows = 100: it must be 0 .* or a multiple of 128"),
    ({"q_scale": torch.ones(20, H_Q)}, falchion.Invalid, r"q_scale.shape\[0\] = 20, but the problem's is 40"),
    ({"q_scale": torch.ones(H_K)}, falchion.Invalid, r"q_scale.shape\[0\] = 2, but the problem's is 4"),
    ({"q_scale": torch.ones(H_Q, dtype=F16)}, falchion.Invalid, "q_scale.dtype = float16, but the problem's is float32"),
    ({"k_scale": torch.ones(S_K, H_K), "k_scale_rows": 0}, falchion.Unsupported, "all keys share a scale"),
    ({"v_scale": torch.ones(S_K, H_K)}, falchion.Invalid, r"v_scale.shape\[0\] = 300, but the problem's is 1"),
    ({"bias": torch.zeros(S_Q, S_K)}, falchion.Unsupported, "bias with q of 8 bits .* is not built"),
    ({"alibi": torch.zeros(H_Q)}, falchion.Unsupported, "alibi with q of 8 bits .* is not built"),
    ({"first_k": [0, 3]}, falchion.Unsupported, "first_k with q of 8 bits .* is not built"),
    ({"q_descale": torch.ones(B, H_K)}, TypeError, "no argument 'q_descale': here it is q_scale="),
]  # fmt: skip


@pytest.mark.parametrize("attention", [falchion.attention, ft.attention], ids=["falchion", "torch"])
@pytest.mark.parametrize(("options", "error", "words"), REFUSED, ids=[next(iter(row[0])) + str(i) for i, row in enumerate(REFUSED)])
def test_what_is_refused(options: Any, error: Any, words: str, attention: Any) -> None:
    tensors, scales, _ = problem("i8 e4m3")
    with pytest.raises(error, match=words):
        attention(*tensors, **{**scales, **options})


def test_types_that_are_refused() -> None:
    (q, k, v), _, (x, y, z) = problem("i8 e4m3")
    for tensors, words in (
        ((q, k, v.float()), "the type of v = float32 with dtype = int8: v must be float8_e4m3fn, bfloat16 or float16"),
        ((q, k.bfloat16(), v), "the type of k = bfloat16 with dtype = int8: k has the type of q"),
        ((q, k, k[..., :D_V].contiguous()), "with dtype = int8: v must be float8_e4m3fn"),
        ((x.float(), k, v), "k has the type int8"),
    ):
        with pytest.raises(falchion.Error, match=words):
            falchion.attention(*tensors)
    out = torch.empty(B, S_Q, H_Q, D_V)
    with pytest.raises(falchion.Unsupported, match="the type of out = float32 .* must be bfloat16 or float16; nearest: bfloat16"):
        falchion.attention(q, k, v, out=out)
    with pytest.raises(falchion.Invalid, match="q_scale with dtype = bf16: only q of 8 bits"):
        falchion.attention(x.bfloat16(), y.bfloat16(), z.bfloat16(), q_scale=torch.ones(1))
    with pytest.raises(falchion.Invalid, match="only q of 8 bits has scales"):
        ft.attention(x.bfloat16(), y.bfloat16(), z.bfloat16(), q_scale=torch.ones(1))
    with pytest.raises(falchion.Invalid, match="q has the type int8"):
        falchion.attention_backward(out, q, k, v, out, torch.empty(B, H_Q, S_Q))


def test_there_are_no_gradients() -> None:
    (q, k, v), scales, _ = problem("i8 bf16")
    v.requires_grad_()
    for options in {}, scales:
        with pytest.raises(falchion.Unsupported, match="v requires a gradient, and attention of 8 bits .* has none"):
            ft.attention(q, k, v, **options)
    with torch.no_grad():
        assert not ft.attention(q, k, v, **scales).requires_grad
    (q, k, v), scales, _ = problem("e4m3")
    with pytest.raises(falchion.Unsupported, match="q requires a gradient"):
        ft.attention(q.requires_grad_(), k, v)


@on_devices
@of_each_type
def test_torch_compile_and_autocast(types: str, device: str) -> None:
    tensors, scales, _ = problem(types, device=device)
    wanted = ft.attention(*tensors, causal="bottom_right", **scales)
    with torch.autocast(device, BF16):
        assert torch.equal(ft.attention(*tensors, causal="bottom_right", **scales), wanted)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q: Any, k: Any, v: Any, scales: Any) -> Any:
        return ft.attention(q, k, v, causal="bottom_right", **scales)

    assert torch.equal(step(*tensors, scales), wanted)


@on_devices
@of_each_type
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_opcheck(types: str, packed: bool, device: str) -> None:
    (q, k, v), scales, _ = problem(types, device=device)
    starts = [None, None]
    if packed:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        starts = [torch.tensor([0, n, 2 * n], dtype=torch.int32, device=device) for n in (S_Q, S_K)]
        scales = {"q_scale": scales["q_scale"].flatten(0, 1)}
    longest = (S_Q, S_K) if packed else (0, 0)
    options = (*longest, -1, 0, "bottom_right", 0, None, 0.0, 0.0, "bshd", "best", scales.get("k_scale_rows", 0))
    given = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), starts), **scales)
    optional = [given.get(name) for name in (*ft._ops.OPTIONAL, *ft._bytes.SCALES)]
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if v.dtype is not E4M3:  # of which torch does not compare copies
        checks.append("test_schema")
    opcheck(torch.ops.falchion.attention_of_bytes, (q, k, v, *optional, *options), test_utils=checks)


def meant(x: Any, descale: Any) -> Any:
    """(b, s, h_k g, d) times (b, h_k)."""
    return x.double() * descale.repeat_interleave(x.shape[2] // descale.shape[1], 1)[:, None, :, None]


@on_devices
@pytest.mark.parametrize("causal", [False, True])
def test_descales_of_flash_attention_3(causal: bool, device: str) -> None:
    (q, k, v), _, _ = problem("e4m3", device=device)
    torch.manual_seed(5)
    descales = [0.002 + 0.01 * torch.rand(B, H_K, device=device) for _ in range(3)]
    named = dict(zip(("q_descale", "k_descale", "v_descale"), descales))
    o, lse = v3.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True, **named)
    numbers = [meant(x, y) for x, y in zip((q, k, v), descales)]
    band = {"causal": "bottom_right"} if causal else {}
    assert o.dtype is BF16 and lse.shape == (B, H_Q, S_Q)
    assert_is(o, v, numbers, **band)
    recorded = v3.flash_attn_func(q.requires_grad_(), k, v, causal=causal, **named)
    assert torch.equal(recorded, o)
    with pytest.raises(falchion.Unsupported, match="attention of 8 bits has no gradients"):
        recorded.float().sum().backward()


@on_devices
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_descales_of_packed_sequences(shared: bool, device: str) -> None:
    (q, k, v), _, _ = problem("e4m3", device=device)
    starts_q, starts_k = [0, 30, 41, 80], [0, 130, 259, 600]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    torch.manual_seed(6)
    descales = [(0.002 + 0.01 * torch.rand(1 if shared else 3, H_K, device=device)).expand(3, H_K) for _ in range(3)]
    given = [torch.tensor(x, dtype=torch.int32, device=device) for x in (starts_q, starts_k)]
    named = dict(zip(("q_descale", "k_descale", "v_descale"), descales))
    o = v3.flash_attn_varlen_func(q, k, v, *given, 39, 341, **named)
    for i in range(3):
        rows, keys = slice(*starts_q[i : i + 2]), slice(*starts_k[i : i + 2])
        parts = q[None, rows], k[None, keys], v[None, keys]
        numbers = [meant(x, y[i : i + 1]) for x, y in zip(parts, descales)]
        assert_is(o[None, rows], v, numbers)


def test_what_flash_attention_3_refuses() -> None:
    (q, k, v), _, (x, y, z) = problem("e4m3")
    with pytest.raises(falchion.Invalid, match=r"q_descale is \(2, 4\) .* it must be \(2, 2\), \(b, h_k\)"):
        v3.flash_attn_func(q, k, v, q_descale=torch.ones(B, H_Q))
    with pytest.raises(falchion.Invalid, match="k_descale is given, and q is of torch.bfloat16"):
        v3.flash_attn_func(x.bfloat16(), y.bfloat16(), z.bfloat16(), k_descale=torch.ones(B, H_K))
    zero = v3.flash_attn_func(q, k, v, softmax_scale=0.0)
    assert_is(zero, v, [q.double() * 0, k.double(), v.double()])
