"""falchion.torch.attention: results and gradients against the definition in float64, dropout,
refusals, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch_support import (
    DEVICES, DTYPES, assert_near, assert_same_as_definition, definition, leaves, problem, torch,
)  # fmt: skip

import falchion
import falchion.torch as ft
from falchion.torch import _eager

pytestmark = pytest.mark.parametrize("device", DEVICES)

# name, sizes of the problem, options of the call, names of more tensors
CASES = [
    ("full", {}, {}, ()),
    ("causal", {}, {"causal": True}, ()),
    ("bottom_right", {"s_q": 5, "s_k": 23}, {"causal": "bottom_right"}, ()),
    ("top_left", {"s_q": 5, "s_k": 23}, {"causal": "top_left"}, ()),
    ("empty_rows", {"s_q": 23, "s_k": 5}, {"causal": "bottom_right"}, ()),
    ("window", {}, {"window": (3, 2), "align": "bottom_right"}, ()),
    ("left_window", {"s_q": 9, "s_k": 31}, {"window": (4, None), "align": "top_left"}, ()),
    ("sliding", {}, {"causal": True, "window": (5, None)}, ()),
    ("causal_at", {"s_q": 9, "s_k": 31}, {"causal": True, "align": 8}, ()),
    ("window_at", {"s_q": 9, "s_k": 31}, {"window": (4, 2), "align": -3}, ()),
    ("scale", {}, {"scale": 0.3}, ()),
    ("softcap", {}, {"softcap": 2.0, "causal": True}, ()),
    ("head_dims", {"d_qk": 24, "d_v": 40}, {}, ()),
    ("one_head_of_k", {"h_q": 4, "h_k": 1}, {"causal": True}, ()),
    ("one_query", {"s_q": 1, "s_k": 40}, {"causal": "bottom_right"}, ()),
    ("bias", {}, {}, ("bias",)),
    ("bias_of_keys", {}, {"causal": True}, ("bias_of_keys",)),
    ("alibi", {}, {"causal": True}, ("alibi",)),
    ("alibi_by_batch", {"s_q": 7, "s_k": 12}, {"causal": "bottom_right"}, ("alibi_by_batch",)),
    ("alibi_top_left", {"s_q": 7, "s_k": 12}, {"align": "top_left"}, ("alibi",)),
    ("alibi_at", {"s_q": 7, "s_k": 12}, {"align": 3}, ("alibi",)),
    ("mask", {}, {}, ("mask",)),
    ("all_at_once", {}, {"causal": True, "softcap": 3.0, "scale": 0.5}, ("bias", "alibi", "mask")),
]


def extras_of(names, q, k):
    (b, s_q, h_q, _), s_k = q.shape, k.shape[1]
    generator = torch.Generator().manual_seed(3)
    made = {
        "bias": ("bias", torch.randn(b, h_q, s_q, s_k, generator=generator)),
        "bias_of_keys": ("bias", torch.randn(1, h_q, 1, s_k, generator=generator)),
        "alibi": ("alibi", torch.rand(h_q, generator=generator)),
        "alibi_by_batch": ("alibi", torch.rand(b, h_q, generator=generator)),
        "mask": ("mask", torch.rand(b, 1, s_q, s_k, generator=generator) < 0.6),
    }
    return {made[n][0]: made[n][1].to(q.device) for n in names}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("name, sizes, options, extras", CASES, ids=[c[0] for c in CASES])
def test_is_the_definition(name, sizes, options, extras, dtype, device):
    tensors = problem(**sizes, dtype=dtype, device=device)
    more = extras_of(extras, *tensors[:2])
    assert_same_as_definition(ft.attention, tensors, more, dtype, **options)
    with torch.no_grad():
        o, lse = ft.attention(*tensors, **more, **options, return_lse=True)
    expected, expected_lse = definition(*tensors, **more, **options)
    assert_near(o, expected, dtype, "o without gradients")
    assert_near(lse, expected_lse, dtype, "lse without gradients")


@pytest.mark.parametrize("shape", [(23,), (19, 23), (4, 19, 23), (4, 1, 1), (1, 1, 19, 1)])
def test_axes_of_a_bias_and_a_mask(shape, device):
    """Leading axes may be missing and any may have the extent 1, with and without gradients."""
    q, k, v = problem(s_q=19, s_k=23, device=device)
    bias = torch.randn(shape, device=device)
    mask = torch.rand(shape, device=device) < 0.8
    expected, _ = definition(q, k, v, bias=bias, mask=mask)
    assert_near(ft.attention(q, k, v, bias=bias, mask=mask), expected)
    (leaf,) = leaves(bias)
    assert_near(ft.attention(q, k, v, bias=leaf, mask=mask), expected)


@pytest.mark.parametrize("grad", [False, True])
def test_what_has_too_many_axes(grad, device):
    q, k, v = (x.requires_grad_(grad) for x in problem(device=device))
    with pytest.raises(falchion.Invalid, match="bias has 5 axes; it has at most 4"):
        ft.attention(q, k, v, bias=torch.zeros(1, 1, 1, 1, 1, device=device))
    with pytest.raises(falchion.Invalid, match="alibi has 3 axes"):
        ft.attention(q, k, v, alibi=torch.zeros(1, 1, 4, device=device))


def test_heads_first_is_the_same_memory_in_another_order(device):
    tensors = problem(device=device)
    o = ft.attention(*tensors, causal=True)
    first = [x.transpose(1, 2) for x in tensors]
    assert torch.equal(ft.attention(*first, causal=True, layout="bhsd"), o.transpose(1, 2))
    ours = leaves(*tensors)
    ft.attention(*[x.transpose(1, 2) for x in ours], causal=True, layout="bhsd").sum().backward()
    theirs = leaves(*tensors)
    ft.attention(*theirs, causal=True).sum().backward()
    for x, y in zip(ours, theirs):
        assert torch.equal(x.grad, y.grad)


def test_the_gradient_of_the_lse(device):
    ours, theirs = leaves(*problem(device=device)), leaves(*problem(device=device))
    o, lse = ft.attention(*ours, causal=True, return_lse=True)
    (o.square().sum() + lse.square().sum()).backward()
    o, lse = definition(*theirs, causal=True)
    (o.square().sum() + lse.square().sum()).backward()
    for name, x, y in zip("qkv", ours, theirs):
        assert_near(x.grad, y.grad, what=f"grad_{name}")
    ours, theirs = leaves(*problem(device=device)), leaves(*problem(device=device))
    ft.attention(*ours, return_lse=True)[1].sum().backward()
    definition(*theirs)[1].sum().backward()
    assert_near(ours[0].grad, theirs[0].grad, what="grad_q of the lse alone")


@pytest.mark.parametrize("wanted", ["q", "k", "v", "kv", "qv", "bias"])
def test_gradients_of_some_inputs_alone(wanted, device):
    q, k, v = problem(device=device)
    bias = torch.randn(1, 4, 19, 19, device=device)
    every = dict(zip(["q", "k", "v", "bias"], leaves(q, k, v, bias)))
    ft.attention(**every).sum().backward()
    some = {n: x.detach().clone() for n, x in every.items()}
    names = [wanted] if wanted == "bias" else list(wanted)
    for n in names:
        some[n].requires_grad_()
    ft.attention(**some).sum().backward()
    for n, x in some.items():
        assert (x.grad is None) == (n not in names)
        assert x.grad is None or torch.equal(x.grad, every[n].grad)


def test_lengths_leave_zeros(device):
    q, k, v = problem(device=device)
    used_q = torch.tensor([7, 19], dtype=torch.int32, device=device)
    used_k = torch.tensor([19, 4], dtype=torch.int32, device=device)
    first_k = torch.tensor([3, 0], dtype=torch.int32, device=device)
    ours, theirs = leaves(q, k, v), leaves(q, k, v)
    o = ft.attention(*ours, used_q=used_q, used_k=used_k, first_k=first_k)
    j = torch.arange(19, device=device)
    mask = ((j >= first_k[:, None]) & (j < used_k[:, None]))[:, None, None]
    rows = (j < used_q[:, None])[:, :, None, None]
    expected = definition(*theirs, mask=mask)[0] * rows
    assert_near(o, expected, what="o")
    o.square().sum().backward()
    expected.square().sum().backward()
    for name, x, y in zip("qkv", ours, theirs):
        assert_near(x.grad, y.grad, what=f"grad_{name}")


def test_every_run_has_the_same_bits(device):
    def run():
        tensors = leaves(*problem(s_q=70, s_k=70, device=device))
        ft.attention(*tensors, causal=True).square().sum().backward()
        return [x.grad for x in tensors]

    first = run()
    for _ in range(3):
        assert all(torch.equal(x, y) for x, y in zip(run(), first))


def factors_of(q, k, p, seed):
    """Which probabilities of a problem are kept, by values that are rows of the identity."""
    (b, s_q, h_q, _), s_k = q.shape, k.shape[1]
    identity = (
        torch.eye(s_k, device=q.device)[None, :, None].expand(b, s_k, k.shape[2], s_k).contiguous()
    )
    torch.manual_seed(seed)
    dropped = ft.attention(q, k, identity, dropout=p).permute(0, 2, 1, 3)
    plain = ft.attention(q, k, identity).permute(0, 2, 1, 3)
    assert dropped.shape == (b, h_q, s_q, s_k)
    return dropped / plain


def test_dropout_drops_its_share_and_keeps_the_mean(device):
    q, k, _ = problem(s_q=60, s_k=60, device=device)
    factors = factors_of(q, k, 0.3, seed=5)
    kept = factors > 0
    share = 1 - kept.double().mean().item()
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / kept.numel()) ** 0.5
    assert_near(
        factors[kept], torch.full_like(factors[kept], 1 / 0.7), torch.float16, "1 / (1 - p)"
    )


def test_the_backward_pass_drops_what_the_forward_pass_dropped(device):
    tensors = problem(s_q=33, s_k=33, device=device)
    keep = factors_of(*tensors[:2], 0.4, seed=11)
    keep = torch.where(keep > 0, 1 / 0.6, 0.0)

    def run(q, k, v, **options):
        torch.manual_seed(11)
        return ft.attention(q, k, v, dropout=0.4)

    assert_same_as_definition(run, tensors, reference={"keep": keep})


def test_torchs_generator_decides_what_is_dropped(device):
    tensors = problem(device=device)

    def run():
        return ft.attention(*tensors, dropout=0.5)

    torch.manual_seed(1)
    first, second = run(), run()
    torch.manual_seed(1)
    assert torch.equal(run(), first) and not torch.equal(first, second)


REFUSED = [
    ({"causal": True}, {"s_q": 5, "s_k": 7}, ValueError, ["5", "7", "bottom_right"]),
    ({"causal": "left"}, {}, ValueError, ["causal", "left"]),
    ({"window": (2, None)}, {"s_q": 5, "s_k": 7}, ValueError, ["window"]),
    ({"softcap": -1.0}, {}, ValueError, ["softcap", "-1"]),
    ({"dropout": 1.5}, {}, ValueError, ["dropout", "1.5"]),
    ({}, {"h_q": 7, "h_k": 2}, ValueError, ["h_q = 7", "h_k = 2"]),
    ({}, {"d_qk": 257}, NotImplementedError, ["257", "256"]),
]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("options, sizes, error, words", REFUSED)
def test_refusals_name_the_argument_and_its_value(options, sizes, error, words, recorded, device):
    tensors = problem(**sizes, device=device)
    with pytest.raises(error) as caught:
        ft.attention(*(leaves(*tensors) if recorded else tensors), **options)
    assert isinstance(caught.value, falchion.Error)
    for word in words:
        assert word in str(caught.value)


def test_second_derivatives_are_refused_when_they_are_asked_for(device):
    q, k, v = leaves(*problem(device=device))
    o = ft.attention(q, k, v)
    (grad,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    assert grad.isfinite().all()
    with pytest.raises(falchion.Unsupported, match="second derivative"):
        grad.sum().backward()


def test_forward_mode_is_refused(device):
    q, k, v = problem(device=device)
    with pytest.raises(falchion.Unsupported, match="jvp"):
        torch.func.jvp(lambda x: ft.attention(x, k, v), (q,), (q,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(falchion.Unsupported, match="jvp"):
            ft.attention(dual, k, v)


def test_two_threads_get_the_same_bits_as_one(device):
    def run(seed):
        tensors = leaves(*problem(s_q=40, s_k=40, device=device, seed=seed))
        ft.attention(*tensors, causal=True).sum().backward()
        return [x.grad.cpu() for x in tensors]

    alone = [run(seed) for seed in range(2)]

    def wrong(seed):
        return [i for i in range(20) if not all(map(torch.equal, run(seed), alone[seed]))]

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(wrong, range(2))) == [[], []]


@pytest.mark.parametrize(
    "options",
    [
        dict(causal=True),
        dict(window=(3, 2), align="top_left"),
        dict(scale=0.3),
        dict(softcap=0.7),
        dict(backend="ref"),
        dict(layout="bhsd"),
        dict(layout="bhsd", causal="top_left", scale=0.3),
    ],
)
def test_without_gradients_every_option_reaches_the_engine(options, device):
    if options.get("backend") == "ref" and device != "cpu":
        pytest.skip("the reference runs on the CPU")
    tensors = problem(s_q=16, s_k=16, h_q=4, h_k=4, device=device)
    o, lse = falchion.attention(*tensors, return_lse=True, **options)
    assert torch.equal(ft.attention(*tensors, **options), o)
    both = ft.attention(*tensors, return_lse=True, **options)
    assert torch.equal(both[0], o) and torch.equal(both[1], lse)


@pytest.mark.parametrize("case", ["bias", "mask", "used", "full"])
@pytest.mark.parametrize("wanted", ["q", "k", "v", "qk", "qkv"])
def test_what_is_constant_takes_no_operator_in_the_backward_pass(
    wanted, case, device, monkeypatch
):
    """Frozen q, k or v, and a bias and mask that need no gradient, go to C as the rest does."""
    tensors = problem(s_q=16, s_k=16, device=device)
    more = {
        "bias": dict(bias=torch.randn(1, 4, 16, 1, device=device)),
        "mask": dict(mask=torch.rand(2, 1, 16, 16, device=device) < 0.7),
        "used": dict(used_q=USED.to(device), used_k=USED.to(device)),
        "full": {},
    }[case]
    grad = torch.randn(2, 16, 4, 16, device=device)
    full = leaves(*tensors)
    ft.attention(*full, **more).backward(grad)
    q, k, v = (x.clone().requires_grad_(n in wanted) for n, x in zip("qkv", tensors))
    o = ft.attention(q, k, v, **more)
    monkeypatch.setattr(_eager, "operator_arguments", None)
    o.backward(grad)
    for name, x, y in zip("qkv", (q, k, v), full):
        if name in wanted:
            assert torch.equal(x.grad, y.grad)
        else:
            assert x.grad is None
    exact = leaves(*tensors)
    if case != "used":
        definition(*exact, **more)[0].backward(grad.double())
        for x, y in zip(full, exact):
            assert_near(x.grad, y.grad)


USED = torch.tensor([3, 4], dtype=torch.int32)
BANDS = {
    "unbounded": dict(window=(-1, -1)),
    "a negative left side": dict(window=(-2, 0)),
    "a negative right side": dict(window=(0, -5), align="top_left"),
    "causal and one side": dict(causal=True, window=(3, -1)),
    "causal is a number": dict(causal=1),
    "causal is None": dict(causal=None),
    "an unknown corner": dict(align="middle"),
    "causal with an unknown corner": dict(causal="middle"),
    "two corners": dict(causal="top_left", align="bottom_right"),
    "causal, fewer keys": dict(causal=True, keys=7),
    "a window, fewer keys": dict(window=(3, None), keys=7),
    "only align, fewer keys": dict(align="top_left", keys=7),
    "causal and used_k": dict(causal=True, used_k=USED),
    "a window and used_k": dict(window=(1, None), used_k=USED),
    "causal and first_k": dict(causal=True, first_k=USED),
    "causal and both lengths": dict(causal=True, used_q=USED, used_k=USED),
    "causal top_left and used_k": dict(causal="top_left", used_k=USED),
    "a window of one side": dict(window=(1,)),
    "a window that is a number": dict(window=5),
    "a window of parts": dict(window=(1.5, None)),
    "an unknown layout": dict(layout="sbhd"),
}


@pytest.mark.parametrize("case", BANDS)
def test_all_ways_take_and_refuse_the_same_bands(case, device):
    """Straight to C, through autograd, through the operator and under torch.compile: the same result,
    or the same type and text of the error."""
    options = {n: x.to(device) if x is USED else x for n, x in BANDS[case].items()}
    keys = options.pop("keys", 16)
    q, k, v = problem(s_q=16, s_k=keys, device=device)

    def run(q, k, v):
        return ft.attention(q, k, v, **options)

    def outcome(run, *tensors):
        try:
            return run(*tensors).detach()
        except Exception as error:  # torch.compile adds lines to the text
            kind = type(error) if isinstance(error, (TypeError, falchion.Invalid)) else None
            return kind, str(error).splitlines()[0]

    expected = outcome(run, q, k, v)
    torch._dynamo.reset()
    with torch.overrides.BaseTorchFunctionMode():
        operator = outcome(run, q, k, v)
    found = {"autograd": outcome(run, *leaves(q, k, v)), "operator": operator}
    found["compiled"] = outcome(torch.compile(run, backend="eager"), q, k, v)
    for way, x in found.items():
        if isinstance(expected, tuple):
            assert x == expected, way
        else:
            assert isinstance(x, torch.Tensor), (way, x)
            assert torch.equal(x, expected), way
