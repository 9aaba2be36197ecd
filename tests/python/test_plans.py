"""Plans that are kept for us, plans that we keep, and what they tell."""

import json
import xml.dom.minidom
from collections.abc import Iterator
from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import distance, normal, poisoned

SHAPE = (2, 20, 4, 16)


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    falchion.plan_cache_clear()
    yield
    falchion.plan_cache_clear()


def test_cache_finds_and_forgets() -> None:
    q, k, v = normal(1, *[(1, 3, 1, 8)] * 3)
    falchion.attention(q, k, v)
    falchion.attention(q[:, ::-1], k, v)  # plans know no strides
    assert falchion.plan_cache_info() == {"hits": 1, "misses": 1, "size": 1, "limit": 64}
    for window in range(64):  # 64 other problems: the first one is the one that makes room
        falchion.attention(q, k, v, window=(window, 0))
    assert falchion.plan_cache_info() == {"hits": 1, "misses": 65, "size": 64, "limit": 64}
    falchion.attention(q, k, v, window=(0, 0))  # the oldest that is left; now it is the youngest
    falchion.attention(q, k, v)
    falchion.attention(q, k, v, window=(0, 0))
    assert falchion.plan_cache_info() == {"hits": 3, "misses": 66, "size": 64, "limit": 64}
    falchion.attention(q, k, v, window=(1, 0))  # the one that made room for the plain problem
    assert falchion.plan_cache_info()["misses"] == 67


def test_cache_tells_problems_apart() -> None:
    """Whatever changes the result or the plan is part of the key."""
    q, k, v = normal(2, *[SHAPE] * 3)
    flags: list[dict[str, Any]] = [
        {},
        {"causal": True},
        {"causal": "top_left"},
        {"scale": 0.5},
        {"softcap": 2.0},
        {"dropout": 0.5, "seed": 1},
        {"return_lse": True},
        {"threads": 1},
        {"threads": 2},
        {"backend": "ref"},
        {"backend": "cpu"},
        {"mask": np.ones((20, 20), bool)},
        {"bias": np.ones((20, 20), np.float32)},
        {"alibi": np.ones(4, np.float32)},
        {"used_k": np.array([3, 4], np.int32)},
        {"used_q": np.array([3, 4], np.int32)},
        {"first_k": np.array([3, 4], np.int32)},
    ]
    for options in flags:
        falchion.attention(q, k, v, **options)
    falchion.attention(*(x.astype(np.float16) for x in (q, k, v)))
    # causal=True is "bottom_right", and nothing else is the same as another one.
    assert falchion.plan_cache_info()["misses"] == len(flags) + 1
    for seed in range(3):  # which elements are dropped is no part of a plan
        falchion.attention(q, k, v, dropout=0.5, seed=seed)
    assert falchion.plan_cache_info()["misses"] == len(flags) + 1


def test_a_problem_that_is_refused_is_not_kept() -> None:
    q = np.zeros((1, 1, 1, 300), np.float32)
    for _ in range(2):
        with pytest.raises(falchion.Unsupported):
            falchion.attention(q, q, q)
    assert falchion.plan_cache_info()["size"] == 0


def test_plan_of_shapes() -> None:
    q, k, v = normal(3, *[SHAPE] * 3)
    plan = falchion.Plan(SHAPE, dtype="float32", causal=True, return_lse=True, backend="cpu", threads=1)
    assert plan.backend == "cpu" and plan.workspace_bytes > 0
    assert plan.describe().startswith("attention_forward cpu") and repr(plan) == f"<falchion.Plan: {plan.describe()}>"
    out, lse = poisoned(SHAPE), poisoned((2, 4, 20))
    o, l = plan(q, k, v, out=out, lse=lse)
    want_o, want_lse = falchion.attention(q, k, v, causal=True, return_lse=True, threads=1)
    assert o is out and l is lse and np.array_equal(o, want_o) and np.array_equal(l, want_lse)
    assert falchion.plan_cache_info()["misses"] == 1  # of the function, not of the plan
    for dtype in ("float32", np.float32, np.dtype("float32")):
        assert (
            falchion.Plan(SHAPE, dtype=dtype, causal=True, return_lse=True, backend="cpu", threads=1).describe()
            == plan.describe()
        )
    assert falchion.Plan(q, causal=True, return_lse=True, threads=1).describe() == plan.describe()


