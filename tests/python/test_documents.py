"""Runs the examples of docs/python*.md, so that none of them promises what is not so.

Each ```python block is run, one after another in one namespace for each document. A block with ``>>>`` is a doctest: what
it prints must be what stands below. Any other is run as it is. A document whose library is not installed is skipped.
"""

import doctest
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted((ROOT / "docs").glob("python*.md"))
# What a document needs besides NumPy.
NEEDS = {
    "python_coming_from": ["torch", "jax"],
    "python_torch": ["torch"],
    "python_from_flash_attn": ["torch"],
    "python_huggingface": ["torch", "transformers"],
    "python_jax": ["jax"],
}


def blocks_of(text: str) -> list[tuple[int, str]]:
    """(line number, source) of each ```python block."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)), block[1]) for block in found]


def faults_of(text: str, name: str) -> list[str]:
    """Runs the blocks of a document and tells what went wrong."""
    names: dict[str, Any] = {"__name__": name}
    faults: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for line, source in blocks_of(text):
        if ">>>" in source:
            test = doctest.DocTestParser().get_doctest(source, names, name, name, line)
            runner.run(test, out=faults.append, clear_globs=False)
            names = test.globs
        else:
            # The empty lines make the numbers in a traceback those of the document.
            exec(compile("\n" * line + source, name, "exec"), names)  # noqa: S102
    return faults


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_examples(document: Path) -> None:
    for module in NEEDS.get(document.stem, []):
        try:
            importlib.import_module(module)
        except (ImportError, OSError) as why:  # OSError: a library of CUDA that PyTorch wants
            pytest.skip(f"{module} cannot be imported: {why}")
    faults = faults_of(document.read_text(), document.name)
    assert not faults, "\n".join(faults)


def words_to_be_filled_in(text: str) -> list[str]:
    """What stands for a number that is still to be measured: @SIZE@, OVERHEAD_TABLE."""
    return re.findall(r"@[A-Z_]+@|\b[A-Z]+_(?:TABLE|NUMBERS?|FIGURE)\b|\bTBD\b", text)


def dead_links(text: str) -> list[str]:
    """The files that a document in docs/ links to and that are not there."""
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    return [to for to in targets if "://" not in to and not (ROOT / "docs" / to).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_nothing_is_left_to_be_filled_in(document: Path) -> None:
    text = document.read_text()
    assert words_to_be_filled_in(text) == []
    assert dead_links(text) == []


def test_what_is_left_is_found() -> None:
    assert words_to_be_filled_in("a MB (@SIZES@)\n\nOVERHEAD_TABLE\n") == ["@SIZES@", "OVERHEAD_TABLE"]
    assert dead_links("[a](python.md) [b](nothing.md#x) [c](https://x.y/z) [d](#d)") == ["nothing.md"]


def test_a_wrong_example_is_found() -> None:
    wrong = "text\n\n```python\n>>> x = 1 + 1\n>>> x\n3\n```\n"
    assert len(faults_of(wrong, "wrong.md")) == 1
    assert not faults_of(wrong.replace("3", "2"), "right.md")
    shared = "```python\nx = 2\n```\n\n```python\n>>> x\n2\n```\n"
    assert not faults_of(shared, "shared.md")
