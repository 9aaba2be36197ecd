#!/usr/bin/env python3
# tests/docs_test.py: checks that what documents, comments and scripts name is there: files and folders, the targets of
# links, tests by their name ("Suite.Name"), what is cited from a document (docs/x.md, "its words"), and in documents also
# the words in backticks that look like names of code. CHANGELOG.md may speak of what is gone. docs/environment.md must
# have a row for each variable of the environment that is read. Then texts with one fault each are checked, to see that
# each fault is found.
#
# It does not see a Suite.Name whose whole suite is gone, nor suites in ctest's regular expressions, nor /* */ comments.
# And a word counts as there if a comment alone has it.
import fnmatch
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = "src|tools|tests|docs|bench|cmake|include|examples|python|rust"
CODE = "hpp|cpp|cuh|cu|def|py|pyi|rs|sh|md|cmake|inc"
# These files are written by a build.
GENERATED = {"falchion_variants.inc", "readme.cpp"}
# docs/map.md, docs/design/api.md and comments name these for what is not there yet. A name that is there must leave
# this list.
PLANNED_FILES = set()
PLANNED_WORDS = set()
# These words are not ours: a counter of ncu, an instruction of PTX, and CuTe's rule for names.
FOREIGN_WORDS = {"l1tex__data_bank_reads", "commit_group", "tXyY"}


# In the tables of these pages the first column has another library's names.
PAGES_OF_OTHERS = {"docs/python_coming_from.md"}


class Tree:
    """The files of the repository, and what can be named in it."""

    def __init__(self):
        self.files = []
        for folder, folders, names in os.walk(ROOT):
            here = pathlib.Path(folder).relative_to(ROOT)
            folders[:] = [f for f in folders if f == ".ci" or not f.startswith((".", "build", "__pycache__"))]
            if here == pathlib.Path("."):
                folders[:] = [f for f in folders if f in FOLDERS.split("|") or f == ".ci"]
            self.files += [(here / name).as_posix() for name in names]
        self.folders = {parent.as_posix() for file in self.files for parent in pathlib.PurePosixPath(file).parents}
        self.paths = {"/" + path for path in self.folders | set(self.files)}
        no_code = (".md", ".svg", ".pyc", ".safetensors", ".npy", "tests/docs_test.py")
        code = "\n".join(self.text(file) for file in self.files if not file.endswith(no_code) and "/corpus/" not in file)
        self.words = set(re.findall(r"\w+", code))
        self.tests = set(re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", code))
        self.suites = {suite for suite, _ in self.tests}
        self.python_tests = set(re.findall(r"^def (test_\w+)", code, re.MULTILINE))

    @staticmethod
    def text(file):
        return (ROOT / file).read_text(errors="replace")

    def has(self, path):
        """Whether a file or folder has this path, or a path with this end. _wide.cuh is the end of a file's name."""
        path = re.sub(r"^(\.\.?/)+", "", path.rstrip("/"))
        if "*" in path:
            return any(fnmatch.fnmatch(p, "*/" + path) for p in self.paths)
        start = "" if path.startswith("_") else "/"
        return any(p.endswith((start + path, start + path + ".in")) for p in self.paths)


def alternatives(path):
    """Returns the paths that a/{b,c}.hpp stands for, as in a shell."""
    match = re.match(r"(.*?)\{([^{}]*)\}(.*)", path)
    if not match:
        return [path]
    return [all_of for one in match[2].split(",") for all_of in alternatives(match[1] + one + match[3])]


def named_paths(text):
    """Returns the paths in a text. A bare name must end as code does, since other bare names may be results of a user."""
    text = re.sub(r"\w+://\S+", "", text)
    found = re.findall(rf"(?<![\w./<-])(?:[\w*{{}},.-]+/)*[\w*{{}},-]+\.(?:{CODE})\b", text)
    found += [path.rstrip(".,-") for path in re.findall(rf"(?<![\w/.-])(?:{FOLDERS})/[\w*{{}},./-]+", text)]
    return {path for pattern in found for path in alternatives(pattern)}


def is_placeholder(path):
    """Whether a path stands for other names, such as X_test.cpp and DIR/bench/device.sh."""
    return re.search(r"(^|[/_]|smN)[A-Z]+([/_.]|$)", path) is not None


def prose_of(file, text):
    """Returns (line number, text) of what is prose, which is all of a document, and the comments of code."""
    lines = enumerate(text.split("\n"), 1)
    if file.endswith(".md"):
        return list(lines)
    comments = ((number, re.search(r"(?:^|\s)(?://|#(?!include|if|define|pragma|else|end))(.*)", line))
                for number, line in lines)
    return [(number, comment[1]) for number, comment in comments if comment]


def without_code_blocks(text):
    """Returns the text with empty lines in place of what stands between ``` and ```."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text):
    """Returns the names by which links lead to the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", without_code_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def faults_of_links(file, line, text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", re.sub(r"`[^`]+`", "", line)):
        there = (ROOT / file).parent / target if target else None
        if "://" in target or not (target or anchor):
            continue
        if there and not there.exists():
            yield f"the link {target} leads nowhere"
        elif anchor and anchor not in anchors_of(there.read_text() if there else text):
            yield f"the link {target}#{anchor} leads to no heading"


