"""When the partitions of a shuffle are asked for, and when the last answer still holds."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from mrflight.config.identity import ClientOptions
from mrflight.errors import InconsistentMapOutputError
from mrflight.events.recorder import Recorder
from mrflight.scheduler.recovery.fetch_failures import FetchFailureReporter
from mrflight.scheduler.recovery.writers import RunContext, ShuffleOutput
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.protocol import ShuffleHealth
from mrflight.system.deadlines import Timeouts
from tests.support.suite.messages import refused

SCHEMA = pa.schema([("key", pa.int64())])
MAPS = 2


def healthy(version: int = 0, maps: int = MAPS) -> ShuffleHealth:
    return ShuffleHealth(version, [], 10, [], maps)


class AnsweringShuffle(msgspec.Struct):
    """Stands for a shuffle with one partition, whose metadata server counts the layouts it gave."""

    health_now: ShuffleHealth
    id: str = "answering"
    given: list[str] = msgspec.field(default_factory=list)
    client: ClientOptions = ClientOptions()

    def with_timeouts(self, timeouts: Timeouts) -> AnsweringShuffle:
        return msgspec.structs.replace(self, client=self.client.with_timeouts(timeouts))

    def health(self) -> ShuffleHealth:
        return self.health_now

    def layout(self) -> tuple[pa.Schema, list[PartitionInfo]]:
        self.given.append(f"server {self.health_now.version}")
        return SCHEMA, [PartitionInfo(0, (self.given[-1],), MAPS, 3, 10, 0)]


class IdleExecutor:
    """An executor that is asked for nothing."""

    workers = 1


def output_of(shuffle: AnsweringShuffle) -> ShuffleOutput[None, None]:
    runner = StageRunner(IdleExecutor(), Recorder())  # type: ignore[arg-type]
    run = RunContext(runner, shuffles=None, failures=FetchFailureReporter())  # type: ignore[arg-type]
    return ShuffleOutput(run, shuffle, "map", [None] * MAPS, submit=lambda *_: None)  # type: ignore[arg-type, return-value, type-var, list-item]


def locations(output: ShuffleOutput[None, None]) -> Sequence[str]:
    return output.layout()[1][0].locations


def test_a_layout_is_asked_for_once_as_long_as_the_placement_is_the_same() -> None:
    shuffle = AnsweringShuffle(healthy())
    output = output_of(shuffle)
    assert output.schema is None
    assert output.layout() == output.layout()
    assert (shuffle.given, output.schema) == (["server 0"], SCHEMA)


def test_a_layout_is_asked_for_again_when_the_placement_has_changed() -> None:
    shuffle = AnsweringShuffle(healthy())
    output = output_of(shuffle)
    assert locations(output) == ("server 0",)
    shuffle.health_now = healthy(version=1)
    assert locations(output) == ("server 1",)
    assert (output.version, shuffle.given) == (1, ["server 0", "server 1"])


def test_a_known_layout_does_not_hide_that_commits_are_forgotten() -> None:
    shuffle = AnsweringShuffle(healthy())
    output = output_of(shuffle)
    output.layout()
    shuffle.health_now = healthy(maps=1)
    with refused(InconsistentMapOutputError):
        output.layout()
