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


OTHER_VERSION = 'const char* fal_version(void) { return "9.8.7"; }'
OTHER_STRUCT = """
#include <falchion/falchion.h>
struct longer { fal_attention known; char more[64]; };
struct longer fal_attention_init_longer(void) __asm__("fal_attention_init");
struct longer fal_attention_init_longer(void) {
  struct longer made = {{sizeof(struct longer)}, {0}};
  return made;
}
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (OTHER_VERSION, "the library is version 9.8.7, and falchion._fal was built with"),
        (OTHER_STRUCT, "the library's fal_attention has"),
    ],
    ids=["version", "struct"],
)
def test_a_library_of_another_build_is_refused(tmp_path: Path, source: str, words: str) -> None:
    """Another library in front of ours answers first, as one in LD_LIBRARY_PATH would."""
    need("cc")
    (tmp_path / "other.c").write_text(source)
    other = str(tmp_path / "other.so")
    include = f"-I{sdk.get_include()}"
    run("cc", "-shared", "-fPIC", "-O2", include, "-o", other, str(tmp_path / "other.c"))
    done = subprocess.run(
        [sys.executable, "-c", "import falchion"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "LD_PRELOAD": other},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: falchion: " + words)
