#!/usr/bin/env python3
"""What belongs to a kernel file or folder: the smallest set of variants that has it, the tests that run here, and those on a
device. `./dev kernel NAME` builds and runs what this prints.

    tests/kernel.py src/sm90/attention_forward/kernel.cuh      (also a folder, or the beginning of names: sm90/attention_forward)

Nothing is listed by hand. The file that defines OP_KIND() or OP_kernel() is where the code of a line of src/variants.def
begins, and what it includes belongs to that variant; of a CPU kernel the compiler says it, because levels differ. A test
belongs to an operation if it judges it (it includes src/judge/OP.hpp, perhaps through tests/support), and to a file if it
includes the file. tests/kernel_test.py checks all this.
"""
import argparse
import functools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = (".hpp", ".cuh", ".cu", ".cpp", ".def", ".inc")


@functools.cache
def text(path):
    return path.read_text()


@functools.cache
def included(path):
    """Files of ours that a file includes itself."""
    found = []
    for name in re.findall(r'^\s*#\s*include "([^"]+)"', text(path), re.M):
        tries = [folder / name for folder in (path.parent, ROOT / "src", ROOT / "tests", ROOT / "tools", ROOT / "include")]
        found += [place.resolve() for place in tries if place.is_file()][:1]
    return found


@functools.cache
def closure(path):
    """A file and all that it includes. Of a header of tests/support also what its .cpp includes."""
    seen, todo = set(), [path]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo += included(file)
            if "support" in file.parts and file.with_suffix(".cpp").is_file():
                todo.append(file.with_suffix(".cpp"))
    return seen


def variants():
    """(operation, back end, kind or level, type, head dim with the name of its tile if it has one: "64 brief")"""
    found = re.findall(r"^VARIANT\((\w+), *(\w+), *(\w+), *(\w+), *(\d+(?:, *\w+)?)\)", text(ROOT / "src/variants.def"), re.M)
    return [(*line, re.sub(", *", " ", d)) for *line, d in found]


@functools.cache
def entry(op, backend, kind):
    """The file that begins a variant: it defines the function that variant.in or variant_gpu.in calls."""
    name = f"{op}_kernel" if backend == "cpu" else f"{op}_{kind}"
    files = [path for path in sorted((ROOT / "src" / backend).rglob("*")) if path.suffix in (".hpp", ".cuh")]
    found = [path for path in files if re.search(rf"^constexpr [\w:]+ {name}\(\) *{{", text(path), re.M)]
    if len(found) != 1:
        sys.exit(f"{name}() is defined in {len(found)} files of src/{backend}, not in one: {[str(f) for f in found]}")
    return found[0]


def has_any(files, op, backend, kind):
    """Has this kind of an operation, or this level of the CPU, one of the files?"""
    start = entry(op, backend, kind)
    return bool(closure(start) & files) and (backend != "cpu" or bool(files_of_level(start, kind) & files))


@functools.cache
def files_of_level(start, kind):
    command = ["c++", "-std=c++20", "-MM", f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}", f"-DFALCHION_LEVEL={kind}",
               f"-DFALCHION_LEVEL_{kind.upper()}=1", str(start)]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{' '.join(command)}: {said.stderr}")
    return {pathlib.Path(word).resolve() for word in said.stdout.replace("\\\n", " ").split()[1:]}


def find(name):
    """The files that are meant: one, those of a folder, or those whose paths begin so."""
    for base in (ROOT, ROOT / "src", pathlib.Path.cwd()):
        path = (base / name).resolve()
        if path.is_file():
            return [path]
        if path.is_dir():
            found = [file for file in sorted(path.rglob("*")) if file.suffix in CODE]
        else:
            found = [file for file in sorted(path.parent.glob(path.name + "*")) if file.suffix in CODE]
        if found:
            return found
    return []


def chosen_variants(files):
    """The variants that begin in one of the files. Where none does, those that have any of them."""
    meant = set(files)
    for file in files:  # Code that is compiled by itself is needed by those who include the header that declares it.
        if file.suffix in (".cu", ".cpp"):
            meant |= {header for header in included(file) if any(re.search(rf"\b{name}\(.*[,;]$", text(header), re.M)
                                                                 for name in defined(file))}
    begin = [line for line in variants() if entry(*line[:3]) in meant]
    return begin if begin and len(files) > 1 else [line for line in variants() if has_any(meant, *line[:3])]


def defined(file):
    return re.findall(r"^(?!static|inline|template|return)[\w:]+ [*&]?(\w+)\([^;]*?\) *{", text(file), re.M)


