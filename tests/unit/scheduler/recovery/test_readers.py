"""What the reduces of a job with a heavy partition say of a failure, and to which shuffle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from mrflight.errors import CorruptBlockError, IncompletePartitionError, MrflightError
from mrflight.planner.reduce_tasks import ReduceTaskPlan
from mrflight.scheduler.recovery.fetch_failures import FetchFailureReporter
from mrflight.scheduler.recovery.readers import ReduceRecovery
from mrflight.scheduler.recovery.writers import RunContext
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Timeouts
from mrflight.tasks.stage_rows import StagePartition

SERVER = "grpc+tcp://127.0.0.1:1"
LIGHT, HEAVY = 3, 7


class NotingShuffle(msgspec.Struct):
    """In place of one; whatever is reported is known already."""

    metadata: str = "grpc+tcp://127.0.0.1:2"
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    told: list[list[int] | None] = msgspec.field(default_factory=list)

    def report_loss(
        self, location: str, partitions: list[int] | None = None, *, insists: bool = False
    ) -> bool:
        self.told.append(partitions)
        return False


@dataclass
class NotingProduced:
    """In place of a shuffle that is produced."""

    run: RunContext
    shuffle: NotingShuffle = field(default_factory=NotingShuffle)
    version: int = 0


@dataclass
class NotingStage:
    """In place of a stage that went through it."""

    sides: tuple[NotingProduced]

    def rows(self, space: object) -> None:
        """Nobody reads any."""


def reads(partition: int) -> ReduceTaskPlan:
    return ReduceTaskPlan(
        ((StagePartition(partition, (PartitionInfo(partition, (SERVER,), 0, 1, 1),)),),)
    )


@pytest.mark.parametrize("kind", [CorruptBlockError, IncompletePartitionError])
@pytest.mark.parametrize(("partition", "is_merged"), [(LIGHT, False), (HEAVY, True)])
def test_a_damaged_partition_is_lost_of_the_shuffle_that_it_is_read_from(
    kind: type[MrflightError], partition: int, is_merged: bool
) -> None:
    """Of the other one the same server holds a partition of this number, which is well."""
    run = RunContext(runner=None, shuffles=None, failures=FetchFailureReporter())  # type: ignore[arg-type]
    mapped, merged = NotingProduced(run), NotingProduced(run)
    stages = NotingStage((mapped,)), NotingStage((merged,))
    tasks: list[Any] = [(stages[0], reads(LIGHT)), (stages[1], reads(HEAVY))]
    error = kind("a block is damaged")
    error.location, error.partition = SERVER, partition
    reducing = ReduceRecovery(tasks, make_task=lambda *_: None, space=None)  # type: ignore[arg-type]
    assert reducing.recover(error, [0, 1], list) is None
    told, other = (merged, mapped) if is_merged else (mapped, merged)
    assert told.shuffle.told == [[partition]]
    assert other.shuffle.told == []
