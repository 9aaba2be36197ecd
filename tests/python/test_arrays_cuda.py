"""Arrays of PyTorch, CuPy and numba on a GPU: results, streams, threads, graphs and memory. Skipped where there is no
GPU, or where a library is missing."""

import contextlib
import math
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import falchion
import numpy as np
import pytest
import test_gemm
import test_norm
from numpy_support import DTYPES, LIMITS, definition, distance, normal, visible

BUSY = 100_000_000  # clocks: some 50 ms
SHAPES = ((2, 300, 8, 64), (2, 300, 4, 64), (2, 300, 4, 64), (2, 300, 8, 64))  # q, k, v, grad_o
SPIN = 'extern "C" __global__ void spin(long long n) { const long long t = clock64(); while (clock64() - t < n) {} }'


class Torch:
    types = ("float32", "float16", "bfloat16")
    raw: Callable[[Any], int] = staticmethod(lambda stream: int(stream.cuda_stream))

    def __init__(self) -> None:
        self.lib: Any = pytest.importorskip("torch", exc_type=ImportError)
        if not self.lib.cuda.is_available():
            pytest.skip("no GPU is here")
        self.stream, self.on, self.wait = self.lib.cuda.Stream, self.lib.cuda.stream, self.lib.cuda.synchronize
        self.spin = lambda: self.lib.cuda._sleep(BUSY)

    def put(self, x: Any) -> Any:
        return self.lib.tensor(np.asarray(x, np.float32)).cuda().to(getattr(self.lib, x.dtype.name))

    def get(self, x: Any) -> Any:
        return x.float().cpu().numpy()

    def copy(self, to: Any, x: Any) -> None:
        to.copy_(x)

    @contextlib.contextmanager
    def capture(self) -> Any:
        graph = self.lib.cuda.CUDAGraph()
        with self.lib.cuda.graph(graph):
            yield graph.replay


class Cupy:
    types = ("float32", "float16")
    raw: Callable[[Any], int] = staticmethod(lambda stream: int(stream.ptr))

    def __init__(self) -> None:
        self.lib: Any = pytest.importorskip("cupy")
        if not self.lib.cuda.is_available():
            pytest.skip("no GPU is here")
        self.put, self.get = self.lib.asarray, self.lib.asnumpy
        kernel = self.lib.RawKernel(SPIN, "spin")
        self.spin = lambda: kernel((1,), (1,), (np.int64(BUSY),))
        self.wait = self.lib.cuda.runtime.deviceSynchronize

    def stream(self) -> Any:
        return self.lib.cuda.Stream(non_blocking=True)

    def on(self, stream: Any) -> Any:
        return stream

    def copy(self, to: Any, x: Any) -> None:
        to[...] = x

    @contextlib.contextmanager
    def capture(self) -> Any:
        """What is allocated while a graph is captured comes from a pool that the graph keeps for itself."""
        pool, stream, found = self.lib.cuda.MemoryPool(), self.stream(), []
        with self.lib.cuda.using_allocator(pool.malloc), stream:
            self.lib.empty(1 << 22, np.uint8)  # nothing can be asked of the driver during the capture
            stream.begin_capture()
            yield lambda: (found[0].launch(stream), stream.synchronize(), pool)
            found.append(stream.end_capture())


class Numba:
    types = ("float32", "float16")

    def __init__(self) -> None:
        self.lib: Any = pytest.importorskip("numba.cuda")
        if not self.lib.is_available():
            pytest.skip("no GPU is here")
        self.put, self.get, self.wait = self.lib.to_device, lambda x: x.copy_to_host(), self.lib.synchronize

    def stream(self) -> Any:
        return self.lib.stream()

    @staticmethod
    def raw(stream: Any) -> int:
        return int(getattr(stream.handle, "value", stream.handle) or 0)


LIBRARIES: dict[str, Any] = {"torch": Torch, "cupy": Cupy, "numba": Numba}


@pytest.fixture(params=LIBRARIES)
def gpu(request: pytest.FixtureRequest) -> Any:
    return LIBRARIES[request.param]()


@pytest.fixture(params=["torch", "cupy"])
def streams(request: pytest.FixtureRequest) -> Any:
    """A library with streams of its own that work can be put on."""
    return LIBRARIES[request.param]()


