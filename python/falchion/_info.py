"""info(): what this package is and what it found on this machine, as texts and as facts for programs."""

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """The GPU that is current."""

    name: str
    sm: int  # its architecture: 90
    multiprocessors: int
    memory_gib: int


@dataclass(frozen=True)
class Kernels:
    """The kernels of one operation on one level of a backend."""

    operation: str
    backend: str
    level: str
    d: int | None  # the head dim that they are for, where they are for one
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """What info() says, for programs."""

    version: str
    module: str  # the package's file
    command: str | None  # the falchion command inside of the package, where the wheel has one
    compiler: str
    threads: int  # of the CPU, by default
    openmp: bool
    cpu_levels: tuple[str, ...]  # usable here, the fastest first
    cpu_levels_missing: dict[str, str]  # the others, each with the reason
    gpu: Gpu | None
    gpu_missing: str  # why there is none, or ""
    variants_built: int
    variants_listed: int
    kernels: tuple[Kernels, ...] = field(repr=False)


class Info(dict[str, str]):
    """Short texts by name, as the command prints them; `facts` is the same for programs."""

    facts: Facts

    def __init__(self, texts: dict[str, str], facts: Facts) -> None:
        super().__init__(texts)
        self.facts = facts

    def __reduce__(self) -> Any:
        return Info, (dict(self), self.facts)


def _levels(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """ "amx, neon (no: not an ARM), generic" """
    usable, missing = [], {}
    for name, why in re.findall(r"([a-z0-9_]+)(?: \(no: ([^)]*(?:\([^)]*\)[^)]*)*)\))?(?:, |$)", text):
        if why:
            missing[name] = why
        else:
            usable.append(name)
    return tuple(usable), missing


def _gpu(text: str) -> tuple[Gpu | None, str]:
    """ "NVIDIA H200 (sm_90), 132 SMs, 139 GiB", or "none: ..." """
    found = re.fullmatch(r"(.*) \(sm_(\d+)\), (\d+) SMs, (\d+) GiB", text)
    if found is None:
        return None, text.removeprefix("none: ")
    return Gpu(found[1], *(int(number) for number in found.groups()[1:])), ""


def _kernels(text: str) -> tuple[int, int, tuple[Kernels, ...]]:
    """ "91 of 270; gemm cpu amx: bf16 e4m3; attention_forward sm90 plain brief d64: bf16" """
    counts, *parts = text.split("; ")
    built, listed = (int(number) for number in counts.split(" of "))
    kernels = []
    for part in parts:
        place, _, types = part.partition(": ")
        operation, backend, *level = place.split(" ")
        sized = re.fullmatch(r"d(\d+)", level[-1]) if level else None
        names = level[:-1] if sized else level
        dtypes = tuple(dict.fromkeys(types.split()))
        kernels.append(Kernels(operation, backend, " ".join(names), int(sized[1]) if sized else None, dtypes))
    return built, listed, tuple(kernels)


def info() -> Info:
    """What this package is and what it found on this machine: compiler, CPU levels, GPUs, kernels.

    The result is a dictionary of short texts; its `facts` is a Facts, the same for programs.
    """
    import falchion
    from falchion import _command, _fal

    texts = {"falchion": falchion.__version__, "module": str(falchion.__file__)}
    for line in _fal.build_info().splitlines()[1:]:
        if line.strip():
            texts[line[:10].strip()] = line[10:].strip()  # a name of one or two words, then spaces up to column 11
    usable, missing = _levels(texts["cpu levels"])
    gpu, no_gpu = _gpu(texts["gpus"])
    built, listed, kernels = _kernels(texts["variants"])
    threads = re.search(r"\d+", texts["threads"])
    facts = Facts(
        version=texts["falchion"],
        module=texts["module"],
        command=_command.path(),
        compiler=texts.get("compiler", ""),
        threads=int(threads[0]) if threads else 0,
        openmp=texts["threads"].startswith("OpenMP"),
        cpu_levels=usable,
        cpu_levels_missing=missing,
        gpu=gpu,
        gpu_missing=no_gpu,
        variants_built=built,
        variants_listed=listed,
        kernels=kernels,
    )
    return Info(texts, facts)