def test_plan_of_the_backward_pass() -> None:
    q, k, v, grad_o = normal(4, *[SHAPE] * 4)
    o, lse = falchion.attention(q, k, v, causal=True, return_lse=True)
    want = falchion.attention_backward(grad_o, q, k, v, o, lse, causal=True)
    plan = falchion.Plan(q, causal=True, backward=True)
    assert all(np.array_equal(a, b) for a, b in zip(plan(grad_o, q, k, v, o, lse), want, strict=True))
    frozen = falchion.Plan(q, causal=True, backward=True, frozen=1)
    assert frozen(grad_o, q, k, v, o, lse)[0] is None
    used = np.array([20, 7], np.int32)
    gaps = falchion.Plan(q, causal=True, align="bottom_right", backward=True, used_k=True)
    grads = gaps(grad_o, q, k, v, o, lse, used_k=used)
    assert (grads[1][1, 7:] == 0).all() and (grads[2][1, 7:] == 0).all()


def test_plan_of_packed_sequences() -> None:
    starts = np.array([0, 5, 20], np.int32)
    q, k, v = normal(5, *[(20, 4, 16)] * 3)
    plan = falchion.Plan(q, sequences=2, max_q=15, causal="bottom_right")
    assert distance(plan(q, k, v, cu_seqlens_q=starts), falchion.varlen(q, k, v, starts, causal=True)) < 2e-6
    with pytest.raises(TypeError, match="needs cu_seqlens_q"):
        plan(q, k, v)
    with pytest.raises(TypeError, match="not one of packed sequences"):
        falchion.Plan(q[None])(q[None], k[None], v[None], cu_seqlens_q=starts)


@pytest.mark.parametrize("planned", [0, 1, 3, 5000, 10**7])
def test_the_number_of_sequences_is_the_plans(planned: int) -> None:
    """With more in the plan than in the array the run would read past its end, with fewer it would leave rows out."""
    starts = np.array([0, 5, 20], np.int32)
    q, k, v, grad_o = normal(5, *[(20, 4, 16)] * 4)
    words = f"cu_seqlens_q is of 2 sequences, but the plan is of {planned}"
    with pytest.raises(falchion.Invalid, match=words):
        falchion.Plan(q, sequences=planned, max_q=20)(q, k, v, cu_seqlens_q=starts)
    o, lse = falchion.varlen(q, k, v, starts, return_lse=True)
    backward = falchion.Plan(q, sequences=planned, max_q=20, backward=True)
    with pytest.raises(falchion.Invalid, match=words):
        backward(grad_o, q, k, v, o, lse, cu_seqlens_q=starts)
    with pytest.raises(falchion.Invalid, match="used_k has 3 numbers: it must have one for each of b = 2"):
        falchion.Plan(q, sequences=2, max_q=20, used_k=True)(
            q, k, v, cu_seqlens_q=starts, used_k=np.array([3, 3, 3], np.int32)
        )


@pytest.mark.parametrize("name", ["alibi", "bias", "mask", "used_q", "used_k", "first_k", "grad_lse", "grad_bias"])
def test_arrays_that_are_announced(name: str) -> None:
    """True, or an array, announces one; anything else is refused. What is announced has to come."""
    backward = name.startswith("grad")
    more = {"backward": True, "bias": True} if backward else {}
    q, k, v, grad_o = normal(8, *[SHAPE] * 4)
    for value in (2, "yes", 1.0, object()):
        with pytest.raises(TypeError, match=f"{name} must be True where the runs will bring one"):
            falchion.Plan(q, **more, **{name: value})
    for absent in (None, False, 0, np.False_):
        falchion.Plan(q, **more, **{name: absent})
    o, lse = falchion.attention(q, k, v, return_lse=True)
    plan = falchion.Plan(q, **more, **{name: True})
    falchion.Plan(q, **more, **{name: np.ones((20, 20), np.float32)})
    with pytest.raises(falchion.Invalid, match=f"{name} is not given, but the plan was made with one"):
        if backward:
            plan(grad_o, q, k, v, o, lse, bias=np.ones((20, 20), np.float32))
        else:
            plan(q, k, v)