def gradients(q: Any, k: Any, v: Any, grad_o: Any, seen: Any) -> list[Any]:
    """Those of q, k and v by their formulas, in float64."""
    q, k, v, grad_o = (np.asarray(x, np.float64) for x in (q, k, v, grad_o))
    group, scale = q.shape[2] // k.shape[2], 1 / math.sqrt(q.shape[3])
    o, lse = definition(q, k, v, seen)
    k_all, v_all = (np.repeat(x, group, 2) for x in (k, v))
    p = np.where(seen, np.exp(scale * np.einsum("bihd,bjhd->bhij", q, k_all) - lse[..., None]), 0)
    grad_p = np.einsum("bihd,bjhd->bhij", grad_o, v_all)
    grad_s = scale * p * (grad_p - (grad_o * o).sum(-1).swapaxes(1, 2)[..., None])
    by_head = [np.einsum("bhij,bihd->bjhd", x, y) for x, y in ((grad_s, q), (p, grad_o))]
    summed = [x.reshape(*x.shape[:2], -1, group, x.shape[3]).sum(3) for x in by_head]
    return [np.einsum("bhij,bjhd->bihd", grad_s, k_all), *summed]


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_passes(gpu: Any, dtype: str) -> None:
    if dtype not in gpu.types:
        pytest.skip("the library has no bfloat16")
    host = normal(1, *SHAPES, dtype=dtype)
    q, k, v, grad_o = map(gpu.put, host)
    o, lse = falchion.attention(q, k, v, causal=True, return_lse=True)
    grads = falchion.attention_backward(grad_o, q, k, v, o, lse, causal=True)
    seen = visible(300, 300, right=0)
    for found, want in zip((o, lse), definition(*host[:3], seen), strict=True):
        assert type(found) is type(q) and distance(gpu.get(found), want) < LIMITS[dtype]
    for found, want in zip(grads, gradients(*host, seen), strict=True):
        assert type(found) is type(q) and distance(gpu.get(found), want) < 3 * LIMITS[dtype]


def test_a_stream_that_is_named(gpu: Any) -> None:
    """By its number; out is given or made."""
    host = normal(2, *SHAPES[:3], dtype="float16")
    q, k, v = map(gpu.put, host)
    out, stream = gpu.put(np.full(SHAPES[0], 9, np.float16)), gpu.stream()
    gpu.wait()
    o = falchion.attention(q, k, v, stream=gpu.raw(stream))
    falchion.attention(q, k, v, out=out, stream=gpu.raw(stream))
    gpu.wait()
    assert distance(gpu.get(o), definition(*host)[0]) < LIMITS["float16"]
    assert np.array_equal(gpu.get(o), gpu.get(out))


def decode(lib: Any, seed: int) -> list[Any]:
    """A problem that splits its keys, so that its plan needs a workspace."""
    shapes = (1, 1, 8, 64), (1, 5000, 2, 64), (1, 5000, 2, 64)
    assert falchion.Plan(*shapes, dtype="float16", target="sm90").workspace_bytes > 1000
    return [lib.put(x) for x in normal(seed, *shapes, dtype="float16")]


@pytest.mark.parametrize("named", [False, True])
def test_two_busy_streams(streams: Any, named: bool) -> None:
    """Each call sees what was written before it on its own stream, and neither its workspace nor its output is anyone
    else's while the stream is still busy. `named`: the stream is not the current one, but is given by `stream=`."""
    problems = [decode(streams, seed) for seed in range(2)]
    want = [streams.get(falchion.attention(*x)) for x in problems]
    late = [decode(streams, 9)[0] for _ in problems]  # other numbers, until the streams come to them
    sides, found = [streams.stream() for _ in problems], []
    streams.wait()
    for side, x, q in zip(sides, problems, late, strict=True):
        with streams.on(side):
            streams.spin()
            streams.copy(q, x[0])
            if not named:
                found.append([falchion.attention(q, *x[1:]) for _ in range(20)])
        if named:
            found.append([falchion.attention(q, *x[1:], stream=side) for _ in range(20)])
    others = [falchion.attention(*problems[1]) for _ in range(20)]  # on the current stream, beside them
    streams.wait()
    for ours, expected in zip(found, want, strict=True):
        assert all(np.array_equal(streams.get(o), expected) for o in ours)
    assert all(np.array_equal(streams.get(o), want[1]) for o in others)


