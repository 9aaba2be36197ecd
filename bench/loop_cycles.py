#!/usr/bin/env python3
"""Shows what one round of a GPU kernel's main loop costs a warp, by the stall counts that ptxas wrote into the
instructions.

    bench/loop_cycles.py FILE [KERNEL] [--list | --brief]

FILE is an object, a cubin, or what `nvdisasm -hex -c` printed of one. KERNEL is a part of the kernel's name, where FILE has
several. --list prints each instruction too, and --brief a single line for each kernel: its name, the instructions of a
round and their cycles. Objects need cuobjdump and cubins nvdisasm. Both come with the CUDA toolkit, and pip has them as
nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm. They are looked for on the PATH, in /usr/local/cuda/bin and in build/venv.
Without them the exit code is 77.

The main loop is the innermost one with the most tensor instructions. One round is followed through it. A branch that goes
forward within the loop is taken, because it passes over what is rare (a mask, a maximum that rises). A branch that leaves
the loop is not taken. A stall count is the least time that the warp waits after an instruction before its next one. The
time that it waits for barriers, loads and other warps comes on top. So the sums compare two builds of a kernel, and they do
not tell its time.
"""
import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Matrix products: of 16 bits, of int8, of 8-bit floats, and those of sm_80.
PRODUCTS = ("HGMMA", "IGMMA", "QGMMA", "HMMA")
# The pipe or purpose of an instruction. The first entry that is the beginning of its name counts.
KINDS = (
    ("tensor", (*PRODUCTS, "WARPGROUP")),
    ("barrier", ("BAR", "SYNCS", "DEPBAR", "WARPSYNC", "BSSY", "BSYNC")),
    ("branch, vote", ("BRA", "VOTE", "CALL", "RET", "EXIT")),
    ("MUFU", ("MUFU",)),
    ("conversion", ("F2F", "I2F", "F2I")),
    ("FMA", ("FFMA", "FADD", "FMUL", "IMAD", "HFMA2")),
    ("shared, global memory", ("LD", "ST", "ATOM", "RED", "SHFL", "S2R")),
    ("uniform", ("U", "R2UR", "S2UR")),
    ("ALU", ("",)),
)
# A stretch of the loop begins at one of these.
MARKS = ("BAR", "SYNCS", "WARPGROUP.DEPBAR", *PRODUCTS)


class Instruction:
    def __init__(self, address, text):
        self.address, self.text, self.stall = address, text, 0
        words = [word for word in text.split() if not word.startswith("@")]
        self.name = words[0].rstrip(";") if words else ""
        self.target = (re.search(r"`\(([^)]+)\)", text) or [None, None])[1]
        # A branch may have its condition before or behind its name: @P0 BRA X, BRA P1, X, BRA.DIV UR4, X.
        self.conditional = text.startswith("@") or bool(re.match(r"BRA\S* !?U?[PR]\w*,", " ".join(words)))

    def ends_block(self):
        return self.name.startswith(("BRA", "EXIT", "RET", "BRX"))


class Kernel:
    """The instructions of one kernel, and the label that each may have."""

    def __init__(self, name):
        self.name, self.code, self.labels = name, [], {}

    def successors(self, i):
        one = self.code[i]
        after = [i + 1] if i + 1 < len(self.code) else []
        if not one.ends_block():
            return after
        goes = [self.labels[one.target]] if one.name.startswith("BRA") and one.target in self.labels else []
        return goes + (after if one.conditional else [])


