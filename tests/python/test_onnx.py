"""The node tests of ONNX (https://onnx.ai/onnx/operators) for what Falchion has a name for: Attention, FlexAttention,
Gemm, MatMul, LayerNormalization and RMSNormalization. What cannot be expressed is counted by its reason."""

from __future__ import annotations

import collections
import importlib
import warnings
from typing import Any

import numpy as np
import pytest

import falchion

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from onnx.backend.test.case import node as cases  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

# What each operator has in onnx 1.23, and how many of them run.
FEWEST = {
    "Attention": 90,
    "FlexAttention": 9,
    "Gemm": 11,
    "MatMul": 7,
    "LayerNormalization": 19,
    "RMSNormalization": 19,
}
# Above twice the largest error of any of them.
TOLERANCE = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 2e-2}

Arrays = dict[str, np.ndarray]
left_out: collections.Counter[str] = collections.Counter()
ran: collections.Counter[str] = collections.Counter()


class NotExpressible(Exception):
    """Why, in few words."""


def collected() -> list[tuple[str, str, Any]]:
    """(operator, name, case). The cases of a module are made when it is imported; all modules take half a minute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operator in FEWEST:
            importlib.import_module(f"{cases.__name__}.{operator.lower()}")
    found = []
    for case in cases._NodeTestCases:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in FEWEST:  # the others spell an operator out in smaller ones
            found.append((nodes[0].op_type, case.name, case))
    return found


def of_four(x: np.ndarray, heads: int) -> np.ndarray:
    """(b, s, h d) as (b, h, s, d)."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def band(said: dict[str, Any], s_q: int, s_k: int, past: int, lengths: np.ndarray | None) -> dict[str, Any]:
    """ONNX's query i stands at key past + i, and at the end of the keys where these have lengths."""
    left, right = (said.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if said.get("is_causal"):
        right = 0
    if left < 0 and right < 0:
        return {}
    if lengths is not None or past == s_k - s_q:
        align = "bottom_right"
    elif past == 0:
        align = "top_left"
    else:
        raise NotExpressible("a diagonal from neither corner")
    return {"window": tuple(None if side < 0 else side for side in (left, right)), "align": align}


def attention(said: dict[str, Any], x: Arrays) -> list[np.ndarray]:
    q = of_four(x["Q"], said.get("q_num_heads", 0))
    k, v = (of_four(x[name], said.get("kv_num_heads", 0)) for name in "KV")
    past = 0
    if "past_key" in x:
        past = x["past_key"].shape[2]
        k, v = (np.concatenate([x[f"past_{name}"], y], 2) for name, y in (("key", k), ("value", v)))
    lengths = x.get("nonpad_kv_seqlen")
    options = band(said, q.shape[2], k.shape[2], past, lengths)
    if lengths is not None:
        options["used_k"] = lengths.astype(np.int32)
    mask = x.get("attn_mask")
    if mask is not None:
        is_bool = mask.dtype == bool
        missing = k.shape[2] - mask.shape[-1]
        if missing > 0 and mask.shape[-1] > 1:  # keys that a mask does not reach are not seen
            filler = np.full((*mask.shape[:-1], missing), False if is_bool else -np.inf, mask.dtype)
            mask = np.concatenate([mask, filler], -1)
        options["mask" if is_bool else "bias"] = mask
    options.update(scale=said.get("scale"), softcap=said.get("softcap", 0.0), layout="bhsd")
    o = falchion.attention(*(np.ascontiguousarray(y) for y in (q, k, v)), **options)
    if x["Q"].ndim == 3:
        o = o.swapaxes(1, 2).reshape(*x["Q"].shape[:2], -1)
    return [o, k, v] if past else [o]


def flex_attention(said: dict[str, Any], x: Arrays) -> list[np.ndarray]:
    q, k, v = x["Q"], x["K"], x["V"]
    if "prob_mod" in said:
        raise NotExpressible("probabilities that are changed")
    if q.dtype == np.float64:
        raise NotExpressible("float64")
    options: dict[str, Any] = {"scale": said.get("scale")}
    if "score_mod" in said:
        graph = said["score_mod"]
        if [node.op_type for node in graph.node] == ["Div", "Tanh", "Mul"]:
            (cap,) = {float(onnx.numpy_helper.to_array(y)) for y in graph.initializer}
            options["softcap"] = cap
        else:  # scores to which something is added
            shape = (*q.shape[:3], k.shape[2])
            run = ReferenceEvaluator(onnx.helper.make_model(onnx.helper.make_graph(
                graph.node, "mod", graph.input, graph.output, graph.initializer)))  # fmt: skip
            (none,), (one,) = (
                run.run(None, {graph.input[0].name: number * np.ones(shape, np.float32)}) for number in (0, 1)
            )
            seen = np.isfinite(none)
            assert np.allclose(one[seen] - none[seen], 1)
            options["bias"] = none
    return [falchion.attention(q, k, v, layout="bhsd", **options)]


def gemm(said: dict[str, Any], x: Arrays) -> list[np.ndarray]:
    a, b = x["a"], x["b"]
    a = a.T if said.get("transA") else a
    b = b if said.get("transB") else b.T
    options: dict[str, Any] = {"alpha": said.get("alpha", 1.0)}
    if "c" in x:
        shape = (a.shape[0], b.shape[0])
        options.update(c=np.ascontiguousarray(np.broadcast_to(x["c"], shape)), beta=said.get("beta", 1.0))
    return [falchion.gemm(a, b, **options)]


def matmul(_: dict[str, Any], x: Arrays) -> list[np.ndarray]:
    a, b = x["a"], x["b"]
    shape = np.matmul(a, b).shape
    a = a[None] if a.ndim == 1 else a
    b = b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (np.broadcast_to(y, (*batch, *y.shape[-2:])).reshape(-1, *y.shape[-2:]) for y in (a, b))
    return [falchion.gemm(a, b.swapaxes(1, 2)).reshape(shape)]


def norm(function: Any, said: dict[str, Any], x: Arrays) -> list[np.ndarray]:
    axis = said.get("axis", -1) % x["X"].ndim
    rows = x["X"].reshape(*x["X"].shape[:axis], -1)
    options = {"bias": x["B"].ravel()} if "B" in x else {}
    made = function(
        rows, x["W"].ravel(), eps=said.get("epsilon", 1e-5), return_stats="B" in x, **options
    )
    if "B" not in x:
        return [made.reshape(x["X"].shape)]
    o, mean, rstd = made
    tail = (1,) * (x["X"].ndim - axis)
    return [o.reshape(x["X"].shape), *(y.reshape(*x["X"].shape[:axis], *tail) for y in (mean, rstd))]


RUN = {
    "Attention": attention,
    "FlexAttention": flex_attention,
    "Gemm": gemm,
    "MatMul": matmul,
    "LayerNormalization": lambda said, x: norm(falchion.layer_norm, said, x),
    "RMSNormalization": lambda said, x: norm(falchion.rms_norm, said, x),
}
CASES = collected()


@pytest.mark.parametrize("operator, name, case", CASES, ids=[name for _, name, _ in CASES])
def test_a_node(operator: str, name: str, case: Any) -> None:
    node = case.model.graph.node[0]
    said = {x.name: onnx.helper.get_attribute_value(x) for x in node.attribute}
    inputs, wanted = case.data_sets[0]
    arrays = {
        given: np.asarray(x) for given, x in zip((i for i in node.input if i), inputs, strict=True)
    }
    outputs = [output for output in node.output if output]
    try:
        found = RUN[operator](said, arrays)
    except NotExpressible as why:
        left_out[f"{operator}: {why}"] += 1
        pytest.skip(str(why))
    if "qk_matmul_output" in outputs:  # scores are never kept; the rest is compared
        left_out[f"{operator}: scores as an output, of which the rest runs"] += 1
        outputs.remove("qk_matmul_output")
    assert len(found) == len(outputs)
    for x, y in zip(found, wanted):
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        assert x.shape == y.shape and np.isfinite(x).all()
        limit = TOLERANCE[arrays[next(iter(arrays))].dtype.name] * max(np.abs(y).max(), 1)
        assert np.abs(x - y).max() <= limit, f"off by {np.abs(x - y).max()}, {limit} is allowed"
    ran[operator] += 1


def test_how_many_nodes_ran() -> None:
    whole = {reason: n for reason, n in left_out.items() if "of which the rest runs" not in reason}
    if ran.total() + sum(whole.values()) < len(CASES):
        pytest.skip("not all nodes were asked for, or one of them failed")
    print(f"ran: {dict(ran)}; left out: {dict(left_out)}")
    for operator, fewest in FEWEST.items():
        assert ran[operator] >= fewest, f"{operator}: {ran[operator]}; left out: {dict(left_out)}"
