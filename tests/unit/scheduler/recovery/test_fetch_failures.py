"""What is reported of servers when attempts fail, to shuffles that only note it."""

from __future__ import annotations

import msgspec
import pytest

from mrflight.errors import MrflightError, NoDataServersError, ServerUnavailableError, SpillError
from mrflight.scheduler.recovery.fetch_failures import MAX_LOSSES, FetchFailureReporter
from mrflight.system.deadlines import Timeouts

SERVER = "grpc+tcp://127.0.0.1:1"


class Noting(msgspec.Struct):
    """In place of a shuffle."""

    metadata: str = "grpc+tcp://127.0.0.1:2"
    timeouts: Timeouts = msgspec.field(default_factory=lambda: Timeouts(reconnect_s=0.0))
    is_lost: bool = False
    has_servers: bool = True
    insisted: list[bool] = msgspec.field(default_factory=list)

    def report_loss(
        self, location: str, partitions: list[int] | None = None, *, insists: bool = False
    ) -> bool:
        assert location == SERVER
        self.insisted.append(insists)
        return self.is_lost or insists

    def placement(self) -> list[tuple[str, ...]]:
        if not self.has_servers:
            raise NoDataServersError("none is left")
        return [(SERVER,)]


def about(error: MrflightError) -> MrflightError:
    error.location = SERVER
    return error


def report(losses: FetchFailureReporter, error: Exception, *shuffles: Noting) -> bool:
    return losses.report(error, shuffles)  # type: ignore[arg-type]


def test_a_failure_counts_once_however_many_shuffles_the_attempt_used() -> None:
    losses, first, second = FetchFailureReporter(), Noting(), Noting()
    for _ in range(2):
        assert not report(losses, about(ServerUnavailableError("gone")), first, second)
    assert first.insisted == second.insisted == [False, False]
    assert report(losses, about(ServerUnavailableError("gone")), first, second)
    assert first.insisted == second.insisted == [False, False, True]


def test_what_is_not_about_a_data_server_is_not_reported() -> None:
    shuffle = Noting()
    of_metadata = ServerUnavailableError("gone")
    of_metadata.location = shuffle.metadata
    for error in (ValueError("1"), ServerUnavailableError("where?"), of_metadata):
        assert not report(FetchFailureReporter(), error, shuffle)
    assert shuffle.insisted == []


def test_a_full_disk_with_nowhere_else_to_go_is_what_is_told() -> None:
    full = about(SpillError("the disk is full"))
    with pytest.raises(SpillError, match="the disk is full"):
        report(FetchFailureReporter(), full, Noting(has_servers=False))


def test_a_job_loses_so_many_servers_and_no_more() -> None:
    losses, shuffles = FetchFailureReporter(), [Noting(is_lost=True), Noting(is_lost=True)]
    gone = about(ServerUnavailableError("gone"))
    for _ in range(MAX_LOSSES):
        assert report(losses, gone, *shuffles)
    with pytest.raises(ServerUnavailableError):
        report(losses, gone, *shuffles)
