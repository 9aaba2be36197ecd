#!/usr/bin/env python3
"""python/docstrings.py: signatures and docstrings stand in falchion/_fal.pyi alone, and the options of attention there are
those of call/options.def and src/base/fields.def.

python/docstrings.py            # writes each list of these options in _fal.pyi anew; one without a line in the docstring
                                # gets its text of fields.def, which may then be made better by hand
python/docstrings.py --check    # 1 where it would change something
python/docstrings.py --c FILE   # writes the docstrings as the strings of C that the extension includes; the build does
"""

import ast
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
STUB, OPTIONS, FIELDS = HERE / "falchion/_fal.pyi", HERE / "call/options.def", HERE.parent / "src/base/fields.def"

# The type and the default of an argument by the kind of its option, and of those that are not as their kind is.
OF_KIND = {
    "number": "float = 0.0",
    "tensor": "AnyArray | None = None",
    "output": "AnyArray | None = None",
    "lengths": "AnyArray | None = None",
    "starts": "AnyArray | None = None",
    "scale": "AnyArray | None = None",
    "count": "int = 0",
    "flag": "bool = False",
}
OWN = {
    "causal": "Causal = False",
    "window": "Window | None = None",
    "align": "Align | None = None",
    "scale": "float | None = None",
    "seed": "int | AnyArray | None = None",
    "offset": "int | None = None",
    "origin": "tuple[int, ...] | None = None",
    "layout": 'Layout = "bshd"',
    "backend": 'Backend = "best"',
    "threads": "int = 0",
    "stream": "Any = None",
}
ARRAYS = ("tensor", "output", "lengths", "starts", "scale")

Rows = list[tuple[str, str, str]]  # kind, name, text


def fields(macro: str) -> Rows:
    """The rows of fields.def that have an argument here."""
    own = {"LENGTHS": "lengths", "CACHE_OPERAND": "tensor"}
    found: Rows = []
    for line in FIELDS.read_text().splitlines():
        if not line.startswith(f"FALCHION_{macro}("):
            continue
        words = [word.strip() for word in line[line.index("(") + 1 :].split(",")]
        kind, name = (own[macro], words[0]) if macro in own else words[:2]
        if kind in OF_KIND:
            found.append((kind, name, re.findall(r'"([^"]*)"', line)[-1]))
    return found


def options() -> tuple[Rows, Rows, Rows]:
    """The options of every function of attention, those of the forward pass and those of gradients, in the order of
    options.def."""
    common: Rows = []
    forwards: Rows = []
    gradients: Rows = []
    texts = {name: text for _, name, text in fields("CACHE_FIELD")}
    for line in OPTIONS.read_text().splitlines():
        if own := re.fullmatch(r"(BAND|RUN|TARGET)_OPTION\((\w+)\)", line):
            common.append((own[1].lower(), own[2], ""))
        elif own := re.fullmatch(r"(FLAG|COUNT|STARTS|SCALE)_FORWARD\((\w+)\)", line):
            forwards.append((own[1].lower(), own[2], texts.get(own[2], "")))
        elif included := re.match(r"#define FALCHION_(\w+)\(", line):
            to = gradients if included[1].startswith("BACKWARD") else forwards if included[1] == "CACHE_OPERAND" else common
            to.extend(fields(included[1]))
    return common, forwards, gradients


def as_arguments(rows: Rows, indent: str = "    ") -> str:
    return "".join(f"{indent}{name}: {OWN.get(name) or OF_KIND[kind]},\n" for kind, name, _ in rows)


def as_arguments_of_plan(rows: Rows, wanted: str) -> str:
    """A plan is told which arrays there will be, and nothing of a run."""
    lines = []
    for kind, name, _ in rows:
        if kind != "run":
            lines.append(f"        {name}: {wanted if kind in ARRAYS else OWN.get(name) or OF_KIND[kind]},\n")
    return "".join(lines)


