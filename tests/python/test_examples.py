"""examples/python at toy size: they run, say what they promise, and are short."""

from __future__ import annotations

import pathlib
import sys

import pytest
import torch_support

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"


def run(name, arguments, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    __import__(name).main()
    return capsys.readouterr().out


def test_they_are_short():
    files = list(FOLDER.glob("*.py"))
    assert files
    for file in files:
        assert len(file.read_text().splitlines()) <= 80, file.name


def test_train_bytes(monkeypatch, capsys, tmp_path):
    sizes = "--steps 12 --layers 1 --heads 2 --head-dim 16 --length 32 --batch 2".split()
    picture = tmp_path / "losses.svg"
    out = run("train_bytes", [*sizes, "--picture", str(picture)], monkeypatch, capsys)
    torch_support.torch.use_deterministic_algorithms(False)
    assert "falchion twice: the same bits" in out
    assert float(out.split("first 50 ")[1].split(",")[0]) < 1e-4
    assert picture.read_text().count("<polyline") == 2


@pytest.mark.parametrize("name", ["compare_model", "compare_encoder"])
def test_compare(name, monkeypatch, capsys):
    pytest.importorskip("transformers", reason="transformers is not installed")
    more = ["--prompt", "24", "--new", "4"] if name == "compare_model" else ["--count", "4"]
    lines = run(name, ["tiny", *more], monkeypatch, capsys).splitlines()[-3:]
    assert [line.split()[0] for line in lines] == ["eager", "sdpa", "falchion"]
    value = float(lines[2].split()[1])
    assert value < 1e-4 if name == "compare_model" else value > 0.99999
    assert name != "compare_model" or lines[2].split()[2] == "same"