def read_listing(lines):
    """Returns the kernels of a listing of nvdisasm. An instruction takes two lines there, and the second one ends in
    its upper 64 bits."""
    kernels, labels = [], []
    for line in lines:
        if section := re.match(r"\s*\.section\s+\.text\.([^\s,\"]+)", line):
            kernels.append(Kernel(section[1]))
            labels = []
        elif label := re.match(r"(\.L\S+):", line):
            labels.append(label[1])
        elif kernels and (first := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*/\* 0x[0-9a-f]{16} \*/", line)):
            kernel, text = kernels[-1], re.sub(r"\s*\(\*.*?\*\)", "", first[2]).rstrip("; ")
            kernel.labels.update(dict.fromkeys(labels, len(kernel.code)))
            labels = []
            kernel.code.append(Instruction(int(first[1], 16), text))
        elif kernels and kernels[-1].code and (second := re.match(r"\s*/\* 0x([0-9a-f]{16}) \*/", line)):
            kernels[-1].code[-1].stall = int(second[1], 16) >> 41 & 15
    return [kernel for kernel in kernels if kernel.code]


def dominators(kernel):
    """Returns for each instruction the ones that every way to it leads through, as a set in the bits of an integer."""
    n = len(kernel.code)
    before = collections.defaultdict(list)
    for i in range(n):
        for j in kernel.successors(i):
            before[j].append(i)
    everything = (1 << n) - 1
    found = [1] + [everything] * (n - 1)
    changed = True
    while changed:
        changed = False
        for i in range(1, n):
            through = everything if before[i] else 0
            for j in before[i]:
                through &= found[j]
            if (through := through | 1 << i) != found[i]:
                found[i], changed = through, True
    return found


def main_loop(kernel):
    """Returns (first, last) of the innermost loop with the most tensor instructions, or None where there is none."""
    over = dominators(kernel)
    loops = [(head, tail) for tail in range(len(kernel.code)) for head in kernel.successors(tail)
             if head <= tail and over[tail] >> head & 1]
    weight = {(head, tail): sum(one.name.startswith(PRODUCTS) for one in kernel.code[head:tail + 1])
              for head, tail in loops}
    inner = [loop for loop in loops if weight[loop] and not any(
        weight[other] and other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)]
    return max(inner, key=weight.get, default=None)


def one_round(kernel, head, tail):
    """Returns the instructions of a round, in the order in which they run."""
    path, i = [], head
    while i <= tail:
        one = kernel.code[i]
        path.append(one)
        goes = kernel.labels.get(one.target) if one.name.startswith("BRA") else None
        i = goes if goes is not None and i < goes <= tail else i + 1
    return path


def kind_of(one):
    return next(kind for kind, names in KINDS if one.name.startswith(names))


def stretches(path):
    """Cuts the round into pieces, each from one of MARKS to the next. Products one after another are one piece."""
    pieces = [("start of the round", [])]
    for one in path:
        mark = next((mark for mark in MARKS if one.name.startswith(mark)), None)
        if mark and not (mark in PRODUCTS and pieces[-1][0].startswith(mark)):
            pieces.append((one.name, []))
        pieces[-1][1].append(one)
    return [piece for piece in pieces if piece[1]]


def brief(kernel):
    loop = main_loop(kernel)
    path = one_round(kernel, *loop) if loop else []
    return f"{kernel.name} {len(path)} {sum(one.stall for one in path)}"


def report(kernel, list_all):
    loop = main_loop(kernel)
    if loop is None:
        return f"{kernel.name}: no loop with tensor instructions"
    path = one_round(kernel, *loop)
    total = sum(one.stall for one in path)
    lines = [kernel.name, f"main loop {kernel.code[loop[0]].address:#x} to {kernel.code[loop[1]].address:#x}: "
             f"{loop[1] - loop[0] + 1} instructions, {len(path)} in one round, {total} cycles of stall counts", ""]
    row = "{:<32} {:>12} {:>8}".format
    by_kind = collections.defaultdict(list)
    for one in path:
        by_kind[kind_of(one)].append(one)
    lines += [row("kind", "instructions", "cycles")]
    lines += [row(kind, len(ones), sum(one.stall for one in ones)) for kind, _ in KINDS if (ones := by_kind[kind])]
    lines += ["", row("from ... to the next of these", "instructions", "cycles")]
    lines += [row(name, len(ones), sum(one.stall for one in ones)) for name, ones in stretches(path)]
    if list_all:
        lines += [""] + [f"{one.address:6x} {one.stall:3d}  {one.text}" for one in path]
    return "\n".join(lines)


def program(name):
    """Returns where a program of the CUDA toolkit is."""
    here = pathlib.Path(__file__).resolve().parent.parent
    from_pip = sorted(here.glob(f"build/venv/lib/python3*/site-packages/nvidia/*/bin/{name}"))
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin") or next(map(str, from_pip), None)
    if not found:
        print(f"loop_cycles.py: there is no {name}", file=sys.stderr)
        sys.exit(77)
    return found


def listings(path):
    """Yields the listing of each cubin in a file."""
    content = path.read_bytes()
    if not content.startswith(b"\x7fELF"):
        yield content.decode(errors="replace")
        return
    with tempfile.TemporaryDirectory() as folder:
        cubins = [path.resolve()]
        if int.from_bytes(content[18:20], "little") != 190:  # the ELF machine of CUDA
            subprocess.run([program("cuobjdump"), "-xelf", "all", path.resolve()], check=True, cwd=folder, capture_output=True)
            cubins = sorted(pathlib.Path(folder).glob("*.cubin"))
        for cubin in cubins:
            run = subprocess.run([program("nvdisasm"), "-hex", "-c", cubin], check=True, capture_output=True)
            yield run.stdout.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("kernel", nargs="?", default="")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--list", action="store_true")
    how.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    try:
        texts = list(listings(options.file))
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"loop_cycles.py: {error}")
    kernels = [kernel for text in texts for kernel in read_listing(text.splitlines()) if options.kernel in kernel.name]
    if not kernels:
        sys.exit(f"loop_cycles.py: {options.file} has no kernel '{options.kernel}'")
    print("\n".join(map(brief, kernels)) if options.brief else "\n\n".join(report(kernel, options.list) for kernel in kernels))


if __name__ == "__main__":
    main()
