"""verify(): does this installation compute attention? A table of problems, each backend against the definition."""

from dataclasses import asdict, dataclass
from typing import Any

from falchion import _fal
from falchion._names import own_names
from falchion._problems import DTYPES, Maker, Progress

# How far a tensor may be off: the largest difference, divided by the largest number of the definition's tensor or by 1
# where that is smaller. P and O are rounded to the type, so it is a few of its units: 2^-24, 2^-11 and 2^-8. This is a
# check of an installation. The rule that kernels are held to is that of `falchion verify`, in docs/contract.md.
LIMITS = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Problem:
    """One line of the table."""

    name: str
    b: int = 2
    s_q: int = 100
    s_k: int = 100
    h_q: int = 4
    h_k: int = 4
    d: int = 64
    d_v: int = 64
    options: tuple[tuple[str, Any], ...] = ()
    extra: str = ""  # an array that the problem has besides: "bias", "mask", "alibi" or "used_k"


PROBLEMS = (
    Problem("full"),
    Problem("causal", options=(("causal", True),)),
    Problem("chunk", s_q=33, s_k=129, options=(("causal", "bottom_right"),)),
    Problem("top left", s_q=129, s_k=33, options=(("causal", "top_left"),)),
    Problem("window", options=(("window", (17, 5)),)),
    Problem("GQA", h_q=6, h_k=2, d=128, d_v=128, options=(("causal", True),)),
    Problem("decode", b=3, s_q=1, s_k=333, h_q=8, h_k=2, d=128, d_v=128),
    Problem("softcap", options=(("softcap", 5.0),)),
    Problem("odd head dims", d=40, d_v=24),
    Problem("alibi", extra="alibi", options=(("causal", True),)),
    Problem("bias", extra="bias"),
    Problem("mask", extra="mask"),
    Problem("used lengths", extra="used_k"),
    Problem("dropout", options=(("dropout", 0.25), ("seed", 7))),
)


@dataclass(frozen=True)
class Check:
    """What came out of one problem in one type on one backend."""

    problem: str
    dtype: str
    backend: str
    forward: float | None = None  # the largest error, as LIMITS means it
    backward: float | None = None
    limit: float = 0.0
    skipped: str = ""  # why it was not run

    @property
    def ok(self) -> bool:
        errors = [e for e in (self.forward, self.backward) if e is not None]
        return bool(self.skipped) or all(e <= self.limit for e in errors)  # a NaN is not below


class Verification(list[Check]):
    """The checks of one verify(). `ok` says whether all that ran are within their limits, and at least one ran."""

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self) and any(not check.skipped for check in self)

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(check) | {"ok": check.ok} for check in self]

    def __str__(self) -> str:
        lines = [f"{'problem':14} {'type':9} {'backend':7} {'forward':>9} {'backward':>9} {'limit':>7}"]
        for c in self:
            if c.skipped:
                lines.append(f"{c.problem:14} {c.dtype:9} {c.backend:7} skipped: {c.skipped}")
                continue
            forward, backward = (f"{e:9.2g}" if e is not None else f"{'':9}" for e in (c.forward, c.backward))
            lines.append(
                f"{c.problem:14} {c.dtype:9} {c.backend:7} {forward} {backward} {c.limit:7.0e}"
                + ("" if c.ok else "  FAILED")
            )
        ran = [c for c in self if not c.skipped]
        lines.append(f"{sum(c.ok for c in ran)} of {len(ran)} are within their limits; {len(self) - len(ran)} skipped")
        return "\n".join(lines)

    __repr__ = __str__


