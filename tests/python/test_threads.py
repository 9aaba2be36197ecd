"""Threads that share a plan, processes that are forked, and memory and references that come back."""

import gc
import os
import resource
import subprocess
import sys
import threading
from typing import Any

import falchion
import numpy as np
from numpy_support import normal

SHAPE = (1, 64, 4, 32)


def test_threads_share_a_plan() -> None:
    """Each thread has its own workspace, and the GIL is free while the engine runs."""
    inputs = [normal(seed, *[SHAPE] * 3) for seed in range(4)]
    plan = falchion.Plan(SHAPE, dtype="float32", causal=True, threads=1)
    want = [falchion.attention(*x, causal=True, threads=1) for x in inputs]
    wrong: list[Any] = []

    def work(x: Any, expected: Any) -> None:
        out = np.empty(SHAPE, np.float32)
        for turn in range(200):
            if turn % 2:
                plan(*x, out=out)
            else:
                falchion.attention(*x, causal=True, threads=1, out=out)
            if not np.array_equal(out, expected):
                wrong.append(turn)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, want, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_plan_that_is_forgotten_while_it_runs() -> None:
    """The cache is emptied, and filled over, by one thread while others run the plans of it."""
    x = normal(5, *[(1, 256, 4, 32)] * 3)
    want = falchion.attention(*x, threads=1)
    stop = threading.Event()
    wrong: list[int] = []

    def work() -> None:
        while not stop.is_set():
            if not np.array_equal(falchion.attention(*x, threads=1), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    small = normal(6, *[(1, 2, 1, 8)] * 3)
    for turn in range(30):
        for window in range(70):
            falchion.attention(*small, window=(window, 0))
        falchion.plan_cache_clear()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_gil_is_free_while_the_engine_runs() -> None:
    x = normal(7, *[(1, 1500, 8, 64)] * 3)
    counted = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    falchion.attention(*x, threads=1)  # some 50 ms; with the GIL held nothing would be counted
    during = counted[0] - before
    stop.set()
    thread.join()
    assert during > 100


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


def test_references_come_back() -> None:
    q, k, v, grad_o = normal(8, *[(1, 4, 2, 8)] * 4)
    mask, slopes = np.ones((4, 4), bool), np.ones(2, np.float32)
    starts, lse = np.array([0, 4], np.int32), np.zeros((1, 2, 4), np.float32)
    out = np.zeros(q.shape, np.float32)
    objects = [q, k, v, grad_o, mask, slopes, starts, lse, out, np.dtype(np.float32)]

    def once() -> None:
        o, l = falchion.attention(q, k, v, mask=mask, alibi=slopes, return_lse=True, lse=lse)
        falchion.attention(q, k, v, out=out)
        falchion.attention_backward(grad_o, q, k, v, o, l, alibi=slopes, mask=mask)
        falchion.attention_backward(grad_o, q, k, v, o, l, grads=(out, None, None))
        falchion.varlen(q[0], k[0], v[0], starts, starts)
        falchion.linear_attention(q, k, v, return_state=True, normalise=True)
        falchion.merge(o, l, o, l)
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
    blocks = sys.getallocatedblocks()
    for _ in range(500):
        once()
    gc.collect()
    assert [sys.getrefcount(x) for x in objects] == before
    assert sys.getallocatedblocks() - blocks < 250  # one block lost in one of the calls would be 500


def test_memory_comes_back() -> None:
    """1e5 calls, with arrays that are made: at 8 KB each a leak would be 800 MB."""
    q, k, v = normal(9, *[(1, 8, 8, 32)] * 3)
    for _ in range(1000):
        falchion.attention(q, k, v, threads=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100000):
        falchion.attention(q, k, v, return_lse=True, threads=1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20000


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
