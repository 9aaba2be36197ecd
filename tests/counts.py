#!/usr/bin/env python3
"""How wide the tree is: in how many files an option of a problem is named, how many GPU objects a change compiles again, how
many kinds and objects an operation has, and how many lines there are.

    tests/counts.py                     the tables
    tests/counts.py --where any_order   the files that name an option
    tests/counts.py --check             what the test house.counts runs: no count may be above its limit in tests/counts.limits
    tests/counts.py --lower             writes the counts that have fallen into that file

Options are the keys of src/base/fields.def and src/api/problem_fields.hpp, but for sizes and for words that also mean something else. `code` are
programs of src, include, tools, python, rust, bench and examples, without their tests; `files` has documents and recorded
results there too.
"""
import argparse
import json
import os
import pathlib
import re
import sys

import kernel
import radius

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tests" / "counts.limits"
FOLDERS = ("src", "include", "tools", "python", "rust", "bench", "examples")
CODE = {".cpp", ".hpp", ".h", ".c", ".cuh", ".cu", ".def", ".inc", ".in", ".py", ".pyi", ".rs"}
COMMON = set("activation align alpha batch beta bias decay dropout dtype grads kind left lengths mask mean packed residual "
             "reverse right rows scale segments state weight".split())
SKIPPED = {"build", "target", "__pycache__", "venv"}