def native_levels():
    """The levels of this machine's CPU, by the table in cmake/variants.cmake."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    flags = re.search(r"^(?:flags|Features)\s*:(.*)", cpuinfo.read_text(), re.M) if cpuinfo.exists() else None
    words = set(flags[1].split()) if flags else set()
    pairs = re.findall(r'"(\w+);(\w+)"', text(ROOT / "cmake/variants.cmake"))
    return {"generic"} | {level for level, flag in pairs if flag in words} | ({"amx_emulated"} if "avx512_bf16" in words else set())


def rank(d, wanted):
    """The head dim that is wanted comes first, then usual tiles."""
    return d == wanted, " " not in d


def smallest(lines):
    """Of a GPU's variants one of each template, as `FALCHION_VARIANTS=templates` keeps them; of the CPU's the first level that
    this machine runs, in each type."""
    kept, native = {}, native_levels()
    for line in lines:
        op, backend, kind, dtype, d = line
        if backend == "cpu":
            if kind in native:
                kept.setdefault((op, backend, dtype), line)
            continue
        key = (op, backend, kind, {"f16": "bf16", "i8": "e4m3"}.get(dtype, dtype))
        wanted = "64" if op.startswith("linear") else "128"
        if key not in kept or (rank(d, wanted) > rank(kept[key][4], wanted) and dtype == kept[key][3]):
            kept[key] = line
    return list(kept.values())


@functools.cache
def judged(test):
    """The operations that a test judges, by the names of src/judge. All of tests/support compares as attention does, so that
    one counts only where nothing else is judged, or a header of tests/support that judges nothing else is included."""
    def named(files):
        return {header.stem for file in files if file.is_relative_to(ROOT / "tests") for header in included(file)
                if header.parent == ROOT / "src" / "judge"} & set(map(judge_of, {line[0] for line in variants()}))

    every = named(closure(test))
    parts = [named(closure(header)) for header in included(test) if header.parent.name == "support"]
    return (every - {"attention"} or every) | ({"attention"} if {"attention"} in parts else set())


def judge_of(op):
    names = [path.stem for path in (ROOT / "src" / "judge").glob("*.hpp") if op.startswith(path.stem)]
    return max(names, key=len)


def host_tests(files, ops):
    """(those that any build has, those that need CUDA's headers). Of a CPU kernel also those that judge its operations, but
    for those that judge more than three, which are about the API and count on kernels of all."""
    here, cuda = [], []
    for test in sorted((ROOT / "tests").glob("*_test.cpp")):
        if closure(test) & set(files) or (judged(test) & {judge_of(op) for op in ops} and len(judged(test)) <= 3):
            (cuda if re.match(r"sm\d+_", test.name) else here).append(test.stem)
    return here, cuda


def device_sources():
    listed = re.findall(r"tests/(\w+_test\.cpp)", text(ROOT / "cmake/tests_cuda.cmake"))
    return sorted({ROOT / "tests" / name for name in listed} | set((ROOT / "tests/cuda").glob("*_test.cpp")))


def suites(test, backends):
    """gtest's filters for the suites of a file. Of suites with a path as their parameter those of the back ends alone."""
    found = dict.fromkeys(f"{suite}.*" for suite in re.findall(r"^TEST(?:_F)?\((\w+),", text(test), re.M))
    for name, suite, body in re.findall(r"^INSTANTIATE_TEST_SUITE_P\(\s*(\w+),\s*(\w+),(.*?)\);", text(test), re.M | re.S):
        ends = [f"/{backend}_*" for backend in backends] if "paths(" in body else [""]
        found.update(dict.fromkeys(f"{name}/{suite}.*{end}" for end in ends))
    return list(found)


def command_names(ops):
    """What `falchion verify --op` calls them, by the table in src/api/problem_line.cpp."""
    table = re.findall(r'\{Op::\w+, "([\w-]+)", "(\w+)"', text(ROOT / "src/api/problem_line.cpp"))
    return [name for name, op in table if op in ops]


def report(name):
    files = find(name)
    if not files:
        sys.exit(f"{name} is no file or folder of src, nor the beginning of names there")
    lines = chosen_variants(files)
    if not lines:
        sys.exit(f"no variant of src/variants.def has {name}: ./dev test builds and tests it")
    ops = list(dict.fromkeys(line[0] for line in lines))
    backends = list(dict.fromkeys(line[1] for line in lines))
    gpus = [backend for backend in backends if backend != "cpu"]
    here, cuda = host_tests(files, ops if "cpu" in backends else [])
    device = [test for test in device_sources() if judged(test) & {judge_of(op) for op in ops}] if gpus else []
    filters = list(dict.fromkeys(f for test in device for f in suites(test, gpus)))
    few = smallest(lines)
    if "cpu" in backends and not any(line[1] == "cpu" for line in few):
        print(f"This CPU runs no level that has {name}.", file=sys.stderr)
    return {"files": [file.relative_to(ROOT).as_posix() for file in files], "operations": ops, "backends": backends,
            "rebuilt": len(lines), "variants": [" ".join(line) for line in few], "host_tests": here, "cuda_host_tests": cuda,
            "device_tests": [test.relative_to(ROOT).as_posix() for test in device], "filter": ":".join(filters),
            "verify": [f"falchion verify --random 20000 --op {op} --backend {gpu}" for op in command_names(ops) for gpu in gpus]}


def show(said):
    print(f"{len(said['files'])} files; {said['rebuilt']} variants have them, and these are built:")
    for variant in said["variants"]:
        print(f"  {variant}")
    if said["device_tests"]:
        print(f"""Tests on a device: {' '.join(said['device_tests'])}
With nvcc, for a Hopper machine:
  FALCHION_VARIANTS='{'|'.join(said['variants'])}' ./dev device-build DIR
and there, where DIR was carried:
  DIR/tests/cuda_all_test --gtest_filter='{said['filter']}'""")
        for line in said["verify"]:
            print(f"  DIR/{line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--only", help="one field of it, a word a line: variants, host_tests, cuda_host_tests, backends")
    options = parser.parse_args()
    said = report(options.name)
    if options.only:
        print("".join(f"{word}\n" for word in said[options.only]), end="")
    elif options.json:
        print(json.dumps(said, indent=1))
    else:
        show(said)


if __name__ == "__main__":
    main()
