"""A shuffle that is watched, and whose metadata server goes: a real one, killed or stopped."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import cast

import pytest

import mrflight
from mrflight.errors import (
    DeadlineExceededError,
    JobFailedError,
    MrflightError,
    ServerUnavailableError,
)
from mrflight.scheduler.shuffle_monitor import ShuffleMonitor
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.protocol import ShuffleHealth
from mrflight.system.deadlines import Timeouts
from tests.support.cluster import standing_cluster

WAIT_S = 30.0
HASTY = Timeouts(call_s=1.0, reconnect_s=1.0)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGKILL, ServerUnavailableError), (signal.SIGSTOP, DeadlineExceededError)],
)
def test_who_cannot_be_asked_any_more_is_told_without_another_wait(
    number: signal.Signals, error: type[MrflightError]
) -> None:
    with standing_cluster(1) as cluster, closing(ShuffleMonitor()) as watch:
        with mrflight.connect(cluster.metadata, HASTY) as client:
            shuffle = client.create_shuffle("watched", partitions=2)
        watch.add(shuffle)
        watch.check()
        assert not watch.has_changed(shuffle, 0)
        cluster.metadata_process.send_signal(number)
        try:
            until(lambda: watch.has_changed(shuffle, 0))
            began = time.monotonic()
            with pytest.raises(error, match=re.escape(cluster.metadata)):
                watch.check()
            assert time.monotonic() - began < HASTY.reconnect_s
        finally:
            cluster.metadata_process.send_signal(signal.SIGCONT)


@dataclass
class Asked:
    """A shuffle that counts how often it is asked, and raises where it is told to."""

    id: str
    error: Exception | None = None
    times: int = 0

    def health(self) -> ShuffleHealth:
        self.times += 1
        if self.error is not None:
            raise self.error
        return ShuffleHealth(version=0, lost_maps=[])


def test_an_error_of_ours_is_the_jobs_failure_and_the_other_shuffles_keep_their_leases(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, well = Asked("broken", ValueError("a bug")), Asked("well")
    with closing(ShuffleMonitor()) as watch:
        watch.add(cast(Shuffle, broken))
        watch.add(cast(Shuffle, well))
        until(lambda: broken.times > 1 and well.times > 1)
        assert watch.has_changed(cast(Shuffle, well), 0)
        with pytest.raises(JobFailedError, match=r"shuffle broken .*ValueError: a bug") as failed:
            watch.check()
    assert failed.value.__cause__ is broken.error
    record = caplog.records[0]
    assert (record.levelname, record.getMessage()) == ("ERROR", "shuffle broken cannot be watched")
    assert record.exc_info is not None
