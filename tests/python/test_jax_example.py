"""examples/python/train_jax.py at toy size: it trains, and both attentions give one loss."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="jax is not installed")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python" / "train_jax.py"


@pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not here")
def test_training() -> None:
    sizes = [
        "--steps",
        "30",
        "--layers",
        "2",
        "--heads",
        "2",
        "--width",
        "64",
        "--length",
        "64",
        "--batch",
        "4",
        "--limit",
        "1e-4",
    ]
    run = subprocess.run([sys.executable, str(EXAMPLE), *sizes], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]
    assert "the losses differ by at most" in run.stdout
    first, last = (float(run.stdout.split()[i].rstrip(",")) for i in (1, 3))  # "loss 5.3 -> 4.2, ..."
    assert 5 < first < 6 and last < first - 0.7
