"""Threads that share a plan, processes that are forked, and memory and references that come back."""

import contextlib
import ctypes
import gc
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import falchion
import numpy as np
from numpy_support import normal

SHAPE = (1, 64, 4, 32)


def test_threads_share_a_plan() -> None:
    """Each thread has its own workspace. An exception in one of them fails the test, for the result of each is asked for."""
    inputs = [normal(seed, *[SHAPE] * 3) for seed in range(4)]
    plan = falchion.Plan(SHAPE, dtype="float32", causal=True, threads=1)
    want = [falchion.attention(*x, causal=True, threads=1) for x in inputs]

    def wrong(x: Any, expected: Any) -> list[int]:
        out, found = np.empty(SHAPE, np.float32), []
        for turn in range(200):
            if turn % 2:
                plan(*x, out=out)
            else:
                falchion.attention(*x, causal=True, threads=1, out=out)
            if not np.array_equal(out, expected):
                found.append(turn)
        return found

    with ThreadPoolExecutor(len(inputs)) as threads:
        assert list(threads.map(wrong, inputs, want)) == [[]] * len(inputs)


def test_a_plan_that_is_forgotten_while_it_runs() -> None:
    """The cache is emptied, and filled over, by one thread while others run the plans of it."""
    x = normal(5, *[(1, 256, 4, 32)] * 3)
    want = falchion.attention(*x, threads=1)
    stop = threading.Event()

    def wrong() -> int:
        found = 0
        while not stop.is_set():
            found += not np.array_equal(falchion.attention(*x, threads=1), want)
        return found

    small = normal(6, *[(1, 2, 1, 8)] * 3)
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(wrong) for _ in range(2)]
        try:
            for _ in range(30):
                for window in range(70):
                    falchion.attention(*small, window=(window, 0))
                falchion.plan_cache_clear()
        finally:
            stop.set()
        assert [thread.result() for thread in running] == [0, 0]


def ticks_during(call: Callable[[], Any]) -> tuple[int, float]:
    """How often another thread came to read the clock within a call, its first and last tenth left out, and the seconds
    that the call took. While a call holds the GIL no other thread reads it."""
    times: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            times.append(time.perf_counter())
            time.sleep(0.0005)

    with ThreadPoolExecutor(1) as threads:
        ticking = threads.submit(tick)
        try:
            time.sleep(0.01)
            start = time.perf_counter()
            call()
            took = time.perf_counter() - start
        finally:
            stop.set()
        ticking.result()
    return sum(start + 0.1 * took < at < start + 0.9 * took for at in times), took


def test_the_gil_is_free_while_the_engine_runs() -> None:
    x = normal(7, *[(1, 1500, 8, 64)] * 3)
    ticks, took = ticks_during(lambda: falchion.attention(*x, threads=1))
    assert took > 0.01 and ticks >= 3


def test_a_call_that_holds_the_gil_would_be_seen() -> None:
    """PyDLL keeps the GIL, as a call of ours must not."""
    ticks, took = ticks_during(lambda: ctypes.PyDLL(None).usleep(50000))
    assert took > 0.04 and ticks == 0


def test_fork() -> None:
    """A child of a process that has run on all threads can run too. It is a process of its own, so that pytest's threads
    and files stay out of it."""
    program = """
import os, sys, numpy as np, falchion
x = [np.random.default_rng(1).standard_normal((1, 300, 8, 32), dtype=np.float32) for _ in range(3)]
want = falchion.attention(*x, causal=True, threads=2)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(falchion.attention(*x, causal=True, threads=2), want) else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(falchion.attention(*x, causal=True, threads=2), want)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=os.environ)


def test_another_interpreter_is_refused() -> None:
    """What is static in the module belongs to one interpreter. A sub-interpreter gets an ImportError in words."""
    program = r"""
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
import falchion
other = interpreters.create()
run(other, f"import sys; sys.path[:] = {sys.path!r}\ntry: import falchion\nexcept ImportError as why: print(why, flush=True)")
import falchion._fal as before
del sys.modules["falchion._fal"]
import falchion._fal as again
assert again is before and falchion.version()
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("falchion works in one interpreter of a process")