@pytest.mark.parametrize(
    ("frozen", "given", "words"),
    [
        (1, (True, True, True), "grad_q is given, but the plan was made with frozen = 1"),
        (2, (True, False, True), "grad_v is given, but the plan was made with frozen = 2"),
        (0, (False, True, True), "grad_q is None, but the plan was made with frozen = 0"),
        (1, (False, False, False), "grad_k is None, but the plan was made with frozen = 1"),
    ],
)
def test_the_gradients_of_a_run_are_the_plans(frozen: int, given: tuple[bool, ...], words: str) -> None:
    q, k, v, grad_o = normal(8, *[SHAPE] * 4)
    o, lse = falchion.attention(q, k, v, return_lse=True)
    grads: Any = tuple(poisoned(SHAPE) if is_given else None for is_given in given)
    with pytest.raises(falchion.Invalid, match=words):
        falchion.Plan(q, backward=True, frozen=frozen)(grad_o, q, k, v, o, lse, grads=grads)


@pytest.mark.parametrize("backward", [False, True])
def test_a_run_with_dropout_needs_a_seed(backward: bool) -> None:
    q, k, v, grad_o = normal(7, *[SHAPE] * 4)
    o, lse = falchion.attention(q, k, v, dropout=0.5, seed=9, return_lse=True)
    plan = falchion.Plan(q, dropout=0.5, backward=backward)
    arrays = (grad_o, q, k, v, o, lse) if backward else (q, k, v)
    with pytest.raises(falchion.Invalid, match="dropout needs a seed"):
        plan(*arrays)
    got = plan(*arrays, seed=9)
    want = falchion.attention_backward(*arrays, dropout=0.5, seed=9) if backward else o
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("name", ["seed", "offset", "stream"])
def test_what_is_of_a_run_is_no_argument_of_a_plan(name: str) -> None:
    for function in (falchion.Plan, falchion.explain):
        with pytest.raises(TypeError, match=f"a plan is made without {name}"):
            function(SHAPE, dtype="float32", dropout=0.5, **{name: 7})


def test_a_plan_is_set_once() -> None:
    """Also where the arguments of __init__ run code that calls __init__ of the same object."""
    plan = falchion.Plan.__new__(falchion.Plan)

    class Again:
        def __index__(self) -> int:
            plan.__init__((1, 4, 2, 8), dtype="float32", backend="cpu")  # type: ignore[misc]
            return 8

    with pytest.raises(TypeError, match="made once and never changes"):
        plan.__init__((1, 4, 2, 8), dtype="float32", window=(Again(), 0), align="top_left", backend="ref")  # type: ignore[misc]
    assert plan.backend == "cpu"


def test_a_plan_of_the_backward_pass_returns_no_lse() -> None:
    with pytest.raises(falchion.Invalid, match="return_lse is given, but the plan is one of the backward pass"):
        falchion.Plan((1, 4, 2, 8), dtype="float32", backward=True, return_lse=True)


def test_what_a_plan_refuses() -> None:
    q, k, v = normal(6, *[SHAPE] * 3)
    plan = falchion.Plan(SHAPE, dtype="float32")
    for arrays, options, words in (
        ((q[:, :3], k, v), {}, r"q.shape\[1\] = 3"),
        ((q, k, v), {"alibi": np.ones(4, np.float32)}, "alibi is given, but the problem was planned without it"),
        ((q.astype(np.float16), k, v), {}, "dtype"),
    ):
        with pytest.raises(falchion.Invalid, match=words):
            plan(*arrays, **options)
    for arguments, kind, words in (
        ({"q": SHAPE}, falchion.Invalid, "needs dtype"),
        ({"q": SHAPE[1:], "dtype": "float32"}, falchion.Invalid, "q has 3 axes"),
        ({"q": SHAPE, "dtype": "int16"}, falchion.Invalid, "dtype = 'int16'"),
        ({"q": SHAPE, "dtype": "int32"}, falchion.Unsupported, "dtype = i32 is not built yet"),
        ({"q": SHAPE, "dtype": "int8"}, falchion.Unsupported, "dtype_v = as_q with dtype = i8: v must be e4m3, bf16 or f16"),
        ({"q": SHAPE, "dtype": "float32", "target": "sm70"}, falchion.Invalid, "target = 'sm70'"),
        ({"q": SHAPE, "dtype": "float32", "frozen": 4, "backward": True}, falchion.Invalid, "frozen = 4"),
        ({"q": SHAPE[1:], "dtype": "float32", "sequences": 3}, falchion.Invalid, "max_q"),
        ({"q": SHAPE, "dtype": "float32", "max_q": "x"}, falchion.Invalid, "max_q is given without sequences"),
        ({"q": SHAPE, "dtype": "float32", "max_k": 3}, falchion.Invalid, "max_k is given without sequences"),
        ({"q": SHAPE, "dtype": "float32", "frozen": 3}, falchion.Invalid, "frozen is given, but .* backward=True"),
        ({"q": SHAPE, "dtype": "float32", "grad_bias": True}, falchion.Invalid, "grad_bias is given, but"),
        ({"q": SHAPE, "dtype": "float32", "accumulate": True}, falchion.Invalid, "accumulate is given, but"),
        (
            {"q": SHAPE[1:], "dtype": "float32", "sequences": 3, "max_q": 9, "causal": True},
            falchion.Invalid,
            "cu_seqlens_q and cu_seqlens_k",
        ),
        (
            {"q": SHAPE, "dtype": "float32", "used_q": True, "used_k": True, "causal": True},
            falchion.Invalid,
            "lengths of q and k may differ",
        ),
        ({"q": ("a",) * 4, "dtype": "float32"}, TypeError, "q must be a whole number, not str"),
        ({"q": 3}, TypeError, "q must be an array"),
        ({}, TypeError, "needs the argument 'q'"),
    ):
        with pytest.raises(kind, match=words):
            falchion.Plan(**arguments)
    with pytest.raises(TypeError, match="made once"):
        plan.__init__(SHAPE, dtype="float32")  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="not made"):
        falchion.Plan.__new__(falchion.Plan).describe()


