"""What is refused, with which exception and which words."""

import itertools
import os
import subprocess
import sys
import typing
from typing import Any

import falchion
import numpy as np
import pytest
from numpy_support import distance, normal

Q, K, V = normal(1, (2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 2, 8))
OPEN, STARTS = np.array([0, 2, 5], np.int32), np.array([0, 5], np.int32)
READ_ONLY = np.zeros(Q.shape, np.float32)
READ_ONLY.flags.writeable = False

# The call's options, the class of the exception, and what its text has to say.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"q": [1.0]}, TypeError, "q must be an array .* not list"),
    ({"v": "text"}, TypeError, "v must be an array .* not str"),
    ({"q": Q.astype(np.float64)}, falchion.Invalid, "q has the type float64: it must be float32, float16 or bfloat16"),
    ({"q": Q.astype(np.int16)}, falchion.Invalid, "q has the type int16"),
    ({"q": Q.astype(np.uint32)}, falchion.Invalid, "q has the type uint32"),
    ({"q": Q.astype("M8[s]")}, falchion.Invalid, "q has a type without a buffer: cannot include dtype 'M'"),
    ({"k": K.astype(np.int32)}, falchion.Invalid, "k has the type int32"),
    ({"q": np.zeros(Q.shape, "V0")}, falchion.Invalid, "q has elements of 0 bytes"),
    ({"mask": np.zeros((5, 5), np.dtype([]))}, falchion.Invalid, "mask has elements of 0 bytes"),
    ({"q": Q.astype(">f4")}, falchion.Invalid, "q has the type big-endian float32"),
    ({"q": Q.astype(np.complex64)}, falchion.Invalid, "q has the type complex64"),
    ({"q": Q[0]}, falchion.Invalid, r"q has 3 axes: it must have 4, \(b, s, h, d\)"),
    ({"q": Q[0], "layout": "bhsd"}, falchion.Invalid, r"it must have 4, \(b, h, s, d\)"),
    ({"q": Q[None]}, falchion.Invalid, "q has 5 axes: no argument has more than 4"),
    ({"k": K.astype(np.float16)}, falchion.Invalid, "k.dtype = float16, but the problem's is float32"),
    ({"k": K[:1]}, falchion.Invalid, r"k.shape\[0\] = 1, but the problem's is 2"),
    ({"v": V[:, :4]}, falchion.Invalid, r"v.shape\[1\] = 4, but the problem's is 5"),
    ({"q": Q[:, :, :3]}, falchion.Invalid, "h_q = 3 is not a multiple of h_k = 2"),
    (
        {"q": np.zeros((1, 1, 1, 300), np.float32), "k": np.zeros((1, 1, 1, 300), np.float32)},
        falchion.Unsupported,
        "300",
    ),
    ({"causal": True, "k": K[:, :3], "v": V[:, :3]}, falchion.Invalid, "s_q = 5 and s_k = 3 differ: .* or align=n"),
    ({"causal": True, "used_k": np.array([5, 5], np.int32)}, falchion.Invalid, "lengths of q and k may differ .* or align=n"),
    ({"window": (1, 1), "k": K[:, :3], "v": V[:, :3]}, falchion.Invalid, "a window without align"),
    ({"causal": "left"}, falchion.Invalid, """causal = 'left': it is one of "bottom_right", "top_left\""""),
    ({"causal": 2}, falchion.Invalid, 'causal = 2: it is True, False, "bottom_right" or "top_left"'),
    ({"causal": 0.0}, TypeError, "causal must be True, False"),
    (
        {"causal": "top_left", "align": "bottom_right"},
        falchion.Invalid,
        "causal = 'top_left', but align = 'bottom_right'",
    ),
    ({"causal": "top_left", "align": 3}, falchion.Invalid, "causal = 'top_left', but align = 3"),
    ({"causal": True, "align": 2**30 + 1}, falchion.Invalid, r"align = 1073741825: the key of query 0"),
    ({"causal": True, "align": 1.5}, TypeError, "align must be a whole number"),
    ({"causal": True, "align": True}, TypeError, "align must be a whole number or the name of a corner, not a bool"),
    ({"causal": True, "align": np.bool_(False)}, TypeError, "align must be a whole number or the name of a corner, not a"),
    ({"causal": True, "align": "left"}, falchion.Invalid, """align = 'left': it is "bottom_right", "top_left" or a whole"""),
    ({"window": 3}, TypeError, "window must be a pair"),
    ({"window": (1, 2, 3)}, TypeError, "window must have two sides"),
    ({"window": (1.5, 2)}, TypeError, r"window\[0\] must be a whole number, not float"),
    ({"window": (-7, 2)}, falchion.Invalid, r"window\[0\] = -7"),
    (
        {"window": (2**70, 2)},
        falchion.Invalid,
        r"window\[0\] = 1180591620717411303424: it must be in \[-2\^63, 2\^63\)",
    ),
    ({"window": (10**5000, 2)}, falchion.Invalid, r"window\[0\] has too many digits"),
    ({"scale": float("nan")}, falchion.Invalid, "^scale = nan"),
    ({"scale": 1e-60}, falchion.Invalid, "scale = 1e-60: a float32 has"),
    ({"scale": -1e60}, falchion.Invalid, r"scale = -1e\+60: a float32 has"),
    ({"softcap": 1e-60}, falchion.Invalid, "softcap = 1e-60: a float32 has"),
    ({"scale": 0}, falchion.Invalid, "scale = 0"),
    ({"scale": "1"}, TypeError, "scale must be a number, not str"),
    ({"scale": 10**400}, falchion.Invalid, "scale has too many digits"),
    ({"softcap": -1}, falchion.Invalid, "^softcap = -1"),
    ({"dropout": 1.5, "seed": 1}, falchion.Invalid, "dropout = 1.5"),
    ({"dropout": 0.5}, falchion.Invalid, "dropout needs a seed"),
    ({"dropout": 0.5, "seed": -1}, falchion.Invalid, r"seed = -1: it must be in \[0, 2\^64\)"),
    ({"dropout": 0.5, "seed": "1"}, TypeError, "seed must be a whole number, not str"),
    ({"dropout": 0.5, "seed": np.zeros(3, np.int64)}, falchion.Invalid, "int64 or uint64 array of two"),
    ({"alibi": np.ones(3, np.float32)}, falchion.Invalid, r"alibi.shape\[0\] = 3"),
    ({"alibi": np.ones(4)}, falchion.Invalid, "alibi has the type float64: it must be float32"),
    ({"bias": np.ones((), np.float32)}, falchion.Invalid, "bias has no axes"),
    ({"bias": np.ones((5, 4), np.float32)}, falchion.Invalid, r"bias.shape\[1\] = 4"),
    ({"mask": np.ones((5, 5), np.uint8)}, falchion.Invalid, "mask has the type uint8: it must be bool"),
    ({"used_k": np.array([5.0, 5.0])}, falchion.Invalid, "used_k has the type float64: lengths are int32, or other"),
    ({"used_k": [5, 1 << 40]}, falchion.Invalid, r"used_k\[1\] = 1099511627776: lengths are int32"),
    ({"used_k": np.array([5, -(1 << 31) - 1])}, falchion.Invalid, r"used_k\[1\] = -2147483649: lengths are int32"),
    ({"used_k": [5, 1.5]}, TypeError, r"used_k\[1\] must be a whole number, not float"),
    ({"used_k": np.array([5], np.int32)}, falchion.Invalid, "used_k has 1 numbers: it must have one for each of b = 2"),
    ({"used_k": np.array([5, 99], np.int32)}, falchion.Invalid, r"used_k\[1\] = 99: it must be in \[0, 5\]"),
    ({"used_k": np.array([-3, 5], np.int32)}, falchion.Invalid, r"used_k\[0\] = -3: it must be in \[0, 5\]"),
    ({"used_q": np.array([5, 6], np.int32)}, falchion.Invalid, r"used_q\[1\] = 6: it must be in \[0, 5\]"),
    ({"first_k": np.array([40, 0], np.int32)}, falchion.Invalid, r"first_k\[0\] = 40: it must be in \[0, 5\]"),
    (
        {"used_k": np.array([5, 2], np.int32), "first_k": np.array([0, 3], np.int32)},
        falchion.Invalid,
        r"first_k\[1\] = 3: it must be in \[0, 2\]",
    ),
    ({"used_k": np.zeros((2, 1), np.int32)}, falchion.Invalid, "used_k must have one axis, without gaps: it has 2"),
    ({"layout": "sbhd"}, falchion.Invalid, "layout = 'sbhd'"),
    ({"layout": 1}, TypeError, "layout must be a string, not int"),
    ({"backend": "gpu"}, falchion.Invalid, "backend = 'gpu'"),
    ({"backend": "sm80"}, falchion.Error, "sm80"),
    ({"threads": -1}, falchion.Invalid, "threads = -1"),
    ({"threads": 2**40}, falchion.Invalid, "threads = 1099511627776"),
    ({"stream": 1}, falchion.Invalid, "stream is given, but q lies in the host's memory"),
    ({"return_lse": 2}, falchion.Invalid, "return_lse = 2: it must be True or False"),
    ({"return_lse": "no"}, TypeError, "return_lse must be True or False, not str"),
    ({"return_lse": np.array([True])}, TypeError, "return_lse must be True or False, not numpy.ndarray"),
    ({"out": READ_ONLY}, falchion.Invalid, "out is read-only"),
    ({"out": memoryview(bytes(Q.nbytes)).cast("f", Q.shape)}, falchion.Invalid, "out is read-only"),
    ({"out": np.zeros((2, 5, 4, 8))}, falchion.Invalid, "out has the type float64"),
    ({"out": np.zeros((2, 5, 4, 9), np.float32)}, falchion.Invalid, r"^out.shape\[3\] = 9"),
    ({"out": Q}, falchion.Invalid, "^out overlaps q"),
    ({"lse": np.zeros((2, 4, 5), np.float16)}, falchion.Invalid, "lse.dtype = float16"),
    ({"lse": np.zeros((2, 5), np.float32)}, falchion.Invalid, r"lse has 2 axes: it must have 3, \(b, h, s\)"),
]


