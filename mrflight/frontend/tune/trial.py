"""A trial of a job: the settings that it runs with, the part of the input, and what it took."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mrflight.result import StageSeconds


class Setting(msgspec.Struct, frozen=True):
    """The settings that trials change."""

    partitions: int
    workers: int
    memory_bytes: int
    compression: str

    def changes(self, base: Setting) -> list[str]:
        """Return the names of the settings that differ from those of ``base``."""
        return [name for name in self.__struct_fields__ if getattr(self, name) != base.of(name)]

    def of(self, name: str) -> int | str:
        """Return the value of a setting."""
        value: int | str = getattr(self, name)
        return value


class Amount(msgspec.Struct, frozen=True):
    """How much of the input a run reads."""

    fraction: float
    """The fraction of the inputs that are sampled; 1 for all of them."""
    sampled_bytes: int
    """What is read of these inputs."""
    whole_bytes: int
    """The size of the small inputs, of which every run reads all."""
    maps: int

    @property
    def size_bytes(self) -> int:
        return self.sampled_bytes + self.whole_bytes


class Trial(msgspec.Struct, frozen=True):
    """A run of the job to make."""

    setting: Setting
    amount: Amount


class Run(msgspec.Struct, frozen=True):
    """A trial that was made, and what it took."""

    trial: Trial
    seconds: StageSeconds = StageSeconds()
    rows_in: int = 0
    rows_out: int = 0
    bytes_shuffled: int = 0
    peak_memory_bytes: int = 0
    error: str | None = None
    """Why the job failed; the numbers say nothing then."""

    @property
    def total_s(self) -> float:
        return self.seconds.total


PHASES = ("start", "map", "reduce", "commit")


def phases_of(seconds: StageSeconds) -> Mapping[str, float]:
    """Return the seconds by phase; those after the commit count to it, so that they add up."""
    before = seconds.start + seconds.map + seconds.reduce
    return {
        "start": seconds.start,
        "map": seconds.map,
        "reduce": seconds.reduce,
        "commit": max(0.0, seconds.total - before),
    }


def scaled(seconds: StageSeconds, factor: float) -> StageSeconds:
    """Return times that are so many times as long."""
    phases = {phase: factor * value for phase, value in phases_of(seconds).items()}
    return StageSeconds(total=sum(phases.values()), **phases)