def test_explanations() -> None:
    story = falchion.explain((1, 4096, 8, 128), dtype="bfloat16", causal=True, window=(512, None), target="sm90")
    band = {"left": 512, "right": 0, "align": "bottom_right", "offset": 0}
    assert "sm90" in story and story.json["problem"]["band"] == band
    assert repr(story) == str(story) and json.loads(json.dumps(story.json)) == story.json
    for made in (story, falchion.Plan(SHAPE, dtype="float32").explain()):
        html = made._repr_html_()
        xml.dom.minidom.parseString(html.replace("<details>", "<details open=''>"))
        assert "<svg" in html and "decision" in html
    assert (
        falchion.Plan(SHAPE, dtype="float32")._repr_html_()
        == falchion.Plan(SHAPE, dtype="float32").explain()._repr_html_()
    )
    # A problem that is refused has an explanation too.
    assert falchion.explain((1, 1, 1, 300), dtype="float32").json["status"]["code"] == "unsupported"
    for target in ("ref", "cpu", "generic", "sm80"):
        backend = falchion.explain(SHAPE, dtype="float32", target=target).json["decision"]["backend"]
        assert backend == {"ref": "ref", "sm80": "sm80"}.get(target, "cpu")


def test_a_plan_for_some_of_the_sms() -> None:
    shapes = (8, 1, 32, 128), (8, 65536, 8, 128)
    for sms, used, ctas in ((0, None, 128), (50, 50, 48), (4000, 132, 128)):
        story = falchion.explain(*shapes, dtype="bfloat16", target="sm90", sms=sms)
        device = story.json["device"]
        assert device["sms"] == 132 and device.get("sms_of_plan") == used and story.json["grid"]["ctas"] == ctas
    with pytest.raises(falchion.Invalid, match="sms = 8 with backend = cpu: sms is for GPU backends"):
        falchion.Plan(SHAPE, dtype="float32", target="cpu", sms=8)
    with pytest.raises(falchion.Invalid, match="sms = -1: it must be 0"):
        falchion.Plan(SHAPE, dtype="float32", sms=-1)