def files_below(folder):
    for here, folders, names in os.walk(ROOT / folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        yield from (pathlib.Path(here) / name for name in sorted(names))


def words_of(text):
    return set(re.findall(r"\w+", text))


def programs():
    """{path: (its words, is it code?)} of what may name an option: no tests."""
    found = {}
    for path in (path for folder in FOLDERS for path in files_below(folder)):
        name = path.relative_to(ROOT).as_posix()
        if "/tests/" not in name:
            found[name] = (words_of(path.read_text(errors="replace")), path.suffix in CODE)
    return found


def option_names():
    """{"attention": its keys}, by the lists of fields; "backward" has those of attention's backward pass alone."""
    text, attention = ((ROOT / "src" / name).read_text() for name in ("api/problem_fields.hpp", "base/fields.def"))
    lists = re.findall(r"^void (\w+)_fields\((.*?\n)}", text, re.M | re.S)
    keys = lambda body: [key for key in re.findall(r'\bf\("(\w+)"', body) if key not in COMMON and not is_size(key)]
    rows = re.findall(r"^FALCHION_(\w*?)_?(?:FIELD\(\w+, |LENGTHS\()(\w+),", attention, re.M)
    found = {name: keys(body) for name, body in lists}
    for of in ("attention", "backward"):
        found[of] = keys("".join(f'f("{key}"' for which, key in rows if (which == "BACKWARD") == (of == "backward")))
    return found


def is_size(key):
    return re.fullmatch(r"[bsdhmnk]\d?(_\w+)?|[a-z]{1,3}", key) and key != "lse"


def naming(option, texts):
    return [name for name, (words, _) in texts.items() if option in words]


def options(texts):
    return {key: {"problem": problem, "code": sum(texts[name][1] for name in naming(key, texts)),
                  "files": len(naming(key, texts))} for problem, keys in option_names().items() for key in keys}


def operations():
    """{operation: {back end: [kinds or levels, objects]}}"""
    rows = {}
    for op, backend, kind, _, _ in kernel.variants():
        kinds, objects = rows.setdefault(op, {}).setdefault(backend, (set(), [0]))
        kinds.add(kind)
        objects[0] += 1
    return {op: {backend: [len(kinds), objects[0]] for backend, (kinds, objects) in of.items()} for op, of in rows.items()}


def defines(pattern, folder="src"):
    return [path for path in files_below(folder) if path.suffix in CODE and re.search(pattern, path.read_text(), re.M)]


def rebuilt():
    """How many GPU objects a change of what compiles again, by tests/radius.py."""
    of = lambda paths: radius.rebuilt(paths)[0]
    return {"all": sum(gpu for gpu, _ in radius.units()), "gemm_tile": of(defines(r"^TILE\(gemm,")),
            "attention_call": of(defines(r"^struct AttentionCall\b")), "public_header": of(files_below("include"))}


def lines():
    count = lambda folder, suffixes: sum(len(path.read_text(errors="replace").splitlines()) for path in files_below(folder)
                                         if path.suffix in suffixes)
    script = CODE | {".sh", ".cmake"}
    rows = {folder: count(folder, script) for folder in ("src", "include", "tools", "python", "rust", "bench", "examples", "tests")}
    return rows | {"docs": count("docs", {".md", ".txt"}), "svg": count("docs", {".svg"})}


def everything():
    return {"options": options(programs()), "operations": operations(), "rebuilt": rebuilt(), "lines": lines()}


def show(said):
    print(f"{'problem':<12}{'option':<24}{'code':>6}{'files':>7}")
    for key, row in sorted(said["options"].items(), key=lambda item: (item[1]["problem"], -item[1]["code"])):
        print(f"{row['problem']:<12}{key:<24}{row['code']:>6}{row['files']:>7}")
    print(f"\n{'operation':<28}{'back end':<10}{'kinds':>6}{'objects':>9}")
    for op, backends in said["operations"].items():
        for backend, (kinds, objects) in backends.items():
            print(f"{op:<28}{backend:<10}{kinds:>6}{objects:>9}")
    for what, rows in (("GPU objects compiled again by a change of", said["rebuilt"]), ("lines of", said["lines"])):
        print(f"\n{what}")
        for name, count in rows.items():
            print(f"  {name:<24}{count:>8}")


def flat(said):
    """{name in the table of limits: count}"""
    objects = {f"objects_{backend}": sum(of[backend][1] for of in said["operations"].values() if backend in of)
               for backend in ("sm80", "sm90", "cpu")}
    return {key: row["code"] for key, row in said["options"].items()} | objects | {
        f"rebuilt_{name}": count for name, count in said["rebuilt"].items()} | {f"lines_{name}": n for name, n in said["lines"].items()}


def limits():
    rows = [line.split() for line in LIMITS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {row[0]: int(row[1]) for row in rows}


def faults(counts, most):
    """A count above its limit, or a limit of something that is no longer counted."""
    for name, limit in most.items():
        if name not in counts:
            yield f"{name} is in tests/counts.limits, but it is not counted"
        elif counts[name] > limit:
            where = "" if "_" in name and name.split("_")[0] in ("objects", "rebuilt", "lines") else f": tests/counts.py --where {name}"
            yield f"{name}: {counts[name]}, at most {limit}{where}"


def check():
    counts, most = flat(everything()), limits()
    bad = list(faults(counts, most))
    # A fault of each kind must be found.
    for spoilt, words in (({**counts, "zero_unused": 1000}, "zero_unused: 1000, at most"), ({}, "it is not counted")):
        if not any(words in fault for fault in faults(spoilt, most)):
            bad.append(f"'{words}' is not found")
    planted = {"src/a.hpp": "bool zero_unused;", "docs.md": "`zero_unused`", "b.py": "nonzero_unused_x"}
    planted = {name: (words_of(text), name != "docs.md") for name, text in planted.items()}
    if naming("zero_unused", planted) != ["src/a.hpp", "docs.md"]:
        bad.append(f"of planted files these name zero_unused: {naming('zero_unused', planted)}")
    if sum(map(len, option_names().values())) < 30:
        bad.append("the lists of fields in src/api were not found")
    print("\n".join(bad) or f"{len(most)} counts are within their limits")
    lower = [name for name, limit in most.items() if counts.get(name, limit) < limit]
    if lower and not bad:
        print(f"fallen, for tests/counts.py --lower: {' '.join(lower)}")
    sys.exit(bool(bad))


def lower():
    counts, text = flat(everything()), LIMITS.read_text()
    for name, limit in limits().items():
        if counts.get(name, limit) < limit:
            text = re.sub(rf"^({name} +){limit}\b", lambda found: f"{found[1]}{counts[name]:<{len(str(limit))}}", text, flags=re.M)
    LIMITS.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--where", metavar="OPTION", help="the files that name it")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--lower", action="store_true")
    given = parser.parse_args()
    if given.where:
        print("\n".join(naming(given.where, programs())))
    elif given.check:
        check()
    elif given.lower:
        lower()
    else:
        said = everything()
        print(json.dumps(said, indent=1)) if given.json else show(said)


if __name__ == "__main__":
    main()
