"""fa_runner.py on a small file of the same kind as FlashAttention's tests."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import subprocess
import sys

import torch_support  # noqa: F401  (skips these tests where there is no PyTorch)

HERE = pathlib.Path(__file__).parent
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


def run(tmp_path, *more):
    file, log = tmp_path / "test_small.py", tmp_path / "log.jsonl"
    file.write_text(SOURCE)
    paths = [str(HERE), *(p for p in sys.path if p)]
    command = [sys.executable, str(HERE / "fa_runner.py"), str(file), "--device", "cpu"]
    done = subprocess.run(
        [*command, "--processes", "2", "--log", str(log), *more],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    return done, [json.loads(line) for line in log.read_text().splitlines()]


def test_all_cases_are_run_and_counted(tmp_path):
    done, rows = run(tmp_path)
    counts = collections.Counter((row["test"], row["outcome"]) for row in rows)
    assert counts == {
        ("test_output", "passed"): 3,
        ("test_output", "failed"): 3,
        ("test_output", "refused"): 3,
        ("test_output", "skipped"): 3,
        ("test_of_no_parameters", "passed"): 1,
    }, done.stdout + done.stderr
    assert done.returncode == 1 and "4 passed, 3 failed" in done.stdout
    assert "a failure" in done.stdout and "not this one" in done.stdout and "257" in done.stdout


def test_a_sample_takes_each_value_equally_often(tmp_path):
    done, rows = run(tmp_path, "--count", "6", "--least", "6", "--only", "test_output")
    assert len(rows) == 6
    drawn = collections.Counter(row["case"]["d"] for row in rows)
    assert drawn == {"16": 2, "32": 2, "257": 2}, done.stdout
