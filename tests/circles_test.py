#!/usr/bin/env python3
# tests/circles_test.py: no file calls, by way of others, a file that calls it again. src/ and tools/ have layers_test.sh;
# this looks at the C files of python/, which all share one header, by the functions that they call, and at the programs of
# bench/ and the packages of python/falchion by what they import. Then it plants one circle of each kind and must find it.
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("base", "arrays", "arguments", "call", "functions")  # of python/, each built on those before it


def c_calls(texts):
    """{file: {file that it calls: the function}} of C files by name. A function is known by `name(` at its definition."""
    code = {file: re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', '""', text, flags=re.S) for file, text in texts.items()}
    homes = {}
    for file, text in code.items():
        for name in re.findall(r"^(?!static\b|typedef\b|enum\b)\w[\w *]*?\b(\w+)\([^;{}]*\)\s*\{", text, re.M):
            homes[name] = file
        homes.update((name, file) for name in re.findall(r"^FUNCTION\((\w+)\)\s*\{", text, re.M))
    return {file: {homes[name]: name for name in re.findall(r"(?<![\w.>])(\w+)\(", text) if homes.get(name, file) != file}
            for file, text in code.items()}


def imports(texts):
    """The same of Python's modules: "falchion/torch/_ops.py" imports "falchion/torch/_options.py"."""
    result = {}
    for file, text in texts.items():
        here, found = pathlib.PurePosixPath(file).parent, {}
        for dots, module, names in re.findall(r"^\s*(?:from (\.*)([\w.]*) import \(?([\w, ]+|\n[^)]*)|import [\w.]+)", text, re.M):
            folder = pathlib.PurePosixPath(*here.parts[:len(here.parts) - len(dots) + 1]) if dots else pathlib.PurePosixPath()
            base = folder.joinpath(*filter(None, module.split(".")))
            tries = [base.with_suffix(".py")] if base.name else []
            tries += [base / f"{name}.py" for name in re.findall(r"\w+", names)]
            found.update((str(path), module) for path in tries if str(path) in texts)
        for name in re.findall(r"^\s*import ([\w.]+)", text, re.M):
            path = name.replace(".", "/") + ".py"
            if path in texts:
                found[path] = name
        found.pop(file, None)
        result[file] = found
    return result


def circle(graph):
    """One circle as a list of files, or None."""
    done, path = set(), []

    def visit(file):
        if file in path:
            return [*path[path.index(file):], file]
        if file in done:
            return None
        path.append(file)
        for other in graph[file]:
            if found := visit(other):
                return found
        path.pop()
        done.add(file)
        return None

    return next((found for file in graph if (found := visit(file))), None)


def faults(c_files, programs):
    calls = c_calls(c_files)
    for what, graph in (("python", calls), *((name, imports(texts)) for name, texts in programs.items())):
        if found := circle(graph):
            steps = [f"{a} -> {b} ({graph[a][b]})" for a, b in zip(found, found[1:])]
            yield f"{what}: a circle: {', '.join(steps)}"
    folder = lambda file: FOLDERS.index(file.split("/")[0]) if "/" in file else len(FOLDERS)
    for file, called in calls.items():
        for other, name in called.items():
            if folder(other) > folder(file):
                yield f"python: {file} calls {name} of {other}, but {file.split('/')[0]}/ comes before it"


def read(folder, pattern):
    return {path.relative_to(ROOT / folder).as_posix(): path.read_text() for path in sorted((ROOT / folder).glob(pattern))}


def main():
    c_files = read("python", "*.c") | read("python", "*/*.c")
    programs = {"bench": read("bench", "*.py"), "python/falchion": read("python", "falchion/**/*.py")}
    bad = list(faults(c_files, programs))
    # What must be found.
    if not bad:
        low = "base/errors.c"
        spoilt = {**c_files, low: c_files[low] + "\nint planted(void) { return read_array(0, 0, 0, 0, 0); }\n"}
        found = list(faults(spoilt, programs))
        if len(found) != 2 or "base/errors.c" not in found[0] or "calls read_array" not in found[1]:
            bad.append(f"planted in {low}, but not found: {found}")
        for name, file, line in (("bench", "result_file.py", "from compare_gemm import RIVALS"),
                                 ("bench", "result_file.py", "import compare_gemm"),
                                 ("python/falchion", "falchion/torch/_options.py", "from ._attention import attention"),
                                 ("python/falchion", "falchion/torch/_options.py", "from falchion.torch import _sdpa")):
            texts = {**programs[name], file: programs[name][file] + f"\n{line}\n"}
            if len(list(faults(c_files, {name: texts}))) != 1:
                bad.append(f"{line}, planted in {file}, is not found")
    print("\n".join(bad) or f"no circle in {len(c_files)} C files and {sum(map(len, programs.values()))} of Python")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