@pytest.mark.parametrize(
    ("options", "kind", "words"), REFUSED, ids=[f"{i}-{next(iter(r[0]))}" for i, r in enumerate(REFUSED)]
)
def test_refused(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        falchion.attention(**({"q": Q, "k": K, "v": V} | options))


@pytest.mark.parametrize("name", ["block_table"])
def test_what_is_not_offered_has_no_argument(name: str) -> None:
    with pytest.raises(TypeError, match=rf"attention\(\) has no argument '{name}'"):
        falchion.attention(Q, K, V, **{name: None})


def test_python_rules_of_arguments() -> None:
    for arguments, keywords, words in (
        ((Q, K), {}, "needs the argument 'v'"),
        ((Q, K, V, Q), {}, "takes at most 3 positional"),
        ((Q, K, V), {"v": V}, "was given 'v' twice"),
        ((Q, K, None), {}, "needs the argument 'v'"),
    ):
        with pytest.raises(TypeError, match=words):
            falchion.attention(*arguments, **keywords)


def test_classes_and_notes() -> None:
    assert issubclass(falchion.Invalid, ValueError) and issubclass(falchion.Unsupported, NotImplementedError)
    assert issubclass(falchion.Device, RuntimeError) and issubclass(falchion.Workspace, RuntimeError)
    codes = {
        c.code for c in (falchion.Error, falchion.Invalid, falchion.Unsupported, falchion.Device, falchion.Workspace)
    }
    assert codes == {"error", "invalid", "unsupported", "device", "workspace"}
    with pytest.raises(falchion.Invalid) as caught:
        falchion.attention(Q, K[:1], V)
    assert caught.value.__notes__[0].startswith(
        "attention of q float32 (2, 5, 4, 8), k float32 (1, 5, 2, 8), v float32"
    )


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        (np.array([0, 3, 2, 5], np.int32), "must be sorted"),
        (np.array([1, 5], np.int32), r"cu_seqlens_q\[0\] = 1"),
        (np.array([0, 4], np.int32), "4"),
        (np.array([], np.int32), "cu_seqlens_q has 0 numbers"),
        (np.array([0.0, 5.0]), "lengths are int32"),
    ],
)
def test_lengths(starts: Any, words: str) -> None:
    with pytest.raises(falchion.Invalid, match=words):
        falchion.varlen(Q[0], K[0], V[0], starts)


