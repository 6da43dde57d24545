"""What the shuffles of one run of a job have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mrflight.ids import new_writer_id
from mrflight.scheduler.losses import FetchFailureReporter
from mrflight.scheduler.shuffle_monitor import ShuffleMonitor
from mrflight.scheduler.stage_runner import StageRunner

if TYPE_CHECKING:
    from mrflight.shuffle.client.shuffle import Shuffle


class RunContext(msgspec.Struct, frozen=True):
    """A job's way from its maps to its reduces.

    What is lost is made again within it; where that cannot be, there is another run.
    """

    stages: StageRunner
    make_shuffle: Callable[[str, int], Shuffle]
    """Of a name, with so many partitions. It is watched from then on."""
    watch: ShuffleMonitor
    losses: FetchFailureReporter
    writer_id: str = msgspec.field(default_factory=new_writer_id)
    """Of all attempts, whose numbers tell them apart."""