def test_two_threads_on_streams_of_their_own(streams: Any) -> None:
    problems = [[streams.put(x) for x in normal(seed, *SHAPES, dtype="float16")] for seed in range(2)]

    def both(q: Any, k: Any, v: Any, grad_o: Any) -> list[Any]:
        o, lse = falchion.attention(q, k, v, causal=True, return_lse=True)
        return [o, *falchion.attention_backward(grad_o, q, k, v, o, lse, causal=True)]

    want = [[streams.get(x) for x in both(*problem)] for problem in problems]
    streams.wait()

    def wrong(which: int) -> list[int]:
        found = []
        with streams.on(streams.stream()):
            for turn in range(50):
                results = [streams.get(x) for x in both(*problems[which])]
                if not all(map(np.array_equal, results, want[which])):
                    found.append(turn)
        return found

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(wrong, range(2))) == [[], []]


def test_a_graph_is_captured_and_replayed(streams: Any) -> None:
    """Two calls in one graph, the second on what the first made, with and without a workspace, on new numbers."""
    q, k, v = (streams.put(x) for x in normal(3, *[(1, 1, 8, 64)] + [(1, 5000, 8, 64)] * 2, dtype="float16"))

    def layers() -> Any:
        return falchion.attention(falchion.attention(q, k, v), v, k)

    layers()
    streams.wait()
    with streams.capture() as replay:
        o = layers()
    for seed in (4, 5):
        streams.copy(q, streams.put(normal(seed, (1, 1, 8, 64), dtype="float16")[0]))
        streams.wait()
        replay()
        streams.wait()
        found = streams.get(o).copy()
        assert np.array_equal(found, streams.get(layers()))


@pytest.mark.parametrize("library", LIBRARIES)
def test_memory_comes_back(library: str) -> None:
    """1e5 calls (numba: 1e4, for it asks the driver for each array), whose outputs and workspaces are made: 4 KB lost
    in each would be 400 MB."""
    gpu, calls = LIBRARIES[library](), 10_000 if library == "numba" else 100_000
    x = decode(gpu, 6)
    free = pytest.importorskip("torch", exc_type=ImportError).cuda.mem_get_info

    def run(count: int) -> None:
        for _ in range(count):
            falchion.attention(*x, return_lse=True)
        gpu.wait()

    run(2000)
    host, device = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, free()[0]
    run(calls)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - host < 20_000, "KB of the host"
    assert device - free()[0] < 1 << 24, "bytes of the GPU"


def test_gemms_and_norms(gpu: Any) -> None:
    for dtype in gpu.types:
        a, b, bias, residual = normal(9, (2, 65, 72), (80, 72), (80,), (2, 65, 80), dtype=dtype)
        theirs = [gpu.put(x) for x in (a, b, bias, residual)]
        options = {"bias": theirs[2], "residual": theirs[3], "activation": "silu"}
        want = test_gemm.definition(a, b, bias=bias, residual=residual, activation="silu")
        y = falchion.gemm(theirs[0], theirs[1], **options)
        assert type(y) is type(theirs[0]) and distance(gpu.get(y), want) < 2 * LIMITS[dtype]
        out = gpu.put(np.zeros_like(residual))
        assert falchion.gemm(theirs[0], theirs[1], out=out, **options) is out
        assert np.array_equal(gpu.get(out), gpu.get(y))
        (wide,) = normal(10, (2, 65, 80))  # a stream of residuals in float32
        want = test_norm.definition("rms", residual, bias, residual=wide)
        y, summed = falchion.rms_norm(theirs[3], theirs[2], residual=gpu.put(wide))
        assert distance(gpu.get(y), want[0]) < 2 * LIMITS[dtype] and distance(gpu.get(summed), want[1]) < 1e-6
        y, mean, rstd = falchion.layer_norm(theirs[3], theirs[2], theirs[2], out_dtype="float32", return_stats=True)
        want = test_norm.definition("layer", residual, bias, bias)
        for got, exact in zip((y, mean, rstd), (want[0], want[2], want[3]), strict=True):
            assert gpu.get(got).dtype == np.float32 and distance(gpu.get(got), exact) < 1e-5
