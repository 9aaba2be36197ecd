#!/usr/bin/env python3
"""python/docstrings.py: writes docstrings.inc from falchion/_fal.pyi, so that signatures and docstrings stand in one place.

python/docstrings.py            # writes it
python/docstrings.py --check    # 1 where it is not what it would be
"""

import ast
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
STUB, INC = HERE / "falchion" / "_fal.pyi", HERE / "docstrings.inc"


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


def text() -> str:
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
    if "--check" not in sys.argv[1:]:
        INC.write_text(text())
        return 0
    if INC.read_text() == text():
        return 0
    print("python/docstrings.inc is not what falchion/_fal.pyi says: run python/docstrings.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
