"""The settings of all runs of the soak, and the outcome of each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True)
class Bench:
    """The settings of all runs. ``undisturbed_s`` has the time without faults by cluster."""

    inputs: list[Path]
    expected: pa.Table
    undisturbed_s: Mapping[str, float]
    hang_s: float


@dataclass
class Outcome:
    """The outcome of a run. Its lists are empty if nothing is wrong."""

    seed: int
    scenario: str
    state: str = ""
    """One of committed, failed, killed and hung."""
    wall_s: float = 0.0
    attempts: dict[str, int] | None = None
    hits: list[str] = field(default_factory=list)
    missed: str = ""
    wrong: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    cleaned_files: int = 0
    """The number of part files that ``mrflight clean`` removed."""
    rerun: str = ""
    """The result of the second run: empty if there was none, "committed", or why it did not commit.
    """
    may_fail: bool = False
    lasts_s: float = 0.0
    message: str = ""
    stderr: str = ""
    stacks: str = ""

    @property
    def is_survived(self) -> bool:
        return self.state == "committed"

    @property
    def is_bad(self) -> bool:
        """True if the run shows a defect, or its fault did not hit."""
        return self.went_wrong or bool(self.missed)

    @property
    def went_wrong(self) -> bool:
        """True if the run shows a defect, as when a job failed that should have survived."""
        failed = self.state == "failed" and not self.may_fail
        rerun_failed = self.rerun not in ("", "committed")
        hung = self.state == "hung"
        return bool(failed or rerun_failed or hung or self.wrong or self.leftovers)
