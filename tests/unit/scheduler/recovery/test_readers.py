"""To which shuffle the reduces of a job with a skewed partition report a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from mrflight.config.identity import ClientOptions
from mrflight.errors import CorruptBlockError, IncompletePartitionError, MrflightError
from mrflight.planner.reduce_tasks import ReduceTaskPlan
from mrflight.scheduler.recovery.fetch_failures import FetchFailureReporter
from mrflight.scheduler.recovery.readers import ReduceRecovery
from mrflight.scheduler.recovery.writers import RunContext
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.system.deadlines import Timeouts
from mrflight.tasks.stage_rows import StagePartition

SERVER = "grpc+tcp://127.0.0.1:1"
SMALL, SKEWED = 3, 7


class RecordingShuffle(msgspec.Struct):
    """Stands for a shuffle whose metadata server knows every reported loss already."""

    metadata: str = "grpc+tcp://127.0.0.1:2"
    client: ClientOptions = ClientOptions()
    reports: list[list[int] | None] = msgspec.field(default_factory=list)

    def with_timeouts(self, timeouts: Timeouts) -> RecordingShuffle:
        return msgspec.structs.replace(self, client=self.client.with_timeouts(timeouts))

    def report_loss(
        self, location: str, partitions: list[int] | None = None, *, insists: bool = False
    ) -> bool:
        self.reports.append(partitions)
        return False


@dataclass
class RecordingOutput:
    """Stands for the output of a stage in a shuffle."""

    run: RunContext
    shuffle: RecordingShuffle = field(default_factory=RecordingShuffle)
    version: int = 0


@dataclass
class RecordingStage:
    """Stands for a stage with one output."""

    sides: tuple[RecordingOutput]

    def rows(self, space: object) -> None:
        """No rows are read."""


def reads(partition: int) -> ReduceTaskPlan:
    return ReduceTaskPlan(
        ((StagePartition(partition, (PartitionInfo(partition, (SERVER,), 0, 1, 1),)),),)
    )


@pytest.mark.parametrize("kind", [CorruptBlockError, IncompletePartitionError])
@pytest.mark.parametrize(("partition", "is_aggregated"), [(SMALL, False), (SKEWED, True)])
def test_a_damaged_partition_is_reported_to_the_shuffle_that_it_is_read_from(
    kind: type[MrflightError], partition: int, is_aggregated: bool
) -> None:
    """The partition with this number in the other shuffle is on the same server, and intact."""
    run = RunContext(runner=None, shuffles=None, failures=FetchFailureReporter())  # type: ignore[arg-type]
    mapped, aggregated = RecordingOutput(run), RecordingOutput(run)
    stages = RecordingStage((mapped,)), RecordingStage((aggregated,))
    tasks: list[Any] = [(stages[0], reads(SMALL)), (stages[1], reads(SKEWED))]
    error = kind("a block is damaged")
    error.location, error.partition = SERVER, partition
    recovery = ReduceRecovery(tasks, make_task=lambda *_: None, task_memory=None)  # type: ignore[arg-type]
    assert recovery.recover(error, [0, 1], list) is None
    reported, other = (aggregated, mapped) if is_aggregated else (mapped, aggregated)
    assert reported.shuffle.reports == [[partition]]
    assert other.shuffle.reports == []