@pytest.mark.parametrize("hint", [0, 1, 2, 5, 100])
def test_the_longest_length_is_a_hint(hint: int) -> None:
    starts = np.array([0, 4, 5], np.int32)
    want = falchion.varlen(Q[0], K[0], V[0], starts)
    assert distance(falchion.varlen(Q[0], K[0], V[0], starts, max_q=hint, max_k=hint), want) < 2e-6
    linear = falchion.linear_attention(K[0], K[0], V[0], cu_seqlens=starts, max_s=hint)
    assert distance(linear, falchion.linear_attention(K[0], K[0], V[0], cu_seqlens=starts)) < 2e-6
    with pytest.raises(falchion.Invalid, match="max_q"):
        falchion.varlen(Q[0], K[0], V[0], starts, max_q=2**63)


def test_max_s_needs_cu_seqlens() -> None:
    with pytest.raises(falchion.Invalid, match="max_s is given without cu_seqlens"):
        falchion.linear_attention(K, K, K, max_s=5)


def test_varlen_and_causal() -> None:
    with pytest.raises(falchion.Invalid, match="cu_seqlens_q and cu_seqlens_k"):
        falchion.varlen(Q[0], K[0], V[0], OPEN, OPEN.copy(), causal=True)
    with pytest.raises(falchion.Invalid, match="3 numbers and cu_seqlens_k 2"):
        falchion.varlen(Q[0], K[0], V[0], OPEN, STARTS)
    with pytest.raises(falchion.Unsupported, match="bias"):
        falchion.varlen(Q[0], K[0], V[0], STARTS, bias=np.zeros((5, 5), np.float32))


