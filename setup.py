"""Builds the package from its sources alone; pyproject.toml says the rest."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent

PATH_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")
"""A link of Markdown to a file or a picture of the repository."""


class BuildFromNothing(build_py):
    """Removes what earlier builds have left before anything is built.

    Otherwise a build without cargo would go on with the kernel of an earlier one, and a build after
    a module was renamed would have both.
    """

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib, "mrflight"), ignore_errors=True)
        if self.editable_mode:
            for kernel in built_kernels(self):
                kernel.unlink()
        super().run()


class Wheel(bdist_wheel):
    """Names the wheel after what was built: without the kernel it is for every platform."""

    def get_tag(self) -> tuple[str, str, str]:
        self.root_is_pure = not any(built_kernels(self.get_finalized_command("build_py")))
        return super().get_tag()


def built_kernels(build: build_py) -> Iterator[Path]:
    """Yield the kernels that a build has left; in an editable install they are in the sources."""
    folder = HERE if build.editable_mode else Path(build.build_lib)
    for path in (folder / "mrflight").glob("_kernel*"):
        if path.suffix in {".so", ".pyd", ".dylib"}:
            yield path


def readme() -> str:
    """Return README.md for the package index, where a path of the repository leads nowhere.

    Links to paths become links into the repository that pyproject.toml names. As long as it names
    none, only their text stays.
    """
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project.get("urls", {}).get("Repository")

    def replace(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        if repository is None:
            return "" if picture else text
        return f"{picture}[{text}]({repository}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return PATH_LINK.sub(replace, (HERE / "README.md").read_text(encoding="utf-8"))


setup(
    cmdclass={"build_py": BuildFromNothing, "bdist_wheel": Wheel},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
