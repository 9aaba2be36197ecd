"""Whatever is given, there is a result or an exception, and the process lives on."""

import ctypes
import functools
import random
import types

import falchion
import numpy as np
from numpy_support import normal
from test_foreign_arrays import Strange, raises

Q, K, V = normal(1, (2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 2, 8))
OPEN, STARTS = np.array([0, 2, 5], np.int32), np.array([0, 5], np.int32)


class Empty(ctypes.Structure):
    """Its elements have 0 bytes."""


def test_random_arguments() -> None:
    """Whatever is given, there is a result or an exception of ours or of Python's, and the process lives on."""
    draw = random.Random(7)
    numbers = [0, 1, -1, 3, 2**31, -(2**31), 2**63, 2**64, 10**30, 0.5, -0.0, float("inf"), float("nan"), True]
    things = [
        *numbers,
        None,
        "x",
        "best",
        "cpu",
        "silu",
        "float16",
        b"x",
        [],
        (),
        {},
        object(),
        Q,
        K,
        V,
        Q[..., ::2],
        Q[:0],
        Q[0],
        OPEN,
        STARTS,
        Q.astype(np.float16),
        np.zeros((5, 5), bool),
        np.zeros((), np.float32),
        np.zeros((2, 4), np.float32),
        np.zeros(Q.shape, "V0"),
        memoryview((Empty * 3)()),
        memoryview(b"abc"),
        Strange(),
        Strange(capsule=raises(ValueError)),
        (1, 2),
        (None, None),
        (-3, 10**20),
        int,
        Q.shape,
    ]
    functions = [
        falchion.attention,
        falchion.attention_backward,
        falchion.varlen,
        falchion.varlen_backward,
        falchion.linear_attention,
        falchion.linear_attention_backward,
        falchion.gemm,
        falchion.layer_norm,
        falchion.rms_norm,
        falchion.merge,
        falchion.validate_lengths,
        falchion.Plan,
        falchion.explain,
        functools.partial(falchion.explain, op="gemm", dtype="float32"),
        functools.partial(falchion.explain, op="layer_norm"),
    ]
    names = [
        "causal",
        "window",
        "align",
        "scale",
        "softcap",
        "alibi",
        "bias",
        "mask",
        "dropout",
        "seed",
        "offset",
        "used_q",
        "used_k",
        "first_k",
        "layout",
        "backend",
        "threads",
        "stream",
        "return_lse",
        "out",
        "lse",
        "grads",
        "max_q",
        "decay",
        "initial_state",
        "cu_seqlens",
        "segments",
        "normalise",
        "return_state",
        "dtype",
        "target",
        "frozen",
        "grad_bias",
        "accumulate",
        "grad_state",
        "state_out",
        "sequences",
        "a",
        "b",
        "c",
        "bias_m",
        "residual",
        "activation",
        "alpha",
        "beta",
        "out_dtype",
        "x",
        "weight",
        "eps",
        "zero_centered",
        "return_stats",
        "residual_out",
    ]
    results = 0
    for _ in range(20000):
        function = draw.choice(functions)
        usual = [Q, Q, Q, Q, Q, Q] if draw.random() < 0.7 else [Q[0], K[0], V[0], STARTS]
        arguments = [draw.choice(things) if draw.random() < 0.15 else x for x in usual][: draw.randrange(7)]
        keywords = {name: draw.choice(things) for name in draw.sample(names, draw.randrange(4))}
        keywords["threads"] = 1
        try:
            function(*arguments, **keywords)
            results += 1
        except (
            falchion.Error,
            TypeError,
            ValueError,
            IndexError,
            OverflowError,
            BufferError,
            AttributeError,
            MemoryError,
        ):
            pass
    assert results > 100
