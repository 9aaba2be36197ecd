#!/usr/bin/env python3
"""docs/grid.py: writes the README's grid of operations and back ends, between its marks, from src/variants.def.

    docs/grid.py [--check]     --check writes nothing, and fails where the README is not what this writes
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- support -->\n", "<!-- /support -->"
OPERATIONS = {"attention_forward": "attention", "attention_backward": "its gradients", "linear_attention_forward": "linear attention",
              "linear_attention_backward": "its gradients", "gemm": "GEMM", "norm": "layer norm, RMSNorm",
              "norm_backward": "their gradients", "quantise": "8-bit numbers with scales (on CPUs the definition)"}
# vnni and avx512_bf16 are AVX-512 with one instruction more; amx_emulated is for tests.
COLUMNS = {"any CPU": "cpu generic", "AVX2": "cpu avx2", "AVX-512": "cpu avx512", "AMX": "cpu amx", "NEON": "cpu neon",
           "GPUs from sm_80 on": "sm80", "Hopper's own": "sm90"}
ORDER = ("f32", "f16", "bf16", "e4m3", "i8")


def types_of(text):
    """{(operation, back end and level): types} of the lines of variants.def."""
    found = {}
    for operation, backend, level, dtype in re.findall(r"^VARIANT\((\w+), (\w+), (\w+), (\w+), \d+(?:, \w+)?\)", text, re.MULTILINE):
        if operation == "attention_forward" and dtype in ("e4m3", "i8"):
            continue  # which path takes q of 8 bits is in docs/support.md
        where = f"cpu {level}" if backend == "cpu" else backend
        found.setdefault((operation, where), set()).add(dtype)
    return found


def grid(text):
    types = types_of(text)
    unknown = {operation for operation, _ in types} ^ set(OPERATIONS)
    if unknown:
        sys.exit(f"docs/grid.py: operations without a row, or rows without an operation: {', '.join(sorted(unknown))}")
    lines = ["| | types | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for operation, name in OPERATIONS.items():
        all_types = set().union(*(found for (of, _), found in types.items() if of == operation))
        cells = []
        for where in COLUMNS.values():
            here = types.get((operation, where), set())
            cells.append("✓" if here == all_types else "✓ " + " ".join(x for x in ORDER if x in here) if here else "")
        lines.append(f"| {name} | {' '.join(x for x in ORDER if x in all_types)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    wanted = before + BEGIN + grid((ROOT / "src" / "variants.def").read_text()) + END + rest.split(END)[1]
    if sys.argv[1:] != ["--check"]:
        readme.write_text(wanted)
    elif readme.read_text() != wanted:
        sys.exit("README.md's grid is not what docs/grid.py writes from src/variants.def")


if __name__ == "__main__":
    main()