def test_axes_are_those_of_the_caller() -> None:
    """The engine counts (b, s, h, d) and so on; a message counts the axes that the array has."""
    q = normal(3, (2, 4, 5, 8))[0]
    with pytest.raises(falchion.Invalid, match=r"out.shape\[2\] = 6, but the problem's is 5"):
        falchion.attention(q, q, q, layout="bhsd", out=np.zeros((2, 4, 6, 8), np.float32))
    with pytest.raises(falchion.Invalid, match=r"out.shape\[0\] = 6, but the problem's is 5"):
        falchion.varlen(Q[0], Q[0], Q[0], STARTS, out=np.zeros((6, 4, 8), np.float32))
    with pytest.raises(falchion.Invalid, match=r"lse.shape\[1\] = 6, but the problem's is 5"):
        falchion.varlen(Q[0], Q[0], Q[0], STARTS, lse=np.zeros((4, 6), np.float32))
    with pytest.raises(falchion.Invalid, match=r"decay.shape\[0\] = 3, but the problem's is 4"):
        falchion.linear_attention(Q, Q, Q, decay=np.zeros(3, np.float32))


def test_words_of_linear_attention() -> None:
    for layout, axes in (("bshd", r"\(b, s, h_v\)"), ("bhsd", r"\(b, h_v, s\)")):
        with pytest.raises(falchion.Invalid, match=r"decay has 2 axes: it must have 1, \(h_v\), or 3, " + axes):
            falchion.linear_attention(Q, Q, Q, layout=layout, decay=np.zeros((4, 4), np.float32))
    with pytest.raises(falchion.Invalid, match="decay has the type float64: it must be float32"):
        falchion.linear_attention(Q, Q, Q, decay=np.zeros(4))
    with pytest.raises(falchion.Invalid, match=r"^state_out.shape\[3\] = 7"):
        falchion.linear_attention(Q, Q, Q, state_out=np.zeros((2, 4, 8, 7), np.float32))
    with pytest.raises(falchion.Invalid, match=r"^grad_state.shape\[3\] = 7"):
        falchion.linear_attention_backward(Q, Q, Q, Q, grad_state=np.zeros((2, 4, 8, 7), np.float32))
    view = memoryview(Q)
    with pytest.raises(TypeError, match="^linear_attention_backward makes its gradients, and Falchion cannot make"):
        falchion.linear_attention_backward(view, view, view, view)


