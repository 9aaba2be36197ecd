"""The console entry `falchion`: the command of C++, or `python -m falchion` where the package has none."""

import os
import sys

from falchion import _command


def main() -> int:
    _command.as_a_program()
    command = _command.path()
    if command is not None:
        os.execv(command, ["falchion", *sys.argv[1:]])
    from falchion.__main__ import main

    return main(sys.argv[1:])
