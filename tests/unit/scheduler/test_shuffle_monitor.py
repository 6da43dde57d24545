"""The shuffle monitor, with a real metadata server that is killed or suspended."""

from __future__ import annotations

import re
import signal
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
from tests.support.clusters.cluster import standing_cluster
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that

HASTY = Timeouts(call_s=1.0, reconnect_s=1.0)


@pytest.mark.slow_but("9-ServerUnavailableError")
@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGKILL, ServerUnavailableError), (signal.SIGSTOP, DeadlineExceededError)],
)
def test_a_lost_metadata_server_is_reported_without_another_wait(
    number: signal.Signals, error: type[MrflightError]
) -> None:
    with standing_cluster(1) as cluster, closing(ShuffleMonitor()) as monitor:
        with mrflight.connect(cluster.metadata) as client:
            shuffle = client.create_shuffle("watched", partitions=2).with_timeouts(HASTY)
        monitor.check()
        assert not monitor.has_changed(shuffle, 0)
        cluster.metadata_process.send_signal(number)
        monitor.add(shuffle)
        try:
            await_that(lambda: monitor.has_changed(shuffle, 0), "the loss to be noticed")
            with pytest.raises(error, match=re.escape(cluster.metadata)) as raised:
                monitor.check()
            assert raised.value is monitor._failure  # and nobody is asked again
        finally:
            cluster.metadata_process.send_signal(signal.SIGCONT)


@dataclass
class PolledShuffle:
    """A shuffle that counts the polls, and may raise an error."""

    id: str
    error: Exception | None = None
    times: int = 0

    def health(self) -> ShuffleHealth:
        self.times += 1
        if self.error is not None:
            raise self.error
        return ShuffleHealth(version=0, lost_maps=[])


def test_a_bug_fails_the_job_and_the_other_shuffles_keep_their_leases(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, intact = PolledShuffle("broken", ValueError("a bug")), PolledShuffle("intact")
    with closing(ShuffleMonitor()) as monitor:
        monitor.add(cast(Shuffle, broken))
        monitor.add(cast(Shuffle, intact))
        await_that(lambda: broken.times > 1 and intact.times > 1, "two polls of both")
        assert monitor.has_changed(cast(Shuffle, intact), 0)
        with refused(JobFailedError) as failed:
            monitor.check()
    assert failed.value.__cause__ is broken.error
    record = caplog.records[0]
    assert (record.levelname, record.getMessage()) == ("ERROR", "shuffle broken cannot be watched")
    assert record.exc_info is not None
