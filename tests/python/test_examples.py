"""examples/python at toy size: they run, say what they promise, and are short."""

from __future__ import annotations

import json
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


def test_compare_encoder(monkeypatch, capsys):
    pytest.importorskip("transformers", reason="transformers is not installed")
    lines = run("compare_encoder", ["tiny", "--count", "4"], monkeypatch, capsys).splitlines()[-3:]
    assert [line.split()[0] for line in lines] == ["eager", "sdpa", "falchion"]
    assert float(lines[2].split()[1]) > 0.99999


def test_compare_model(monkeypatch, capsys, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = "--prompts 24 --batches 1 2 --new 4 --dtypes float32".split()
    figures = tmp_path / "figures.json"
    run("compare_model", ["tiny", *sizes, "--json", str(figures)], monkeypatch, capsys)
    found = json.loads(figures.read_text())
    assert [row[1] for row in found["exactness"]] == ["eager", "sdpa", "falchion"]
    away, perplexity, *same = found["exactness"][2][2:]
    assert away < 1e-4 and same == ["same", "same"]
    assert abs(perplexity - found["exactness"][0][3]) < 1e-2
    assert [row[1:4] for row in found["speeds"][2::3]] == [["falchion", 1, 24], ["falchion", 2, 24]]


def test_train_model(monkeypatch, capsys, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = "--steps 6 --length 32 --batch 2 --rate 1e-3 --dtype float32".split()
    picture, figures = tmp_path / "losses.svg", tmp_path / "losses.json"
    written = ["--picture", str(picture), "--json", str(figures)]
    out = run("train_model", ["tiny", *sizes, *written], monkeypatch, capsys)
    losses = json.loads(figures.read_text())
    assert max(abs(x - y) for x, y in zip(losses["sdpa"], losses["falchion"])) < 1e-4, out
    assert losses["falchion"][-1] < losses["falchion"][0]
    assert picture.read_text().count("<polyline") == 2
