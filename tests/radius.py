#!/usr/bin/env python3
# tests/radius.py: how many kernels a change rebuilds, counted by following #includes from what CMake compiles for each
# line of variants.def, and from the kernels that run after them (src/gpu). It fails where a number is above its limit.
#   tests/radius.py          the table, and whether it keeps the limits
#   tests/radius.py FILE...  the same of other files, as src/args/view.hpp
# Both sides of an #if count, so a CPU level may have less than this says.
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLIC = sorted((ROOT / "include/falchion").glob("*.h*"))
# (what is changed, files, the most GPU objects, the most CPU objects; None: no limit)
LIMITS = [
    ("a tile of a GEMM", ["src/tiles/gemm/tiles.def"], 25, 0),
    ("a tile of attention, forward", ["src/tiles/attention_forward/tiles.def"], 60, 0),
    ("a tile of attention, backward", ["src/tiles/attention_backward/tiles.def"], 27, 0),
    ("a tile of linear attention", ["src/tiles/linear_attention/tiles.def"], 48, 0),
    ("a field of AttentionCall", ["src/args/attention_call.hpp"], 125, 36),
    ("a field of GemmCall", ["src/args/gemm_call.hpp"], 25, 27),
    ("a field of LinearAttentionCall", ["src/args/linear_attention_call.hpp"], 48, 36),
    ("a field of NormCall", ["src/args/norm_call.hpp"], 3, 12),
    ("a public header", PUBLIC, 0, 0),
    ("the plan", sorted((ROOT / "src/plan").glob("*.hpp")), 0, 0),
    ("View", ["src/args/view.hpp"], None, None),
]


@functools.cache
def closure(path):
    """The file and all of ours that it includes."""
    seen, todo = set(), [path]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo += included(file)
    return seen


@functools.cache
def included(path):
    return includes_of(path.read_text(), path.parent)


def includes_of(text, folder):
    found = []
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        tries = [f for f in (folder / name, ROOT / "src" / name, ROOT / "include" / name) if f.is_file()]
        if not tries:
            sys.exit(f"{folder}: there is no {name}")
        found.append(tries[0])
    return found


def entry_of(op, backend, kind):
    """(the operation's folder, the file with the kernel), as cmake/variants.cmake has it."""
    folder = re.sub("^linear_attention_.*", "linear_attention", op)
    entry = f"{op}/kernel" if backend == "cpu" else f"{op}/{kind}"
    entry = re.sub(r"^linear_attention_(\w+)/kernel$", r"linear_attention/\1", entry)
    entry = re.sub(r"^linear_attention_(\w+)/", r"linear_attention/\1_", entry)
    here = ROOT / "src" / backend / entry
    return folder, f"{entry}/kernel" if here.is_dir() and not here.with_suffix(".cuh").is_file() else entry


def objects():
    """Returns {name: (is it a GPU's, the files that it is compiled from)}."""
    found = {}
    text = (ROOT / "src/variants.def").read_text()
    for op, backend, kind, dtype, d in re.findall(r"^VARIANT\((\w+), *(\w+), *(\w+), *(\w+), *(\d+)\)", text, re.MULTILINE):
        folder, entry = entry_of(op, backend, kind)
        unit = (ROOT / "src" / ("variant.in" if backend == "cpu" else "variant_gpu.in")).read_text()
        for key, value in {"backend": backend, "entry": entry, "folder": folder}.items():
            unit = unit.replace(f"@{key}@", value)
        files = frozenset().union(*(closure(file) for file in includes_of(unit, ROOT / "src")))
        found[f"{op} {backend} {kind} {dtype} {d}"] = (backend != "cpu", files)
    for file in sorted((ROOT / "src/gpu").glob("*/*.cu")):
        found[file.relative_to(ROOT).as_posix()] = (True, closure(file))
    return found


def rebuilt(all_objects, files):
    changed = {(ROOT / file).resolve() for file in files}
    for file in changed:
        if not file.is_file():
            sys.exit(f"there is no {file}")
    hit = [gpu for gpu, included_files in all_objects.values() if changed & included_files]
    return sum(hit), len(hit) - sum(hit)


def main():
    all_objects = objects()
    gpus = sum(gpu for gpu, _ in all_objects.values())
    rows = [(file, [file], None, None) for file in sys.argv[1:]] or LIMITS
    print(f"{gpus} GPU objects, {len(all_objects) - gpus} CPU objects. Rebuilt by a change of")
    bad = False
    for what, files, most_gpu, most_cpu in rows:
        gpu, cpu = rebuilt(all_objects, files)
        over = most_gpu is not None and (gpu > most_gpu or cpu > most_cpu)
        print(f"  {what:32} {gpu:4} GPU {cpu:4} CPU" + (f"   more than {most_gpu} and {most_cpu}" if over else ""))
        bad = bad or over
    # What must be found, so that numbers of 0 mean something.
    if not sys.argv[1:] and rebuilt(all_objects, ["src/args/view.hpp"]) != (gpus, len(all_objects) - gpus):
        print("every kernel has views, but not every object is found to include args/view.hpp")
        bad = True
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
