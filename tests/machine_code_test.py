#!/usr/bin/env python3
# tests/machine_code_test.py: runs bench/compare_machine_code.py on cubins that are written here: the same code, code with
# one other byte, with other registers, under another name, and a kernel that one side lacks.
import pathlib
import struct
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parent.parent / "bench" / "compare_machine_code.py"
KERNEL, OTHER = "_ZN8falchion4sm804gemmEi", "_ZN8falchion4sm904gemmEi"


def cubin(kernels):
    """An ELF file with a section .text.NAME of each (name, code, registers)."""
    names, body, rows = b"\0", b"", [(0, 0, 0, 0, 0)]
    for name, code, registers in kernels:
        rows.append((len(names), 1, 64 + len(body), len(code), registers << 24))
        names += b".text." + name.encode() + b"\0"
        body += code
    rows.append((len(names), 3, 64 + len(body), len(names) + 10, 0))
    names += b".shstrtab\0"
    body += names
    header = b"\x7fELF" + b"\2\1\1".ljust(12, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(rows), len(rows) - 1)
    return header + body + b"".join(struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, info, 16, 0)
                                    for name, kind, offset, size, info in rows)


def compare(before, after, *options):
    with tempfile.TemporaryDirectory() as folder:
        trees = [pathlib.Path(folder, which) for which in ("before", "after")]
        for tree, objects in zip(trees, (before, after)):
            tree.mkdir()
            for name, kernels in objects.items():
                (tree / name).write_bytes(cubin(kernels))
        done = subprocess.run([sys.executable, TOOL, *trees, *options], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def main():
    bad = []

    def check(what, done, code, *words):
        if done[0] != code or not all(word in done[1] for word in words):
            bad.append(f"{what}: {done} instead of {code} and {words}")

    name, code = "gemm_sm80_tile_f16_0.cubin", bytes(range(64))
    same = {name: [(KERNEL, code, 40)]}
    check("the same", compare(same, same), 0, "1 objects, 1 kernels are the same, 0 are not")
    changed = {name: [(KERNEL, code[:40] + b"x" + code[41:], 40)]}
    check("another byte", compare(same, changed), 1, "falchion::sm80::gemm(int): DIFFERENT: code differs from 0x20 on")
    check("longer code", compare(same, {name: [(KERNEL, code + code, 40)]}), 1, "from 0x40 on, 64 and 128 bytes")
    check("registers", compare(same, {name: [(KERNEL, code, 41)]}), 1, "DIFFERENT: registers 40 and 41")
    check("another name", compare(same, {name: [(OTHER, code, 40)]}), 0, "same, was falchion::sm80::gemm(int)")
    check("none after", compare(same, {name: [(OTHER, code + code, 40)]}), 1, "only after", "only before", "0 kernels are the same")
    two = same | {"gemm_sm90_wide_f16_0.cubin": [(OTHER, code, 40)]}
    check("an object less", compare(two, same), 1, "only before")
    check("another object", compare(two, same, "--only", "sm80"), 0, "1 objects, 1 kernels are the same")
    check("no objects", compare({}, same), 1, "no objects of kernels in")
    # Kernels of no variant may be compiled in another file.
    check("moved", compare({"combine.cubin": [(KERNEL, code, 40)]}, {"gemm_combine.cubin": [(KERNEL, code, 40)]}), 0, "1 kernels are the same")
    # Two files may have kernels of one name, without linkage. A change of either is seen.
    twins = {"a.cubin": [(KERNEL, code, 40)], "b.cubin": [(KERNEL, code + code, 40)]}
    check("twins", compare(twins, twins), 0, "2 kernels are the same")
    check("one of the twins", compare(twins, twins | {"a.cubin": [(KERNEL, code, 41)]}), 1, "1 kernels are the same, 1 are not")
    print("\n".join(bad) or "what is the same and what is not is found")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
