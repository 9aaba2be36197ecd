"""fa_runner.py on a small file of the same kind as FlashAttention's tests."""

from __future__ import annotations

import argparse
import collections
import json
import sys

import fa_runner
import pytest
from torch_support import torch

import falchion.flash_attn

SOURCE = """
import pytest
import torch
from flash_attn import flash_attn_func
from flash_attn.flash_attn_interface import _get_block_size_n

is_sm80 = torch.cuda.get_device_capability("cuda") == (8, 0)


@pytest.mark.parametrize("d", [16, 32, 257])
@pytest.mark.parametrize("s_q,s_k", [(3, 5), (4, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_output(s_q, s_k, d, causal):
    if causal and s_q == 4:
        pytest.skip("not this one")
    q = torch.randn(1, s_q, 2, d, device="cuda")
    k = torch.randn(1, s_k, 2, d, device="cuda")
    out = flash_attn_func(q, k, k, causal=causal)
    assert out.shape == q.shape and d != 32, "a failure"


def test_of_no_parameters():
    assert _get_block_size_n(torch.device("cuda"), 64, True, False) > 1000


def helper():
    raise AssertionError("no test")
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The small file; what load() changes in this process comes back."""
    for name in ("get_device_capability", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, getattr(torch.cuda, name))
    path = tmp_path / "test_small.py"
    path.write_text(SOURCE)
    yield path
    falchion.flash_attn.uninstall()
    falchion.flash_attn.check_bounds(False)
    sys.modules.pop("fa_tests", None)


def test_all_cases_are_run_and_counted(file, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    code = fa_runner.main([str(file), "--device", "cpu", "--processes", "2", "--log", str(log)])
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    counts = collections.Counter((row["test"], row["outcome"]) for row in rows)
    out = capsys.readouterr().out
    assert counts == {
        ("test_output", "passed"): 3,
        ("test_output", "failed"): 3,
        ("test_output", "refused"): 3,
        ("test_output", "skipped"): 3,
        ("test_of_no_parameters", "passed"): 1,
    }, out
    assert code == 1 and "4 passed, 3 failed" in out
    assert "a failure" in out and "not this one" in out and "257" in out


class Rows(list):
    """Takes the place of the queue between processes."""

    put = list.append


def test_a_sample_takes_each_value_equally_often(file):
    a = argparse.Namespace(
        file=str(file), device="cpu", only="test_output", count=6, least=6, seed=0
    )
    a.processes, a.seconds = 1, 60.0
    rows = Rows()
    fa_runner.work(0, a, rows)
    assert rows.pop() is None and len(rows) == 6
    drawn = collections.Counter(row["case"]["d"] for row in rows)
    assert drawn == {"16": 2, "32": 2, "257": 2}