def test_references_come_back() -> None:
    q, k, v, grad_o = normal(8, *[(1, 4, 2, 8)] * 4)
    mask, slopes = np.ones((4, 4), bool), np.ones(2, np.float32)
    starts, lse = np.array([0, 4], np.int32), np.zeros((1, 2, 4), np.float32)
    out, half = np.zeros(q.shape, np.float32), np.zeros(q.shape, np.float16)
    rows, row = normal(12, (8, 8), (8,))
    types = [np.dtype(np.float32), np.dtype(np.float16)]
    objects = [q, k, v, grad_o, mask, slopes, starts, lse, out, half, rows, row, *types]

    def once() -> None:
        o, l = falchion.attention(q, k, v, mask=mask, alibi=slopes, return_lse=True, lse=lse)
        falchion.attention(q, k, v, out=out)
        falchion.attention_backward(grad_o, q, k, v, o, l, alibi=slopes, mask=mask)
        falchion.attention_backward(grad_o, q, k, v, o, l, grads=(out, None, None))
        falchion.varlen(q[0], k[0], v[0], starts, starts)
        falchion.linear_attention(q, k, v, return_state=True, normalise=True)
        falchion.merge(o, l, o, l)
        falchion.gemm(rows, rows, bias=row, bias_m=row, c=rows, residual=rows, out_dtype="float32")
        falchion.layer_norm(q, row, row, residual=k, out=out, return_stats=True)
        falchion.rms_norm(q, residual=half, out_dtype="float16")
        for wrong in ({"b": q}, {"bias": lse}, {"out": rows}, {"out_dtype": 3}):
            with contextlib.suppress(falchion.Error):
                falchion.gemm(**({"a": rows, "b": rows} | wrong))
            with contextlib.suppress(falchion.Error, TypeError):
                falchion.layer_norm(q, **wrong)
        plan = falchion.Plan(q, mask=mask, return_lse=True)
        plan(q, k, v, mask=mask, lse=lse)
        for arguments, options in (
            ((q, k, [1]), {}),
            ((q, k[:, :3], v), {}),
            ((q, k, v), {"window": (1, "x")}),
            ((q, k, v), {"out": q}),
            ((q, k, v), {"sinks": 1}),
        ):
            try:
                falchion.attention(*arguments, **options)
            except (falchion.Error, TypeError):
                pass

    for _ in range(500):  # caches of Python's own fill up
        once()
    gc.collect()
    before = [sys.getrefcount(x) for x in objects]
    grown = []
    for _ in range(3):  # a block that is lost in one of the calls would be 500 each time; Python's own caches settle
        blocks = sys.getallocatedblocks()
        for _ in range(500):
            once()
        gc.collect()
        grown.append(sys.getallocatedblocks() - blocks)
        if grown[-1] < 250:
            break
    assert [sys.getrefcount(x) for x in objects] == before
    assert min(grown) < 250


def test_memory_comes_back() -> None:
    """1e5 calls, with arrays that are made: at 8 KB each a leak would be 800 MB."""
    q, k, v = normal(9, *[(1, 8, 8, 32)] * 3)
    for _ in range(1000):
        falchion.attention(q, k, v, threads=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100000):
        falchion.attention(q, k, v, return_lse=True, threads=1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20000


def test_memory_of_gemms_and_norms_comes_back() -> None:
    a, b = normal(13, (32, 16), (64, 16))
    x, weight = normal(14, (32, 64), (64,))

    def once() -> None:
        y = falchion.gemm(a, b, bias=weight, residual=x, activation="silu", threads=1)
        falchion.layer_norm(y, weight, residual=x, return_stats=True, threads=1)

    for _ in range(1000):
        once()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100000):
        once()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20000


def test_the_gil_is_free_while_a_gemm_runs() -> None:
    a, b = normal(15, (1500, 700), (1500, 700))
    ticks, took = ticks_during(lambda: falchion.gemm(a, b, threads=1))
    assert took > 0.01 and ticks >= 3


def test_threads_share_gemms_and_norms() -> None:
    inputs = [normal(seed, (40, 64), (64, 64), (64,)) for seed in range(4)]

    def both(a: Any, b: Any, weight: Any) -> Any:
        return falchion.rms_norm(falchion.gemm(a, b, bias=weight, residual=a, threads=1), weight, threads=1)

    want = [both(*x) for x in inputs]

    def wrong(x: Any, expected: Any) -> int:
        return sum(not np.array_equal(both(*x), expected) for _ in range(300))

    with ThreadPoolExecutor(len(inputs)) as threads:
        assert list(threads.map(wrong, inputs, want)) == [0] * len(inputs)


def test_workspaces_can_be_released() -> None:
    q, k, v = normal(10, *[(1, 100, 4, 64)] * 3)
    want = falchion.attention(q, k, v)
    falchion.release_workspaces()
    assert np.array_equal(falchion.attention(q, k, v), want)
    falchion.release_workspaces()
    falchion.release_workspaces()


def test_types_that_come_and_go() -> None:
    """Classes are remembered by the module, but not all of them for ever."""
    q, k, v = normal(11, *[(1, 4, 2, 8)] * 3)
    want = falchion.attention(q, k, v)
    for turn in range(100):
        kind = type(f"Array{turn}", (np.ndarray,), {})
        o = falchion.attention(q.view(kind), k.view(kind), v.view(kind))
        assert np.array_equal(o, want)


def test_import_needs_nothing_and_is_fast() -> None:
    program = """
import sys, time
start = time.process_time()
import falchion
took = time.process_time() - start
assert not {"numpy", "torch", "jax", "json"} & set(sys.modules), sorted(sys.modules)
print(took)
"""
    times = [
        float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.03  # of CPU time, so that a busy machine does not count; 3 ms, see bench/python_overhead.py