def faults_of_citations(tree, file, text):
    """Checks citations like docs/x.md, "its words". They may go over several lines, and the words may stand anywhere there."""
    lines = prose_of(file, text)
    prose = " ".join(re.sub(r"^\s*/?\s*", "", line) for _, line in lines)
    for name, words in re.findall(r'([\w/.-]+\.md)\)?, "([^"]{4,}?)\.?"', prose):
        cited = [f for f in tree.files if ("/" + f).endswith("/" + re.sub(r"^(\.\.?/)+", "", name))]
        if cited and not any(words.lower() in " ".join(tree.text(f).split()).lower() for f in cited):
            start = words.split()[0]
            number = next((n for n, line in lines if start in line), 1)
            yield number, f"{name} does not say {words!r}"


def faults_of_words(tree, line):
    for quoted in re.findall(r"`([^`]+)`", line):
        for word in re.findall(r"(?<![\w-])[A-Za-z]\w{3,}(?![\w*])", quoted):
            is_name = "_" in word or re.search("[a-z][A-Z]", word)
            if is_name and word not in tree.words | PLANNED_WORDS | FOREIGN_WORDS and not re.search(r"\.\w+$", quoted):
                yield f"nothing is named {word}"


def faults_of_contract(tree, text):
    """Checks the rules of docs/contract.md: each has a heading of its own, by which messages cite it, and below it the names
    of its tests, where they may stand without their suite."""
    names, headings, line = {name for test in tree.tests for name in test}, set(), 1
    for part in re.split(r"^(?=##)", text, flags=re.MULTILINE):
        if part.startswith("### "):
            heading = part.split("\n")[0][4:]
            anchor = min(anchors_of("# " + heading))
            if anchor in headings:
                yield line, f"another rule has the heading {heading}"
            headings.add(anchor)
            tests = re.search(r"^Tests: ((?:.+\n?)+)", part, re.MULTILINE)
            if not tests:
                yield line, f"the rule {heading} names no test"
            at = line + part.count("\n", 0, tests.start()) if tests else line
            for name in re.findall(r"(?<!\.)\b[A-Z]\w*[a-z0-9][A-Z]\w*\b", tests[1] if tests else ""):
                if name not in names:
                    yield at, f"there is no test {name}"
            for name in re.findall(r"(?<!/)\btest_\w+\b(?!\.)", tests[1] if tests else ""):
                if name not in tree.python_tests:
                    yield at, f"there is no test {name}"
        elif re.search(r"^\| case \|", part, re.MULTILINE):
            yield line, "a rule is a heading with its text and its tests, and no row of a table"
        line += part.count("\n")


