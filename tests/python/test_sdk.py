"""What falchion.sdk tells of the places in the package, and that a C program can be built from them."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import falchion
import pytest
from falchion import sdk

HERE = Path(__file__).resolve().parent
INSTALLED = (Path(falchion._fal.__file__).parent / "lib" / "cmake").exists()
installed_only = pytest.mark.skipif(
    not INSTALLED,
    reason="the package was not installed: it lies in a build folder, without the files for CMake",
)


def run(*command: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")


def test_headers_are_those_of_this_version() -> None:
    text = (Path(sdk.get_include()) / "falchion" / "version.h").read_text()
    numbers = [line.split()[-1] for line in text.splitlines() if line.startswith("#define FAL_VERSION_")]
    assert ".".join(numbers) == falchion.__version__


def test_the_library_is_the_one_that_the_module_has_loaded() -> None:
    library = ctypes.CDLL(sdk.library_path())
    library.fal_version.restype = ctypes.c_char_p
    assert library.fal_version().decode() == falchion.__version__
    mapped = Path("/proc/self/maps").read_text()
    paths = {line.split()[-1] for line in mapped.splitlines() if "/libfalchion.so" in line}
    assert paths == {os.path.realpath(sdk.library_path())}


def test_the_command_prints_places_and_refuses_other_names() -> None:
    assert run(sys.executable, "-m", "falchion.sdk", "include") == sdk.get_include()
    assert run(sys.executable, "-m", "falchion.sdk", "library") == sdk.library_path()
    done = subprocess.run([sys.executable, "-m", "falchion.sdk", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m falchion.sdk include|cmake|pkgconfig|library")


@installed_only
def test_a_c_program_is_built_with_pkg_config(tmp_path: Path) -> None:
    need("cc")
    need("pkg-config")
    env = {"PKG_CONFIG_PATH": sdk.pkgconfig_dir()}
    flags = run("pkg-config", "--cflags", "--libs", "falchion", env=env).split()
    libdir = run("pkg-config", "--variable=libdir", "falchion", env=env)
    program = str(tmp_path / "program")
    run(
        "cc",
        "-std=c99",
        "-Wall",
        "-Werror",
        "-o",
        program,
        str(HERE / "sdk_consumer" / "main.c"),
        *flags,
        f"-Wl,-rpath,{libdir}",
    )
    assert run(program) == f"falchion {falchion.__version__}: o = 1.5"


@installed_only
def test_a_c_project_finds_the_package_with_cmake(tmp_path: Path) -> None:
    need("cc")
    need("cmake")
    source = str(HERE / "sdk_consumer")
    run("cmake", "-S", source, "-B", str(tmp_path), f"-Dfalchion_DIR={sdk.cmake_dir()}")
    run("cmake", "--build", str(tmp_path))
    assert run(str(tmp_path / "program")) == f"falchion {falchion.__version__}: o = 1.5"