def _extra(problem: Problem, maker: Maker) -> Any:
    numpy = maker.numpy
    pairs = (problem.b, problem.h_q, problem.s_q, problem.s_k)
    if problem.extra == "alibi":
        return numpy.exp2(-numpy.arange(1, problem.h_q + 1)).astype(numpy.float32)
    if problem.extra == "bias":
        return maker.normal(*pairs)
    if problem.extra == "mask":
        return maker.random.random(pairs) < 0.7
    return numpy.array([problem.s_k, problem.s_k // 3][: problem.b], dtype=numpy.int32)


def _error(numpy: Any, got: Any, want: Any) -> float:
    """The largest difference over the largest number, or over 1. NaN and infinities in other places give NaN."""
    finite = numpy.isfinite(want)
    if not numpy.array_equal(got[~finite], want[~finite], equal_nan=True):
        return float("nan")
    got, want = got[finite].astype(numpy.float64), want[finite].astype(numpy.float64)
    if want.size == 0:
        return 0.0
    return float(numpy.abs(got - want).max() / max(1.0, numpy.abs(want).max()))


def _run(problem: Problem, dtype: str, backend: str, maker: Maker, threads: int) -> Check:
    shapes = (
        (problem.b, problem.s_q, problem.h_q, problem.d),
        (problem.b, problem.s_k, problem.h_k, problem.d),
        (problem.b, problem.s_k, problem.h_k, problem.d_v),
        (problem.b, problem.s_q, problem.h_q, problem.d_v),
    )
    pairs = [maker.rounded(maker.normal(*shape), dtype) for shape in shapes]
    (q, k, v, grad_o), (exact_q, exact_k, exact_v, exact_grad) = zip(*pairs, strict=True)
    options: dict[str, Any] = dict(problem.options)
    theirs: dict[str, Any] = dict(options)
    if problem.extra:
        extra = _extra(problem, maker)
        theirs[problem.extra], options[problem.extra] = extra, maker.there(extra)
    options |= {"backend": backend, "threads": threads}
    theirs["backend"] = "ref"
    check: dict[str, Any] = {"problem": problem.name, "dtype": dtype, "limit": LIMITS[dtype]}
    want_o, want_lse = _fal.attention(exact_q, exact_k, exact_v, return_lse=True, **theirs)
    try:
        o, lse = _fal.attention(q, k, v, return_lse=True, **options)
        maker.wait()
    except _fal.Unsupported as why:
        return Check(**check, backend=backend, skipped=str(why))
    planned = {name: value for name, value in options.items() if name != "seed"}
    check["backend"] = _fal.Plan(q, k, v, **planned).backend  # which of them "best" was
    check["forward"] = max(_error(maker.numpy, maker.back(a), b) for a, b in ((o, want_o), (lse, want_lse)))
    want = _fal.attention_backward(exact_grad, exact_q, exact_k, exact_v, want_o, want_lse, **theirs)
    try:
        grads = _fal.attention_backward(grad_o, q, k, v, o, lse, **options)
        maker.wait()
    except _fal.Unsupported:
        return Check(**check)
    check["backward"] = max(_error(maker.numpy, maker.back(a), b) for a, b in zip(grads, want, strict=True))
    return Check(**check)


@own_names
def verify(
    *, device: str = "cpu", backend: str = "best", dtypes: tuple[str, ...] = DTYPES, threads: int = 0, seed: int = 0
) -> Verification:
    """Checks attention and its gradients on this machine against the definition, which computes in double.

    device: "cpu", with arrays of NumPy; or "cuda", "cuda:1", with tensors of PyTorch.
    backend, threads: as in attention. dtypes: which types to check.

    It takes a second or two. The result is a list of Check with `ok` and a table as its text. On a terminal one line
    tells the progress. Raises what attention raises, but a backend that lacks a kernel makes the check `skipped`.
    """
    maker, progress, checks = Maker(device, seed), Progress(), Verification()
    for dtype in dtypes:
        if dtype not in LIMITS:
            raise _fal.Invalid(f"dtype = {dtype!r}: it is one of {', '.join(DTYPES)}")
        why = maker.why_not(dtype)
        for problem in PROBLEMS:
            progress.say(f"{len(checks)} of {len(dtypes) * len(PROBLEMS)}: {problem.name} {dtype}")
            checks.append(
                Check(problem.name, dtype, backend, skipped=why)
                if why
                else _run(problem, dtype, backend, maker, threads)
            )
    progress.done()
    return checks
