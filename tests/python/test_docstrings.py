"""Signatures and docstrings stand in _fal.pyi alone, its lists of options are those of fields.def, and the extension has both."""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import falchion
import pytest
from falchion import _fal

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "python/docstrings.py").exists(), reason="the sources are not here")
FILES = ("python/docstrings.py", "python/falchion/_fal.pyi", "python/call/options.def", "src/base/fields.def")


def run(root: Path, *arguments: str) -> int:
    command = [sys.executable, str(root / FILES[0]), *arguments]
    return subprocess.run(command, capture_output=True, check=False).returncode


def copy_to(root: Path) -> None:
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)


def change(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new, 1))


def test_the_stub_has_each_option() -> None:
    assert run(ROOT, "--check") == 0


def test_a_list_that_is_not_the_fields_is_found(tmp_path: Path) -> None:
    for old, new in (
        ("softcap: float = 0.0", "softcap: float = 1.0"),
        ("    zero_unused: bool = False,\n", ""),
        ("    k_scale_rows: int = 0,\n    return_lse", "    return_lse"),
        ("        mask: Any = False,\n", ""),
        ("    first_k: AnyArray | None = None,\n    layout", "    layout"),
    ):
        copy_to(tmp_path)
        change(tmp_path, FILES[1], old, new)
        assert run(tmp_path, "--check") == 1, old
        assert run(tmp_path) == 0 and (tmp_path / FILES[1]).read_text() == (ROOT / FILES[1]).read_text()


def test_a_new_field_costs_its_row(tmp_path: Path) -> None:
    """Every signature gets it, and the docstring its text."""
    copy_to(tmp_path)
    row = 'FALCHION_FIELD(tensor, alibi, alibi, "--alibi", '
    change(tmp_path, FILES[3], row, f'FALCHION_FIELD(number, heat, heat, "--heat", "How warm")\n{row}')
    change(tmp_path, FILES[3], row, f'FALCHION_FIELD(flag, damp, damp, "--damp", "Wet or dry")\n{row}')
    row = "FALCHION_BACKWARD_FIELD(word, grads"
    change(tmp_path, FILES[3], row, f'FALCHION_BACKWARD_FIELD(flag, cool, cool, "--cool", "Cold sums")\n{row}')
    row = "FALCHION_CACHE_OPERAND(page_table,"
    change(tmp_path, FILES[3], row, f'FALCHION_CACHE_OPERAND(hot_pages, reads, neither, page_table, i32, a.cache, "cache")\n{row}')
    assert run(tmp_path, "--check") == 1 and run(tmp_path) == 0 and run(tmp_path, "--check") == 0
    stub = (tmp_path / FILES[1]).read_text()
    assert stub.count("    heat: float = 0.0,\n") == 9 and "\n    heat: how warm.\n" in stub
    assert stub.count("    damp: bool = False,\n") == 9 and "\n    damp: wet or dry.\n" in stub
    assert stub.count("    hot_pages: AnyArray | None = None,\n") == 7 and stub.count("    hot_pages: Any = False,\n") == 1
    assert stub.count("    cool: bool = False,\n") == 3 and "\n    cool: cold sums.\n" in stub


def test_each_field_of_a_cache_can_be_said() -> None:
    """It is an option, or an array says it."""
    text = (ROOT / FILES[3]).read_text()
    fields = set(re.findall(r"^FALCHION_CACHE_FIELD\(\w+, (\w+),", text, re.M))
    by_arrays = set(re.findall(r'^FALCHION_(?:CACHE_)?OPERAND\(.*"(\w+)"\)$', text, re.M))
    assert {"cache", "page_size"} <= fields
    by_types = {"dtype_k", "dtype_v", "dtype_o"}  # of the arrays k, v and o
    assert fields - {name for _, name in _fal._forwards} <= by_arrays | by_types


def test_the_keywords_of_frameworks_are_the_options() -> None:
    """Each is in falchion.types, but for what torch and JAX do themselves."""
    from falchion.types import Options

    wanted = {name for kind, name in _fal._options if kind != "run"} - {"threads"}
    assert set(Options.__annotations__) == wanted | {"return_lse", "any_order"}
    defaults = inspect.signature(falchion.attention).parameters
    for module in "torch", "jax":
        functions = pytest.importorskip(f"falchion.{module}")
        taken = inspect.signature(functions.attention).parameters
        assert wanted < set(taken) and list(taken)[:3] == ["q", "k", "v"]
        assert all(taken[name].default == defaults[name].default for name in wanted)
        assert [name for name in defaults if name in taken] == [name for name in taken if name in defaults]
        assert all(x.kind is inspect.Parameter.KEYWORD_ONLY for x in list(taken.values())[3:])
        taken = inspect.signature(functions.varlen).parameters
        assert "max_k" in taken and "softcap" in taken and "mask" not in taken


def test_the_extension_has_the_options_of_the_stub() -> None:
    options = [name for _, name in _fal._options]
    forwards = [name for _, name in _fal._forwards]
    gradients = [name for _, name in _fal._gradients]
    of_runs = {name for kind, name in _fal._options if kind == "run"}

    def names(function: object) -> list[str]:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]

    assert "softcap" in options and "page_table" in forwards and "any_order" in gradients
    for function, first in (falchion.attention, "causal"), (falchion.varlen, "causal"):
        assert names(function) == [*names(function)[: names(function).index(first)], *options, *forwards, "return_lse", "out", "lse"]
    for function in falchion.attention_backward, falchion.varlen_backward:
        at = names(function).index("causal")
        assert names(function)[at:] == [*options, *gradients, "grads", "accumulate", "f32"]
    plan = names(falchion.Plan)
    planned = [name for name in options if name not in of_runs] + forwards
    assert plan[4:] == [
        *planned, "backward", "return_lse", *gradients, "f32", "accumulate", "frozen", "sequences", "max_q", "max_k", "target",
        "sms", "dtype_v",
    ]  # fmt: skip