def faults_of_rules_cited(tree, text):
    """Checks what messages and comments cite: contract.md#row-that-sees-no-key."""
    for anchor in re.findall(r"contract\.md#([\w-]+)", text):
        if anchor not in anchors_of(tree.text("docs/contract.md")):
            yield f"docs/contract.md has no rule #{anchor}"


def faults_of_tests(tree, line):
    for suite, name in re.findall(r"\b([A-Z]\w+)\.([A-Z]\w+)\b", line):
        if suite in tree.suites and (suite, name) not in tree.tests:
            yield f"there is no test {suite}.{name}"


def faults_in(tree, file, text):
    found = []
    for number, line in prose_of(file, text):
        found += [(number, f"there is no {path}") for path in sorted(named_paths(line))
                  if not tree.has(path) and path not in GENERATED | PLANNED_FILES and not is_placeholder(path)]
    # A script that filters by the name of a test that is gone would silently run nothing, so all its lines count.
    is_script = file.endswith(".sh") or file in ("dev", ".ci/run")
    for number, line in enumerate(text.split("\n"), 1) if is_script else prose_of(file, text):
        found += [(number, fault) for fault in faults_of_tests(tree, line)]
    if file.endswith(".md"):
        for number, line in prose_of(file, without_code_blocks(text)):
            if file in PAGES_OF_OTHERS:
                line = re.sub(r"^\|.*?\|", "|", line)
            found += [(number, fault) for fault in (*faults_of_links(file, line, text), *faults_of_words(tree, line))]
    found += faults_of_citations(tree, file, text)
    if file == "docs/contract.md":
        found += faults_of_contract(tree, text)
    if "contract.md#" in text:
        for number, line in enumerate(text.split("\n"), 1):
            found += [(number, fault) for fault in faults_of_rules_cited(tree, line)]
    return [f"{file}:{number}: {fault}" for number, fault in dict.fromkeys(sorted(found))]


def is_checked(file):
    if file in ("CHANGELOG.md", "tests/docs_test.py") or file.startswith(("bench/results/", "tests/fuzz/corpus/")):
        return False
    endings = (".md", ".cpp", ".hpp", ".cu", ".cuh", ".h", ".py", ".sh", ".cmake", ".def", ".in")
    return file.endswith(endings) or file in ("dev", ".ci/run", "CMakeLists.txt")


READS_OF_ENVIRONMENT = (r'(?:getenv|environment|var|var_os|environ\.get)\("(FALCHION_\w+)"|environ\["(FALCHION_\w+)"\]',  # code
                        r"\$\{(FALCHION_\w+):?[-+]|\$(FALCHION_\w+)|ENV\{(FALCHION_\w+)\}")  # scripts; CMake


def variables_read(file, text):
    """The variables FALCHION_X of the environment that a file reads. In a script an assignment makes it its own."""
    is_script = file.endswith((".sh", ".cmake", "CMakeLists.txt")) or file in ("dev", ".ci/run")
    found = {name for names in re.findall(READS_OF_ENVIRONMENT[is_script], text) for name in names if name}
    return found - set(re.findall(r"^ *(?:local )?(FALCHION_\w+)=(?!\$\{)", text, re.MULTILINE))


def faults_of_environment(read, page):
    """Checks docs/environment.md, whose tables have one row for each variable. `read` are those that the code reads."""
    told = set(re.findall(r"^\| `(FALCHION_\w+)` \|", page, re.MULTILINE))
    return [f"docs/environment.md: {name} is read and has no row there" for name in sorted(read - told)] + [
        f"docs/environment.md: nothing reads {name}" for name in sorted(told - read)]


def all_faults_of_environment(tree):
    files = [f for f in tree.files if not f.startswith(("tests/", "docs/")) and not f.endswith((".md", ".json", ".safetensors"))]
    read = {name for file in files for name in variables_read(file, tree.text(file))}
    page = tree.text("docs/environment.md")
    if [f for f in faults_of_environment(read | {"FALCHION_NEW"}, page) if "FALCHION_NEW is read" in f] == []:
        yield "tests/docs_test.py checks itself and fails: it does not find a variable without a row"
    if variables_read("a.cpp", 'std::getenv("FALCHION_A")') | variables_read("b.sh", "x=${FALCHION_B:-1}") != {"FALCHION_A", "FALCHION_B"}:
        yield "tests/docs_test.py checks itself and fails: it does not see what is read"
    yield from faults_of_environment(read, page)


