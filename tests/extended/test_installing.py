"""The package is built and installed as its users do, in environments of their own."""

from __future__ import annotations

import os
import platform
import re
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

from tests.support.jobs.pages import follow

ROOT = Path(__file__).parents[2]
SOURCES = ("mrflight", "servers", "kernel", "pyproject.toml", "setup.py", "MANIFEST.in")
MACHINES = {"x86_64": 62, "aarch64": 183}
"""The numbers of processors in the headers of ELF."""
COMPILED = ROOT / "kernel/target"
UNOPTIMISED = {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "0", "CARGO_PROFILE_RELEASE_LTO": "off"}
"""The tests check which files a package has and that it starts, so the kernel is compiled without
optimisation, which is faster."""
OLD_KERNEL = b"what an earlier build has left"

NEEDS_CARGO = pytest.mark.skipif(
    shutil.which("cargo") is None, reason="install cargo: https://rustup.rs"
)
pytestmark = pytest.mark.timeout(1800)
"""pip downloads Arrow, if it is not in its cache, and two kernels are compiled beside other tests:
100 s of a processor in all."""


def new_environment(folder: Path) -> Path:
    """Make an environment; the pip of these tests installs into it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def python(environment: Path, *arguments: str, has_cargo: bool = False) -> str:
    """Return what Python prints; without cargo nothing but the environment is on the path."""
    return _output(environment, [environment / "bin" / "python", *arguments], has_cargo=has_cargo)


def pip(environment: Path, *arguments: str | Path, has_cargo: bool = False) -> str:
    into = ["--python", environment / "bin" / "python"]
    return _output(
        environment, [sys.executable, "-m", "pip", *into, *arguments], has_cargo=has_cargo
    )


def install(environment: Path, *arguments: str | Path) -> None:
    """Install packages, of which only what is imported is compiled."""
    pip(environment, "install", "--quiet", "--no-compile", *arguments)


def _output(environment: Path, command: Sequence[str | Path], *, has_cargo: bool) -> str:
    """Return what a command prints. Cargo compiles the kernel's dependencies once for all."""
    path = os.environ["PATH"] if has_cargo else str(environment / "bin")
    own = {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CARGO_TARGET_DIR": str(COMPILED)}
    done = subprocess.run(
        command,
        env={**os.environ, **own, **UNOPTIMISED},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that builds the package without cargo, and without downloading."""
    environment = new_environment(tmp_path_factory.mktemp("builder"))
    install(environment, "setuptools>=77", "setuptools-rust>=1.11", "wheel")
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


def build_wheel(builder: Path, sources: Path, *, has_cargo: bool) -> Path:
    folder = sources / "dist"
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    pip(builder, "wheel", "--quiet", *options, sources, has_cargo=has_cargo)
    (found,) = folder.glob("*.whl")
    return found


def description(wheel: Path) -> str:
    """Return what the index shows of a wheel: the README."""
    with zipfile.ZipFile(wheel) as file:
        (metadata,) = [name for name in file.namelist() if name.endswith("/METADATA")]
        return file.read(metadata).decode().partition("\n\n")[2]


@pytest.fixture(scope="module")
def wheel(builder: Path, checkout: Path) -> Path:
    """A wheel that was built without cargo."""
    return build_wheel(builder, checkout, has_cargo=False)


def check(names: Sequence[str]) -> None:
    """Check the files of a package that was built without cargo."""
    assert [name for name in names if name.endswith((".so", "renamed.py"))] == []
    assert sum(name.endswith("/LICENSE") for name in names) == 1
    assert sum(name.endswith("mrflight/py.typed") for name in names) == 1


def test_a_wheel_built_without_cargo_is_for_every_platform(wheel: Path) -> None:
    """It has no kernel, not even that of an earlier build."""
    assert wheel.name == "mrflight-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        check(file.namelist())
        (about,) = [name for name in file.namelist() if name.endswith("/WHEEL")]
        assert "Root-Is-Purelib: true\nTag: py3-none-any\n" in file.read(about).decode()


def test_the_index_shows_no_links_that_lead_nowhere(wheel: Path) -> None:
    """The index does not have the files of the repository, whose address is not known yet."""
    shown = description(wheel)
    assert "## A first job" in shown
    assert "\nYour first job goes on from here." in shown
    assert set(re.findall(r"\]\(([^)]*)\)", shown)) == {"https://rustup.rs"}


@NEEDS_CARGO
def test_a_wheel_with_the_kernel_is_for_every_python_of_its_platform(
    builder: Path, checkout: Path, tmp_path: Path
) -> None:
    """Its README on the index links into the repository that its pyproject.toml names."""
    ignored = shutil.ignore_patterns("dist")
    sources = shutil.copytree(checkout, tmp_path / "sources", ignore=ignored)
    repository = "https://example.com/mrflight"
    with (sources / "pyproject.toml").open("a") as file:
        file.write(f'[project.urls]\nRepository = "{repository}"\n')
    built = build_wheel(builder, sources, has_cargo=True)
    tag = re.sub(r"\W", "_", sysconfig.get_platform())
    assert built.name == f"mrflight-0.1.0-cp311-abi3-{tag}.whl"
    with zipfile.ZipFile(built) as file:
        (kernel,) = [name for name in file.namelist() if name.endswith(".so")]
        assert kernel == "mrflight/_kernel.abi3.so"
        assert file.read(kernel) != OLD_KERNEL
    shown = description(built)
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]*)\)", shown)
    assert ("!", f"{repository}/raw/HEAD/docs/run.svg") in links
    inside = [url.removeprefix(f"{repository}/blob/HEAD/") for picture, url in links if not picture]
    missing = [each for each in inside if not (ROOT / each).exists()]
    assert missing == ["https://rustup.rs"]
    assert len(inside) > 30


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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all that is published, as `make wheels` builds it."""
    environment = new_environment(tmp_path_factory.mktemp("zig"))
    folder = tmp_path_factory.mktemp("dist")
    install(environment, "-r", ROOT / "deploy/wheels.txt")
    script = str(ROOT / "deploy/wheels.py")
    python(environment, script, "--into", str(folder), has_cargo=True)
    return folder


@NEEDS_CARGO
def test_what_is_published_is_for_linux_with_the_glibc_of_arrow(published: Path) -> None:
    names = {path.name for path in published.iterdir()}
    wheels = {f"mrflight-0.1.0-cp311-abi3-manylinux_2_28_{x}.whl" for x in MACHINES}
    processor = f"_{platform.machine()}.whl"
    assert {name for name in wheels if name.endswith(processor)} < names
    assert names <= {*wheels, "mrflight-0.1.0.tar.gz"}
    for wheel in published.glob("*.whl"):  # that of another processor cannot be run here
        with zipfile.ZipFile(wheel) as file:
            kernel = file.read("mrflight/_kernel.abi3.so")
        assert kernel[:4] == b"\x7fELF"
        assert int.from_bytes(kernel[18:20], "little") == MACHINES[wheel.stem.rpartition("28_")[2]]
        assert b"PyInit__kernel" in kernel


@NEEDS_CARGO
@pytest.mark.parametrize("pattern", ["*.tar.gz", f"*_{platform.machine()}.whl"])
def test_the_readme_does_what_it_says_on_a_plain_install(
    published: Path, pattern: str, tmp_path: Path
) -> None:
    """Without extras, and without the checkout. The sdist is built without cargo here."""
    (package,) = published.glob(pattern)
    environment, folder = new_environment(tmp_path / "environment"), tmp_path / "empty"
    install(environment, package)
    folder.mkdir()
    printed = [each.printed for each in follow(ROOT / "README.md", folder, environment / "bin")]
    assert "5 rows in, 3 rows out" in "".join(printed)
    has_kernel = "manylinux" in package.name
    assert ("mrflight runs without its native kernel" in "".join(printed)) is not has_kernel
    assert pq.read_table(folder / "out/clicks").num_rows == 3
    code = "import mrflight._kernel as kernel; print(kernel.__file__)"
    if has_kernel:
        assert str(environment) in python(environment, "-I", "-c", code)
