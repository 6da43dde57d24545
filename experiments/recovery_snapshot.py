"""Copy and compile mrflight as a checkout has it, so that it stays the same while measured."""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.datasets import REPOSITORY

_WITHOUT = REPOSITORY / "experiments" / "recovery_without.py"


class Snapshot:
    """The package of the checkout at ``checkout``, copied to ``folder``.

    Both sides of a comparison of commits are copied: a package that is installed in place is
    imported in another way, and one without bytecode is compiled at each start, which takes 60 ms.
    RuntimeError is raised if the kernel is not built there.
    """

    def __init__(self, checkout: Path, folder: Path) -> None:
        self._folder = folder
        package = folder / "mrflight"
        shutil.copytree(checkout / "mrflight", package, ignore=_IGNORED)
        shutil.copytree(checkout / "servers", package / "servers", ignore=_IGNORED)
        shutil.copy(_WITHOUT, folder)
        compileall.compile_dir(folder, quiet=1)
        self.environment = {"PYTHONPATH": str(folder)}
        self._check()

    def driver(self, without: str | None = None) -> Sequence[str]:
        """Return the command of the driver, perhaps with parts removed."""
        if without is None:
            return [sys.executable, "-m", "mrflight.driver"]
        return [sys.executable, str(self._folder / _WITHOUT.name), without]

    def _check(self) -> None:
        """Raise RuntimeError unless the copy is imported, servers and kernel included."""
        code = (
            "import mrflight._kernel, mrflight.servers.data, mrflight.driver as it;"
            "print(mrflight._kernel.__file__, mrflight.servers.data.__file__, it.__file__)"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            env=self.environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
        )
        found = done.stdout.split()
        if done.returncode or not all(path.startswith(f"{self._folder}/") for path in found):
            raise RuntimeError(
                f"{self._folder} is not what is imported, or its kernel is not built: "
                f"{done.stdout}{done.stderr}"
            )


_IGNORED = shutil.ignore_patterns("__pycache__", "servers")