def built_already(tree):
    faults = [f"tests/docs_test.py: {path} is built now, so take it out of PLANNED_FILES"
              for path in sorted(PLANNED_FILES) if tree.has(path)]
    return faults + [f"tests/docs_test.py: {word} is built now, so take it out of PLANNED_WORDS"
                     for word in sorted(PLANNED_WORDS & tree.words)]


# (file, text, the fault that must be found; "" for a text without a fault)
EXAMPLES = (
    ("docs/x.md", "see src/plan/nothing.cpp.", "there is no src/plan/nothing.cpp"),
    ("docs/x.md", "see src/nowhere/ for it", "there is no src/nowhere/"),
    ("docs/x.md", "src/plan/{work,nothing}.cpp", "there is no src/plan/nothing.cpp"),
    ("docs/x.md", "in [map](map.md) and [that](mop.svg)", "the link mop.svg leads nowhere"),
    ("docs/x.md", "in [map](map.md#nothing)", "the link map.md#nothing leads to no heading"),
    ("docs/x.md", "the function `plan_a_journey()`", "nothing is named plan_a_journey"),
    ("docs/x.md", "checked by Contract.NothingOfTheKind", "there is no test Contract.NothingOfTheKind"),
    ("src/x.cpp", '// as docs/contract.md, "head dims",\n', ""),
    ("src/x.cpp", '// as docs/contract.md, "nothing\n// of the kind"', "docs/contract.md does not say 'nothing of the kind'"),
    ("docs/contract.md", "### A rule\nTests: NothingOfTheKind", "there is no test NothingOfTheKind"),
    ("docs/contract.md", "### A rule\nits text", "the rule A rule names no test"),
    ("docs/contract.md", "### A rule\nTests: Docs\n### A rule\nTests: Docs", "another rule has the heading A rule"),
    ("docs/contract.md", "| case | rule | test |", "a rule is a heading with its text and its tests, and no row of a table"),
    ("src/x.cpp", 'return "see docs/contract.md#nothing";', "docs/contract.md has no rule #nothing"),
    ("src/x.cpp", 'return "see docs/contract.md#row-that-sees-no-key";', ""),
    ("src/x.cpp", "int x;  // as in blocks/nothing.hpp", "there is no blocks/nothing.hpp"),
    ("bench/x.sh", "run 'Contract.NothingOfTheKind'", "there is no test Contract.NothingOfTheKind"),
    ("src/x.cpp", '#include "blocks/nothing.hpp"', ""),
    ("docs/x.md", "src/plan/work.{cpp,hpp}, tests/X_test.cpp, `Contract.HeadDims`", ""),
    ("docs/python_coming_from.md", "| `their_name` | `attention` |", ""),
    ("docs/python_coming_from.md", "| `attention` | `their_name` |", "nothing is named their_name"),
    ("docs/x.md", "# A heading\nin [map](map.md#the-one-place-for-each-change) and [here](#a-heading)", ""),
)


def main():
    tree = Tree()
    faults = built_already(tree) + list(all_faults_of_environment(tree))
    for file in filter(is_checked, tree.files):
        faults += faults_in(tree, file, tree.text(file))
    for file, text, fault in EXAMPLES:
        found = faults_in(tree, file, text)
        if [re.sub(r":\d+:", ":", f, count=1) for f in found] != ([f"{file}: {fault}"] if fault else []):
            faults.append(f"tests/docs_test.py checks itself and fails: in {text!r} it must find {fault!r}, "
                          f"but it finds {found}")
    if faults:
        print("\n".join(faults))
        print("Correct the name. A name that is planned or not ours goes into the lists at the top of "
              "tests/docs_test.py.")
    else:
        print("each file, link, test and name that documents, comments and scripts mention is there")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