def test_explanations_of_gemms_and_norms() -> None:
    """Of shapes and of arrays; a shape that does not fit is refused as the call refuses it, and nothing runs."""
    story = falchion.explain((4096, 4096), (512, 4096), op="gemm", dtype="bfloat16", bias=(512,), target="sm90")
    assert story.json["decision"]["backend"] == "sm90" and "A B^T + bias of each column" in story
    assert [story.json["problem"][name] for name in ("batch", "m", "n", "k")] == [1, 4096, 512, 4096]
    xml.dom.minidom.parseString(story._repr_html_().replace("<details>", "<details open=''>"))
    a, b, out = *normal(8, (6, 8), (5, 8)), poisoned((6, 5))
    for arrays in ((a, b), (a, b.shape), (list(a.shape), b)):
        json_of = falchion.explain(*arrays, op="gemm", dtype="float32", out=out, c=out, beta=2, backend="cpu").json
        assert json_of["decision"]["backend"] == "cpu" and json_of["problem"]["beta"] == 2
    assert (out == 12345).all() and falchion.plan_cache_info()["misses"] == 0
    for op, kind in (("layer_norm", "layer"), ("rms_norm", "rms")):
        story = falchion.explain(
            (2, 9, 64), (64,), op=op, dtype="float16", residual=(2, 9, 64), return_stats=True, target="cpu"
        )
        problem = story.json["problem"]
        assert (problem["kind"], problem["rows"], problem["d"], problem["residual_out"]) == (kind, 18, 64, True)
        assert problem["mean"] == (kind == "layer") and story.json["decision"]["backend"] == "cpu"
    # A problem that is refused has an explanation, and one that cannot be read has none.
    for op, shapes, why in (
        ("gemm", ((-3, 4), (5, 4)), "m = -3"),
        ("gemm", ((1, 3, -2, -4), (1, 5, -2, -4)), "k = -4"),
        ("gemm", ((1, 3, 2**32, 2**32), (1, 5, 2**32, 2**32)), f"k = {2**63 - 1}"),
        ("rms_norm", ((-2, -3, 8),), "rows = -3"),
        ("rms_norm", ((2**32, 2**32, 1, 8),), f"rows = {2**63 - 1}"),
    ):
        refused = falchion.explain(*shapes, op=op, dtype="float32")
        assert refused.json["status"]["code"] == "invalid" and why in refused.json["status"]["why"]
    for arguments, options, kind_of, words in (
        (((3, 4), (5, 3)), {"dtype": "float32"}, falchion.Invalid, r"b has \(batch, n, k\) = \(1, 5, 3\)"),
        (((3, 4), (5, 4)), {}, falchion.Invalid, "a is a shape, which needs dtype"),
        (((3, 4), (5, 4)), {"dtype": "int16"}, falchion.Invalid, "dtype = 'int16'"),
        (((3, 4), (5, 4)), {"dtype": "float32", "target": "sm70"}, falchion.Invalid, "target = 'sm70'"),
        (((3, 4), (5, 4)), {"dtype": "float32", "op": "softmax"}, falchion.Invalid, "op = 'softmax': it is one of"),
        (((1, 2, 3, 4, 5), (5, 4)), {"dtype": "float32"}, falchion.Invalid, "a has more than 4 axes"),
        (((3, "x"), (5, 4)), {"dtype": "float32"}, TypeError, "a must be a whole number, not str"),
        ((3, (5, 4)), {"dtype": "float32"}, TypeError, "a must be an array"),
        ((), {"dtype": "float32"}, TypeError, r"gemm\(\) needs the argument 'a'"),
    ):
        with pytest.raises(kind_of, match=words):
            falchion.explain(*arguments, **({"op": "gemm"} | options))
    with pytest.raises(TypeError, match="a must be an array .* not tuple"):
        falchion.gemm((3, 4), (5, 4))


@pytest.mark.parametrize(
    ("band", "area"),
    [
        ({"left": -1, "right": -1, "align": "unset", "offset": 0}, 100),
        ({"left": -1, "right": 0, "align": "top_left", "offset": 0}, 55),
        ({"left": -1, "right": 0, "align": "bottom_right", "offset": 0}, 55),
        ({"left": 2, "right": 1, "align": "top_left", "offset": 0}, 36),
        ({"left": -1, "right": 0, "align": "at", "offset": 4}, 85),
        ({"left": -1, "right": 0, "align": "at", "offset": -10}, 0),
    ],
)
def test_the_picture_has_the_area_of_the_band(band: dict[str, Any], area: int) -> None:
    """10 x 10 pairs; the edge of a polygon cuts the cells on it in half, 5 cells for each edge of 10."""
    from falchion._html import SIDE, band_svg

    polygon = xml.dom.minidom.parseString(band_svg({"s_q": 10, "s_k": 10, "band": band})).getElementsByTagName(
        "polygon"
    )[0]
    points = [tuple(map(float, point.split(","))) for point in polygon.getAttribute("points").split()]
    twice = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, points[1:] + points[:1], strict=True))
    assert abs(abs(twice) / 2 * 100 / SIDE**2 - area) <= 10
