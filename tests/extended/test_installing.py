"""The package is built and installed as its users do, in environments of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.pages import follow

ROOT = Path(__file__).parents[2]
SOURCES = ("mrflight", "servers", "kernel", "pyproject.toml", "setup.py", "MANIFEST.in")
OLD_KERNEL = b"what an earlier build has left"

pytestmark = pytest.mark.timeout(600)  # pip downloads Arrow, if it is not in its cache


def python(environment: Path, *arguments: str, has_cargo: bool = False) -> str:
    """Return what Python prints; without cargo nothing but the environment is on the path."""
    path = os.environ["PATH"] if has_cargo else str(environment / "bin")
    done = subprocess.run(
        [environment / "bin" / "python", *arguments],
        env={**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def pip(environment: Path, *arguments: str | Path) -> str:
    return python(environment, "-m", "pip", *map(str, arguments))


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that builds the package without cargo, and without downloading."""
    environment = tmp_path_factory.mktemp("builder")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip(environment, "install", "--quiet", "--upgrade", "setuptools>=77", "setuptools-rust>=1.11")
    return environment


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, with kernels of earlier builds at all places where a build puts one."""
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("*.so", "target", "__pycache__")
    for name in (*SOURCES, "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)
    built = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}/mrflight"
    for package in ("mrflight", built):
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / package / "_kernel.abi3.so").write_bytes(OLD_KERNEL)
    (folder / built / "renamed.py").write_text("")
    return folder


@pytest.fixture(scope="module")
def wheel(builder: Path, checkout: Path) -> Path:
    """A wheel that was built without cargo."""
    folder = checkout / "dist"
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    pip(builder, "wheel", "--quiet", *options, checkout)
    (found,) = folder.glob("*.whl")
    return found


def check(names: Sequence[str]) -> None:
    """Check the files of a package that was built without cargo."""
    assert [name for name in names if name.endswith((".so", "renamed.py"))] == []
    assert sum(name.endswith("/LICENSE") for name in names) == 1
    assert sum(name.endswith("mrflight/py.typed") for name in names) == 1


def test_a_wheel_built_without_cargo_has_no_kernel_of_an_earlier_build(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        check(file.namelist())
        (metadata,) = [name for name in file.namelist() if name.endswith("/METADATA")]
        assert "## A first job" in file.read(metadata).decode()


def test_the_sources_for_the_index_have_no_kernel_of_an_earlier_build(
    builder: Path, checkout: Path, tmp_path: Path
) -> None:
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    python(builder, "-c", f"import os; os.chdir({str(checkout)!r}); {code}")
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as file:
        names = file.getnames()
    check(names)
    assert {"setup.py", "kernel/Cargo.lock"} <= {name.partition("/")[2] for name in names}


def test_an_editable_install_without_cargo_removes_the_kernel_of_an_earlier_build(
    builder: Path, checkout: Path
) -> None:
    kernel = checkout / "mrflight" / "_kernel.abi3.so"
    assert kernel.read_bytes() == OLD_KERNEL
    pip(builder, "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", checkout)
    assert not kernel.exists()
    assert (checkout / "mrflight" / "_kernel.pyi").exists()


def test_the_readme_does_what_it_says_on_a_plain_install(wheel: Path, tmp_path: Path) -> None:
    """Without extras, and without the checkout."""
    environment, folder = tmp_path / "environment", tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip(environment, "install", "--quiet", wheel)
    folder.mkdir()
    printed = [each.printed for each in follow(ROOT / "README.md", folder, environment / "bin")]
    assert "5 rows in, 3 rows out" in "".join(printed)
    assert "mrflight runs without its native kernel" in "".join(printed)
    assert pq.read_table(folder / "out/clicks").num_rows == 3
