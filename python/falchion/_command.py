"""The falchion command of C++, which a wheel has inside of the package."""

import os
import signal
from pathlib import Path

# What the command does and `python -m falchion` does not.
VERBS = ("completion", "demo", "ladder", "layout", "map", "roofline", "run")


def path() -> str | None:
    """The command's file, or None where this build of the package has none."""
    file = Path(__file__).parent / "bin" / "falchion"
    return str(file) if os.access(file, os.X_OK) else None


def as_a_program() -> None:
    """A closed pipe and Ctrl-C end the process, as they end other programs, and leave no traceback."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
