"""Builds the package from its sources alone; pyproject.toml says the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class BuildFromNothing(build_py):
    """Removes what earlier builds have left before anything is built.

    Otherwise a build without cargo would go on with the kernel of an earlier one, and a build after
    a module was renamed would have both.
    """

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib, "mrflight"), ignore_errors=True)
        if self.editable_mode:  # then the kernel lies beside its sources
            for kernel in (HERE / "mrflight").glob("_kernel*"):
                if kernel.suffix in {".so", ".pyd", ".dylib"}:
                    kernel.unlink()
        super().run()


setup(cmdclass={"build_py": BuildFromNothing})
