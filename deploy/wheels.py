"""Builds what is published: an sdist, and from it a wheel with the kernel for each processor.

`make wheels` runs it, in an environment with the packages of deploy/wheels.txt. The wheels are for
Linux with the glibc that pyarrow's wheels need, and for every Python from 3.11 on. Zig is the
linker, because it links for an older glibc, and for another processor, on any machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROCESSORS = ("x86_64", "aarch64")
GLIBC = "2.28"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="default dist")
    parser.add_argument(
        "--processor",
        action="append",
        choices=PROCESSORS,
        help="default each for which Rust's library is installed; may be repeated",
    )
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        sdist = build(ROOT, "sdist", Path(work, "sdist"))
        processors = options.processor or filter(can_build_for, PROCESSORS)
        wheels = [build_wheel(sdist, processor, Path(work)) for processor in processors]
        for path in (sdist, *wheels):
            print(shutil.copy(path, options.into))


def can_build_for(processor: str) -> bool:
    """Return whether Rust's library is there; say how to get it if it is not."""
    target = f"{processor}-unknown-linux-gnu"
    command = ["rustc", "--print", "target-libdir", "--target", target]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_dir():
        print(f"no wheel for {processor}: rustup target add {target}", file=sys.stderr)
    return Path(found).is_dir()


def build_wheel(sdist: Path, processor: str, work: Path) -> Path:
    """Build a wheel from the sdist alone, and check that it is what its name says."""
    folder = work / processor
    with tarfile.open(sdist) as file:
        file.extractall(folder, filter="data")
    (sources,) = folder.iterdir()
    platform = f"manylinux_{GLIBC.replace('.', '_')}_{processor}"
    options = {"--build-option": [f"--plat-name={platform}"]}
    environment = rust_environment(processor, folder)
    wheel = build(sources, "wheel", work / f"{processor}-wheel", options, environment)
    if not wheel.name.endswith(f"-cp311-abi3-{platform}.whl"):
        raise SystemExit(f"{wheel.name} has no kernel for {platform}; is cargo there?")
    check_symbols(wheel, platform)
    return wheel


def rust_environment(processor: str, folder: Path) -> dict[str, str]:
    """Return the variables with which cargo builds for a processor and an older glibc."""
    target = f"{processor}-unknown-linux-gnu"
    linker = folder / "linker"
    zig = f"{sys.executable} -m ziglang cc -target {processor}-linux-gnu.{GLIBC}"
    linker.write_text(f'#!/bin/sh\nexec {zig} "$@"\n')
    linker.chmod(0o755)
    variable = target.upper().replace("-", "_")
    return {"CARGO_BUILD_TARGET": target, f"CARGO_TARGET_{variable}_LINKER": str(linker)}


def build(
    sources: Path,
    kind: str,
    into: Path,
    options: Mapping[str, list[str]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Call setuptools as pip does, but in this environment; return the file that it has built."""
    into.mkdir()
    call = f"build_meta.build_{kind}({str(into)!r}, {options!r})"
    done = subprocess.run(
        [sys.executable, "-c", f"from setuptools import build_meta; {call}"],
        cwd=sources,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{call} failed in {sources}")
    (built,) = into.iterdir()
    return built


def check_symbols(wheel: Path, platform: str) -> None:
    """Raise SystemExit if the kernel needs a newer system than the name of the wheel says."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if f'following platform tag: "{platform}"' not in " ".join(shown.split()):
        raise SystemExit(f"{wheel.name} is not what its name says:\n{shown}")


if __name__ == "__main__":
    main()
