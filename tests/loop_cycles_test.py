#!/usr/bin/env python3
# tests/loop_cycles_test.py: runs bench/loop_cycles.py on a short listing whose numbers can be counted by hand. The
# listing has a loop over tiles around one over keys, a slow path behind the end of the kernel, and rare work that a
# round passes over.
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
TOOL, LISTING = HERE.parent / "bench" / "loop_cycles.py", HERE / "loop_cycles_listing.txt"
# The loop has 16 instructions between .L_x_keys and its branch back. The two FSEL of the mask are passed over.
ROUND = 14
CYCLES = 61
KINDS = {"tensor": (3, 4), "barrier": (2, 8), "branch, vote": (3, 22), "MUFU": (1, 8), "conversion": (1, 2),
         "FMA": (1, 4), "uniform": (2, 9), "ALU": (1, 4)}
STRETCHES = {"SYNCS.PHASECHK.TRANS64.TRYWAIT": (2, 7), "BAR.SYNC.DEFER_BLOCKING": (2, 8),
             "HGMMA.64x64x16.F32.BF16": (3, 9), "WARPGROUP.DEPBAR.LE": (7, 37)}


def run(*arguments):
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True)


def rows(text):
    found = re.findall(r"^(\S.*?) +(\d+) +(\d+)$", text, re.M)
    return {name: (int(instructions), int(cycles)) for name, instructions, cycles in found}


def main():
    bad = []

    def check(what, seen, expected):
        if seen != expected:
            bad.append(f"{what}: {seen!r} instead of {expected!r}")

    done = run(LISTING, "attention")
    check("exit code", done.returncode, 0)
    check("headline", done.stdout.splitlines()[:2], [
        "attention_kernel", f"main loop 0x40 to 0x130: 16 instructions, {ROUND} in one round, {CYCLES} cycles of stall counts"])
    check("rows", rows(done.stdout), KINDS | STRETCHES)
    check("sum of the kinds", tuple(map(sum, zip(*KINDS.values()))), (ROUND, CYCLES))
    check("sum of the stretches", tuple(map(sum, zip(*STRETCHES.values()))), (ROUND, CYCLES))

    listed = run(LISTING, "attention", "--list").stdout
    check("the mask in the list", "FSEL" in listed, False)
    check("an instruction of the list", "   110   8  MUFU.EX2 R56, R56" in listed, True)

    check("both kernels", run(LISTING).stdout.splitlines()[0], "copy_kernel: no loop with tensor instructions")
    check("a kernel that is not there", run(LISTING, "linear").returncode, 1)
    check("a file that is not there", run(HERE / "no.sass").returncode, 1)
    print("\n".join(bad) or "all as counted by hand")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
