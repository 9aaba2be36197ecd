"""bench/accuracy_eight.py at a toy size: the forms come in their order, and the inputs that find faults are got right."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench" / "accuracy_eight.py"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    from falchion import sdk

    path = sdk.library_path()
    out = tmp_path_factory.mktemp("eight") / "result.json"
    sizes = ("--s", "128", "--keys", "128,256", "--rows", "4", "--tensors", "none")
    subprocess.run([sys.executable, PROGRAM, "--lib", path, "--json", out, *sizes], check=True, timeout=120)
    tables = subprocess.run([sys.executable, PROGRAM, "--tables", out], check=True, capture_output=True, text=True)
    return json.loads(out.read_text()), tables.stdout


def test_forms_are_in_their_order(result):
    rel = {(row["input"], row["form"]): row["rel"] for row in result[0]["rows"]}
    for name in ("normal", "outliers"):
        eight = rel[name, "e4m3, a head"]
        assert 0.03 < eight < 0.15
        assert rel[name, "i8, 1 x 128, rotated, smooth"] < eight
        assert rel[name, "i8, 1 x 128, rotated, smooth, v bf16"] < 0.4 * eight
        assert rel[name, "bf16"] < 0.01


def test_hard_inputs_are_right(result):
    for row in result[0]["hard"]:
        assert row["rel"] < 0.02, row
        assert abs(row.get("share", 1) - 1) < 2e-3, row
        assert row.get("last_row_is_nan", True), row


def test_tables_have_every_form(result):
    assert result[1].count("| e4m3, a head |") == 4
    assert "| V of mean 1, 256 keys |" in result[1]
