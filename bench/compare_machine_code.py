#!/usr/bin/env python3
"""Compares the machine code of each kernel in two builds, as before and after files have moved.

    bench/compare_machine_code.py BEFORE AFTER [--only REGEX] [--list]

BEFORE and AFTER are build trees, or folders of cubins with the names of the objects. Kernels of a variant are compared with
those of the same variant; those of other objects, such as src/gpu/gemm/combine.cu, with the one of the same name. A kernel
is the same if its instructions are, byte for byte, and its registers and its shared memory. --only compares objects that the
regex finds, as 'sm90 gemm'; --list prints the same ones too. The exit code is 1 where a kernel differs or has no partner.

Objects need cuobjdump, as bench/loop_cycles.py says; without it the exit code is 77. c++filt makes names readable.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from loop_cycles import program

Code = collections.namedtuple("Code", "text registers shared")


def sections(elf):
    """(name, bytes or None, size, info) of each section of an ELF file of 64 bits."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQII", elf, table + i * size) for i in range(count)]
    start = headers[names][4]
    for name, kind, _, _, offset, length, _, info in headers:
        end = elf.index(b"\0", start + name)
        nobits = kind == 8
        yield elf[start + name:end].decode(), None if nobits else elf[offset:offset + length], length, info


def kernels_of(elf):
    """{mangled name: Code} of a cubin. The registers are in the upper byte of a field of the section of the code."""
    found = list(sections(elf))
    shared = {name.removeprefix(".nv.shared."): length for name, _, length, _ in found if name.startswith(".nv.shared.")}
    return {name[6:]: Code(text, info >> 24, shared.get(name[6:], 0)) for name, text, _, info in found
            if name.startswith(".text.")}


def cubins(path):
    """(architecture, bytes) of each cubin of an object, or of a cubin itself."""
    if path.suffix == ".cubin":
        yield "-", path.read_bytes()
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program("cuobjdump"), "-xelf", "all", path.resolve()], check=True, cwd=folder, capture_output=True)
        for file in sorted(pathlib.Path(folder).glob("*.cubin")):
            yield re.findall(r"\.(sm_\w+)\.cubin$", file.name)[0], file.read_bytes()


def objects(tree, only):
    """{variant's name, or "": its files}"""
    found = collections.defaultdict(list)
    for path in sorted([*tree.rglob("*.cu.o"), *tree.rglob("*.cubin")]):
        variant = re.match(r"(\w+_sm\d+_\w+)\.", path.name)
        others = "src/gpu/" in path.as_posix() or path.suffix == ".cubin"
        if (variant or others) and re.search(only, path.name.replace("_", " ")):
            found[variant[1] if variant else ""].append(path)
    return found


def readable(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    # Names without linkage have a hash of the file's path.
    return [re.sub(r"\(anonymous namespace\)|_GLOBAL__N__\w+|_INTERNAL_\w+", "(anonymous)", line)
            for line in done.stdout.splitlines()]


def read(files):
    """{(architecture, readable name): Code}"""
    found = [(architecture, name, code) for path in files for architecture, elf in cubins(path)
             for name, code in kernels_of(elf).items()]
    table = {}
    for (architecture, _, code), name in zip(found, readable([name for _, name, _ in found])):
        while table.setdefault((architecture, name), code) != code:  # two files may have kernels without linkage
            name += " (another)"
    return table


def differences(before, after):
    """(what happened, architecture, kernel) of two tables. A kernel whose code now has another name is renamed."""
    gone = {key: code for key, code in before.items() if key not in after}
    for key, code in sorted(after.items()):
        if key in before:
            yield ("same" if before[key] == code else said_of(before[key], code)), *key
            continue
        old = next((other for other, its in gone.items() if its == code and other[0] == key[0]), None)
        if old:
            del gone[old]
        yield (f"same, was {old[1]}" if old else "only after"), *key
    for key in sorted(gone):
        yield "only before", *key


def said_of(old, new):
    size, first = max(len(old.text), len(new.text)), None
    first = next((i for i, (a, b) in enumerate(zip(old.text, new.text)) if a != b), min(len(old.text), len(new.text)))
    what = f"code differs from 0x{first // 16 * 16:x} on, {len(old.text)} and {len(new.text)} bytes; " if first < size else ""
    return (f"DIFFERENT: {what}registers {old.registers} and {new.registers}, "
            f"static shared memory {old.shared} and {new.shared}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    both = [objects(tree, given.only) for tree in (given.before, given.after)]
    if not all(both):
        sys.exit(f"no objects of kernels in {given.before if not both[0] else given.after}")
    names = sorted(set(both[0]) | set(both[1]))
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = pool.map(lambda name: [read(of.get(name, [])) for of in both], names)
        for name, (before, after) in zip(names, tables):
            for what, architecture, kernel in differences(before, after):
                same = what.startswith("same")
                counts["same" if same else "not the same"] += 1
                if given.list or what != "same":
                    print(f"{name or 'src/gpu'} {architecture} {kernel[:90]}: {what}")
    print(f"{len(names)} objects, {counts['same']} kernels are the same, {counts['not the same']} are not")
    sys.exit(counts["not the same"] > 0 or counts["same"] == 0)


if __name__ == "__main__":
    main()
