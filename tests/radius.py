#!/usr/bin/env python3
"""How many kernels a change compiles again, counted by following #includes from what CMake compiles for each line of
src/variants.def, and from the .cu files of src/gpu, which run before and after them.

    tests/radius.py          the table; it fails where a count is above its limit
    tests/radius.py FILE...  the same of other files, as src/args/view.hpp

Both sides of an #if count, so a level of the CPU may have less than this says.
"""
import pathlib
import re
import sys

import kernel

ROOT = kernel.ROOT
# {what is changed: (files, the most GPU objects, the most CPU objects)}
LIMITS = {
    "a tile of a GEMM": (["src/tiles/gemm/tiles.def"], 26, 0),
    "a tile of attention, forward": (["src/tiles/attention_forward/tiles.def"], 119, 0),
    "a tile of attention, backward": (["src/tiles/attention_backward/tiles.def"], 27, 0),
    "a tile of linear attention": (["src/tiles/linear_attention/tiles.def"], 48, 0),
    "a field of AttentionCall": (["src/args/attention_call.hpp"], 150, 39),
    "a field of GemmCall": (["src/args/gemm_call.hpp"], 27, 29),
    "a field of LinearAttentionCall": (["src/args/linear_attention_call.hpp"], 48, 38),
    "a field of NormCall": (["src/args/norm_call.hpp"], 6, 24),
    "a public header": (sorted((ROOT / "include/falchion").glob("*.h*")), 0, 0),
    "a header of the plan": (sorted((ROOT / "src/plan").glob("*.hpp")), 0, 0),
}


def units():
    """Returns (is it a GPU's, the files that it is compiled from) of each object."""
    for op, backend, kind, _, _ in kernel.variants():
        files = kernel.closure(kernel.entry(op, backend, kind))
        if backend != "cpu":  # variant_gpu.in includes the facts too
            folder = re.sub("^linear_attention_.*", "linear_attention", op)
            files = files | kernel.closure(ROOT / f"src/tiles/{folder}/facts.hpp")
        yield backend != "cpu", files
    for file in sorted((ROOT / "src/gpu").glob("*/*.cu")):
        yield True, kernel.closure(file)


def rebuilt(files):
    """How many objects of GPUs and of the CPU include one of the files."""
    changed = {(ROOT / file).resolve() for file in files}
    missing = [str(file) for file in changed if not file.is_file()]
    if missing or not changed:
        sys.exit(f"there is no {missing or 'such file'}")
    hit = [gpu for gpu, included in units() if changed & included]
    return sum(hit), len(hit) - sum(hit)


def main():
    asked = {file: ([pathlib.Path(file).resolve()], None, None) for file in sys.argv[1:]} or LIMITS
    every = rebuilt(["src/args/view.hpp"])
    count = sum(gpu for gpu, _ in units()), sum(not gpu for gpu, _ in units())
    print(f"of {count[0]} GPU objects and {count[1]} CPU objects a change compiles again")
    bad = every != count  # all kernels have views: with that, counts of 0 mean something
    if bad:
        print(f"  all of them should include src/args/view.hpp, but {every[0]} and {every[1]} are found to")
    for what, (files, most_gpu, most_cpu) in asked.items():
        gpu, cpu = rebuilt(files)
        over = most_gpu is not None and (gpu > most_gpu or cpu > most_cpu)
        print(f"  {what:<32}{gpu:>4} GPU{cpu:>5} CPU" + (f", at most {most_gpu} and {most_cpu}" if over else ""))
        bad = bad or over
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
