#!/usr/bin/env python3
# tests/pages_test.py [--update] COMMAND: checks that pages show what is so.
# - A ```console block of README.md and docs/ has a line "$ falchion ..." and below it lines of what that prints, as they
#   are printed and in their order. The line that a build without the kernel prints first may be missing. --update
#   writes these lines anew, as many as there were.
# - A ```cpp block of docs/ is text of a file of examples/ that the page links to, so that it is compiled and run. Those of
#   README.md and docs/calls.md are compiled and run as they are (tests/consumer).
# - The README's first screen, which is all before its second heading, has at most 30 lines, empty ones and fences aside,
#   and 8 of them are of `falchion explain`.
# - The tables and pictures that scripts make of bench/results and of src/variants.def are what these make.
# Then pages with one fault each are checked, to see that each fault is found.
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILED_THEMSELVES = ("docs/calls.md",)
MAKERS = ("bench/tables.py", "docs/img/speed.py", "docs/grid.py")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES, LINES_OF_EXPLAIN = 30, 8


def printed(command, typed):
    """What the command prints for a line that begins with "falchion", without what a build lacks."""
    words = shlex.split(typed, comments=True)
    done = subprocess.run([command, *words[1:]], capture_output=True, text=True, cwd=ROOT)
    return [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("not built ")]


def parts_of(block):
    """Yields (what is typed, the lines below it) of a block."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        typed, *shown = part.rstrip("\n").split("\n")
        yield typed, shown


def faults_of_blocks(name, text, command):
    for block in BLOCK.finditer(text):
        if not block[1].startswith("$ falchion "):
            yield f"{name}: a console block must begin with '$ falchion '"
        for typed, shown in parts_of(block[1]):
            real = iter(printed(command, typed))
            missing = [line for line in shown if line not in real]  # `in` moves on, so the order counts
            if missing or not shown:
                yield f"{name}: {typed.split('  ')[0]!r} does not print {missing[:1] or 'nothing'} there"


def faults_of_examples(name, text):
    linked = [ROOT / "docs" / target for target in re.findall(r"\]\((\.\./examples/[\w/]+\.(?:cpp|c|cu))\)", text)]
    sources = [file.read_text() for file in linked if file.is_file()]
    for block in re.findall(r"^```(?:cpp|c)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if not any(block in source for source in sources):
            yield f"{name}: the example that begins {block[:50]!r} is in no file of examples/ that the page links to"


def updated(text, command):
    def block_of(match):
        out = ""
        for typed, shown in parts_of(match[1]):
            out += "\n".join([f"$ {typed}", *printed(command, typed)[:len(shown)]]) + "\n"
        return f"```console\n{out}```"
    return BLOCK.sub(block_of, text)


def faults_of_first_screen(text):
    screen = text.split("\n## ")[0]
    lines = [line for line in screen.splitlines() if line.strip() and not line.startswith("```")]
    if len(lines) > LINES:
        yield f"README.md: the first screen has {len(lines)} lines, at most {LINES}"
    for wanted in ("```cpp", "docs/img/speed.svg", "| forward |", "| backward |", "| decode |", "| GEMM |", "| CPU |",
                   "**Install**", "**Runs on**", "**Times**"):
        if wanted not in screen:
            yield f"README.md: the first screen lacks {wanted}"
    explained = [shown for block in BLOCK.finditer(screen) for typed, shown in parts_of(block[1]) if typed.startswith("falchion explain ")]
    if [len(shown) for shown in explained] != [LINES_OF_EXPLAIN]:
        yield f"README.md: the first screen shows {LINES_OF_EXPLAIN} lines of falchion explain"


def spoilt(readme, command):
    """Yields what went wrong with the checks themselves."""
    gpu = (ROOT / "docs" / "gpu.md").read_text()
    if not any("no file of examples/" in fault for fault in faults_of_examples("docs/gpu.md", gpu.replace("if (!status)", "if (status)"))):
        yield "tests/pages_test.py checks itself and fails: a changed example is not found"
    changes = {"a figure": (readme.replace("132 SMs", "131 SMs"), "does not print"),
               "two lines in another order": (re.sub(r"^(band .*\n)(score .*\n)", r"\2\1", readme, flags=re.MULTILINE), "does not print"),
               "one more line": (readme.replace("\n- **", "\nmore\n- **", 1), "at most 30"),
               "no chart": (readme.replace("docs/img/speed.svg", "x.svg"), "lacks docs/img/speed.svg"),
               "a line less": (re.sub(r"^score .*\n", "", readme, flags=re.MULTILINE), "shows 8 lines")}
    for what, (text, expected) in changes.items():
        found = [*faults_of_blocks("README.md", text, command), *faults_of_first_screen(text)]
        if not any(expected in fault for fault in found):
            yield f"tests/pages_test.py checks itself and fails: {what}: {expected!r} is expected, found: {found}"


def main():
    update, command = "--update" in sys.argv, pathlib.Path(sys.argv[-1]).resolve()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    faults = []
    for page in pages:
        text = page.read_text()
        if update:
            page.write_text(updated(text, command))
        name = page.relative_to(ROOT).as_posix()
        faults += faults_of_blocks(name, page.read_text(), command)
        if name.startswith("docs/") and name not in COMPILED_THEMSELVES:
            faults += faults_of_examples(name, text)
    readme = pages[0].read_text()
    faults += faults_of_first_screen(readme)
    for maker in MAKERS:
        done = subprocess.run([sys.executable, ROOT / maker, "--check"], capture_output=True, text=True)
        faults += (done.stdout + done.stderr).splitlines() if done.returncode else []
    faults = faults or list(spoilt(readme, command))
    print("\n".join(faults) or "what the pages show is what is printed")
    if faults:
        print("tests/pages_test.py --update COMMAND writes what the command prints into them, as many lines as there were")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