def test_words_of_a_plan_and_of_gradients() -> None:
    o, lse = falchion.attention(Q, Q, Q, return_lse=True)
    with pytest.raises(falchion.Invalid, match="planned without it: make the Plan with return_lse=True"):
        falchion.Plan(Q)(Q, Q, Q, lse=lse)
    with pytest.raises(falchion.Invalid, match=r"may differ \(used_q is given\)"):
        falchion.Plan(Q, causal=True, used_q=True, used_k=False)
    bias = np.zeros((5, 5), np.float32)
    with pytest.raises(falchion.Invalid, match="grad_bias has the type float64: it must be float32$"):
        falchion.attention_backward(Q, Q, Q, Q, o, lse, bias=bias, grad_bias=np.zeros((5, 5)))
    with pytest.raises(falchion.Invalid, match="grad_alibi has the type float64: it must be float32"):
        falchion.attention_backward(Q, Q, Q, Q, o, lse, alibi=np.zeros(4, np.float32), grad_alibi=np.zeros(4))
    with pytest.raises(falchion.Invalid, match=r"^o.shape\[3\] = 4"):
        falchion.attention_backward(Q, Q, Q, Q, o[..., :4], lse)


def test_signatures_stand_in_docstrings() -> None:
    import inspect

    for function in (falchion.attention, falchion.varlen_backward, falchion.linear_attention, falchion.merge):
        assert "layout" in inspect.signature(function).parameters and len(str(function.__doc__)) > 100
    plan = inspect.signature(falchion.Plan).parameters
    assert list(plan)[:4] == ["q", "k", "v", "dtype"] and plan["max_q"].default is None and "self" not in plan
    assert typing.get_type_hints(falchion.explain)["return"] is falchion.Explanation
    assert typing.get_type_hints(falchion.Explanation)["json"] is dict
    assert list(itertools.islice(inspect.signature(falchion.attention).parameters, 4)) == ["q", "k", "v", "causal"]


BROKEN = [
    ("used_q", [1, 9], r"used_q\[1\] = 9: it must be in \[0, 5\]"),
    ("used_k", [-1, 5], r"used_k\[0\] = -1: it must be in \[0, 5\]"),
    ("first_k", [5, 6], r"first_k\[1\] = 6: it must be in \[0, 5\]"),
]


@pytest.mark.parametrize(("name", "lengths", "words"), BROKEN)
def test_lengths_on_the_host_are_checked_by_every_form(name: str, lengths: list[int], words: str) -> None:
    """The backward pass, packed sequences and plans refuse what falchion.attention does."""
    wrong: dict[str, Any] = {name: np.array(lengths, np.int32)}
    o, lse = falchion.attention(Q, K, V, return_lse=True)
    starts = np.array([0, 5, 10], np.int32)
    q, k, v = (x.reshape(10, *x.shape[2:]) for x in (Q, K, V))
    planned: dict[str, Any] = {name: True}
    plan = falchion.Plan(Q, K, V, **planned)
    calls = (
        lambda: falchion.attention_backward(np.ones_like(o), Q, K, V, o, lse, **wrong),
        lambda: falchion.varlen(q, k, v, starts, **wrong),
        lambda: plan(Q, K, V, **wrong),
    )
    for call in calls:
        with pytest.raises(falchion.Invalid, match=words):
            call()


LEVELS = [("typo", "FALCHION_CPU = typo: there is no such CPU level"), ("generic", "")]


@pytest.mark.parametrize(("level", "words"), LEVELS)
def test_the_level_that_the_environment_names(level: str, words: str) -> None:
    """A name that is no level is refused, and not computed by the definition in silence."""
    code = "import falchion, numpy as np; q = np.ones((1, 4, 1, 8), np.float32); falchion.attention(q, q, q)"
    environment = os.environ | {"FALCHION_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (words == "")
    assert words in done.stderr
