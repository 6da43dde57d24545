"""What the runs of the soak have in common, and what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True)
class Bench:
    """What all runs have in common. ``undisturbed_s`` by cluster."""

    inputs: list[Path]
    expected: pa.Table
    undisturbed_s: Mapping[str, float]
    hang_s: float


@dataclass
class Outcome:
    """What became of a run; the lists are empty where all is well."""

    seed: int
    scenario: str
    state: str = ""
    """committed, failed, killed or hung."""
    wall_s: float = 0.0
    attempts: dict[str, int] | None = None
    hits: list[str] = field(default_factory=list)
    missed: str = ""
    wrong: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    cleaned_files: int = 0
    """Part files that only ``mrflight clean`` removed."""
    rerun: str = ""
    """Empty where none was needed, "committed", or why it did not."""
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
        """Anything that must never be in a result."""
        return self.went_wrong or bool(self.missed)

    @property
    def went_wrong(self) -> bool:
        """Anything that must never be; a job that failed but should not have included."""
        failed = self.state == "failed" and not self.may_fail
        rerun_failed = self.rerun not in ("", "committed")
        hung = self.state == "hung"
        return bool(failed or rerun_failed or hung or self.wrong or self.leftovers)
