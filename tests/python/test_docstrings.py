"""Signatures and docstrings stand in _fal.pyi alone, and the C code's are written from it."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "python" / "docstrings.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="the sources are not here")
def test_they_are_those_of_the_stub(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(SCRIPT), "--check"], check=True)
    copy = tmp_path / "docstrings.py"
    copy.write_text(SCRIPT.read_text())
    (tmp_path / "falchion").mkdir()
    stub = (SCRIPT.parent / "falchion" / "_fal.pyi").read_text()
    (tmp_path / "falchion" / "_fal.pyi").write_text(stub.replace("softcap: float = 0.0", "softcap: float = 1.0", 1))
    (tmp_path / "docstrings.inc").write_text((SCRIPT.parent / "docstrings.inc").read_text())
    assert subprocess.run([sys.executable, str(copy), "--check"], capture_output=True, check=False).returncode == 1