def with_lines(docstring: str, rows: Rows, before: str) -> str:
    """The docstring of a function with a line for each option that has none yet."""
    for _, name, text in rows:
        if not re.search(rf"^    (\w+, )*{name}(, \w+)*:", docstring, re.M):
            line = f"{name}: {text[:1].lower()}{text[1:]}."
            wrapped = textwrap.fill(line, 120, initial_indent="    ", subsequent_indent="        ")
            docstring = docstring.replace(f"\n    {before}:", f"\n{wrapped}\n    {before}:", 1)
    return docstring


def written(stub: str) -> str:
    """The stub with all lists of options as they have to be."""
    common, forwards, gradients = options()
    lengths = [row for row in common if row[0] == "lengths"] + forwards
    line = r"(?: +\w+: .*\n)*?"
    for pattern, lines in (
        (rf"(?m:^)    causal: .*\n{line}    stream: .*\n", as_arguments(common)),
        (rf"(?<=    stream: Any = None,\n){line}(?=    return_lse: )", as_arguments(forwards)),
        (rf"(?<=    stream: Any = None,\n){line}(?=    grads: )", as_arguments(gradients)),
        (rf"(?<=    max_k: int \| None = None,\n){line}(?=    layout: Layout = \"bshd\",\n\) -> None)", as_arguments(lengths)),
        (rf"        causal: .*\n{line}(?=        backward: )", as_arguments_of_plan(common + forwards, "Any = False")),
        (rf"(?<=        return_lse: bool = False,\n){line}(?=        f32: )", as_arguments_of_plan(gradients, "bool = False")),
    ):
        stub = re.sub(pattern, lambda _: lines, stub)
    for function, rows, before in (
        ("attention", common, "layout"),
        ("attention", forwards, "layout"),
        ("attention_backward", gradients, "grads"),
    ):
        found = re.search(rf'^def {function}\(.*?"""(.*?)"""', stub, re.M | re.S)
        assert found is not None
        stub = stub[: found.start(1)] + with_lines(found[1], rows, before) + stub[found.end(1) :]
    return stub


def signature(name: str, first: str, arguments: ast.arguments) -> str:
    """The signature in the form that CPython reads from the docstring of a C function or a class."""
    assert not (arguments.vararg or arguments.kwarg or arguments.posonlyargs)
    first_default = len(arguments.args) - len(arguments.defaults)
    parts = [first] if first else []
    for index, argument in enumerate(arguments.args):
        if argument.arg == "self":
            continue
        default = arguments.defaults[index - first_default] if index >= first_default else None
        parts.append(argument.arg + (f"={ast.unparse(default)}" if default else ""))
    if arguments.kwonlyargs:
        parts.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parts.append(argument.arg + (f"={ast.unparse(default)}" if default else ""))
    return f"{name}({', '.join(parts)})\n--\n\n"


def as_c(text: str) -> str:
    """A string of C with one line of the text on each line."""
    lines = [line.replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")]
    return " \\\n".join(f'  "{line}\\n"' for line in lines[:-1]) + f' \\\n  "{lines[-1]}"'


def docstrings() -> str:
    """docstrings.inc, which the build writes beside its objects."""
    out = ["/* docstrings.inc: the docstrings of the C functions. docstrings.py writes it from falchion/_fal.pyi. */"]
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
            out.append(
                f"#define DOC_{node.name} \\\n"
                + as_c(signature(node.name, "$module", node.args) + str(ast.get_docstring(node)))
            )
        if isinstance(node, ast.ClassDef) and ast.get_docstring(node):
            made = [x for x in node.body if isinstance(x, ast.FunctionDef) and x.name == "__init__"]
            if made:
                out.append(
                    f"#define DOC_{node.name} \\\n"
                    + as_c(signature(node.name, "", made[0].args) + str(ast.get_docstring(node)))
                )
    return "\n".join(out) + "\n"


def main() -> int:
    if "--c" in sys.argv[1:]:
        pathlib.Path(sys.argv[-1]).write_text(docstrings())
        return 0
    stub = STUB.read_text()
    if "--check" not in sys.argv[1:]:
        STUB.write_text(written(stub))
        return 0
    if stub == written(stub):
        return 0
    print("python/falchion/_fal.pyi lacks an option of src/base/fields.def: run python/docstrings.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
