"""Where the package keeps what C and C++ programs need: headers, the library, files for CMake and for pkg-config.

An installed package holds an installed library::

    falchion/include/falchion/falchion.h
    falchion/lib/libfalchion.so.0.1
    falchion/lib/cmake/falchion/falchion-config.cmake
    falchion/lib/pkgconfig/falchion.pc

``python -m falchion.sdk NAME`` prints one of these places for a shell, where NAME is ``include``, ``cmake``,
``pkgconfig`` or ``library``.
"""

import sys
from pathlib import Path

from . import _fal

__all__ = ["cmake_dir", "get_include", "library_path", "pkgconfig_dir"]


def _root() -> Path:
    # An editable install has the Python files in the source tree, and what is built beside the module _fal.
    return Path(_fal.__file__).parent


def _existing(path: Path) -> str:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: a package that was not installed has no such file")
    return str(path)


def get_include() -> str:
    """The folder for a compiler's ``-I``: a program includes <falchion/falchion.h> or <falchion/falchion.hpp>."""
    return _existing(_root() / "include")


def library_path() -> str:
    """The file of the shared library, for a linker, for dlopen and for ctypes."""
    found = sorted((_root() / "lib").glob("libfalchion.so.*"))
    return _existing(found[0] if found else _root() / "lib" / "libfalchion.so")


def cmake_dir() -> str:
    """The folder for CMake's ``-Dfalchion_DIR=``. The project then finds it and links ``falchion::falchion``."""
    return _existing(_root() / "lib" / "cmake" / "falchion")


def pkgconfig_dir() -> str:
    """The folder for the environment variable PKG_CONFIG_PATH. The name of the package is ``falchion``."""
    return _existing(_root() / "lib" / "pkgconfig")


def _main(arguments: list[str]) -> int:
    places = {
        "include": get_include,
        "cmake": cmake_dir,
        "pkgconfig": pkgconfig_dir,
        "library": library_path,
    }
    if len(arguments) != 1 or arguments[0] not in places:
        print(f"usage: python -m falchion.sdk {'|'.join(places)}", file=sys.stderr)
        return 2
    print(places[arguments[0]]())
    return 0


if __name__ == "__main__":
    from falchion._command import as_a_program

    as_a_program()
    sys.exit(_main(sys.argv[1:]))
