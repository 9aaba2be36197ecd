"""bench(): how fast attention is here. `falchion bench`, the command, also measures the machine's own limits."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from falchion import _fal
from falchion._names import own_names
from falchion._problems import Maker, Progress
from falchion.plan import Plan


@dataclass(frozen=True)
class Measurement:
    """One line of the table: the median of `repeats` runs."""

    operation: str
    dtype: str
    shape: tuple[int, int, int, int]
    causal: bool
    plan: str
    microseconds: float
    tflops: float  # 10^12 floating-point operations a second, of the pairs that the band lets see each other
    repeats: int


class Benchmark(list[Measurement]):
    """The measurements of one bench(), with a table as their text."""

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(measurement) for measurement in self]

    def __str__(self) -> str:
        lines = [f"{'operation':9} {'type':9} {'b s h d':18} {'band':7} {'us':>10} {'TFLOP/s':>8}  plan"]
        lines += [
            f"{m.operation:9} {m.dtype:9} {' '.join(map(str, m.shape)):18} {'causal' if m.causal else 'full':7} "
            f"{m.microseconds:10.1f} {m.tflops:8.3f}  {m.plan}"
            for m in self
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _seconds(call: Any, maker: Maker, repeats: int) -> float:
    """The median time of a call. On a GPU each is timed to its end, with the launch in it."""
    times = []
    for _ in range(repeats + 1):  # the first one warms up
        maker.wait()
        start = time.perf_counter()
        call()
        maker.wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _calls(inputs: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Both passes on (q, k, v, grad_o), into arrays that are there."""
    q, k, v, grad_o = inputs
    o, lse = _fal.attention(q, k, v, return_lse=True, **options)
    grads = _fal.attention_backward(grad_o, q, k, v, o, lse, **options)
    return {
        "forward": lambda: _fal.attention(q, k, v, out=o, **options),
        "backward": lambda: _fal.attention_backward(grad_o, q, k, v, o, lse, grads=grads, **options),
    }


@own_names
def bench(
    shape: tuple[int, int, int, int] = (1, 1024, 8, 64),
    *,
    dtypes: tuple[str, ...] = ("float32", "bfloat16"),
    device: str = "cpu",
    backend: str = "best",
    threads: int = 0,
    repeats: int = 7,
) -> Benchmark:
    """Measures attention and its gradients on random numbers of one shape (b, s, h, d), full and causal.

    device: "cpu", with arrays of NumPy; or "cuda", "cuda:1", with tensors of PyTorch. backend, threads: as in attention.

    The result is a list of Measurement with a table as its text. Types that there are no arrays of are left out. On a
    terminal one line tells the progress. Raises what attention raises.
    """
    maker, progress, results = Maker(device), Progress(), Benchmark()
    if repeats < 1:
        raise _fal.Invalid(f"repeats = {repeats}: it must be 1 or more")
    for dtype in dtypes:
        if maker.why_not(dtype):
            continue
        inputs = tuple(maker.rounded(maker.normal(*shape), dtype)[0] for _ in range(4))
        for causal in (False, True):
            options: dict[str, Any] = {"causal": causal, "backend": backend, "threads": threads}
            for operation, call in _calls(inputs, options).items():
                progress.say(f"{operation} {dtype} {'causal' if causal else 'full'}")
                story = Plan(*inputs[:3], backward=operation == "backward", **options).explain().json
                seconds = _seconds(call, maker, repeats)
                rate = story["work"]["flops"] / seconds / 1e12
                results.append(
                    Measurement(operation, dtype, shape, causal, story["describe"], seconds * 1e6, rate, repeats)
                )
    progress.done()
    return results
