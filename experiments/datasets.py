"""The visits of the experiments, written by ``examples/clicks/generate.py``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
CLICKS_JOB = REPOSITORY / "examples" / "clicks" / "job.toml"
WORK = REPOSITORY / "experiments" / ".work"
"""The folder for inputs that are kept, and for results that are not published."""


@dataclass(frozen=True)
class DataSet:
    """A data set of visits.

    ``keys`` is a number of sites, or "unique". ``order`` "sorted" puts the visits of a site
    together.
    """

    keys: str
    rows: int
    files: int
    order: str = "random"

    @property
    def name(self) -> str:
        """The name of the data set in folders and messages."""
        return f"{self.keys}-keys-{self.rows}-rows-{self.files}-files-{self.order}"


def generate(data: DataSet, folder: Path) -> list[Path]:
    """Return the csv files of ``data`` below ``folder``, and write them if they do not exist."""
    out = folder / data.name
    options = [
        f"--{option}={value}"
        for option, value in (
            ("rows", data.rows),
            ("files", data.files),
            ("keys", data.keys),
            ("order", data.order),
            ("out", out),
        )
    ]
    command = [sys.executable, str(CLICKS_JOB.with_name("generate.py")), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sorted(out.glob("*.csv"))


def warm(files: list[Path]) -> None:
    """Read ``files`` once, so that the first engine also finds them in the page cache."""
    for path in files:
        with path.open("rb") as content:
            while content.read(1 << 20):
                pass
