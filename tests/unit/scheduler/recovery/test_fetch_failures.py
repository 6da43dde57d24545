"""The reports of failed attempts about servers, to shuffles that only record them."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from mrflight.config.identity import ClientOptions
from mrflight.errors import MrflightError, NoDataServersError, ServerUnavailableError, SpillError
from mrflight.scheduler.recovery.fetch_failures import MAX_LOSSES, FetchFailureReporter
from mrflight.system.deadlines import Timeouts

SERVER = "grpc+tcp://127.0.0.1:1"


class RecordingShuffle(msgspec.Struct):
    """Stands for a shuffle."""

    metadata: str = "grpc+tcp://127.0.0.1:2"
    client: ClientOptions = ClientOptions(Timeouts(reconnect_s=0.0))
    is_lost: bool = False
    has_servers: bool = True
    forced: list[bool] = msgspec.field(default_factory=list)
    silent: list[str] = msgspec.field(default_factory=list)

    def with_timeouts(self, timeouts: Timeouts) -> RecordingShuffle:
        return msgspec.structs.replace(self, client=self.client.with_timeouts(timeouts))

    def report_loss(
        self, location: str, partitions: list[int] | None = None, *, insists: bool = False
    ) -> bool:
        assert location == SERVER
        self.forced.append(insists)
        return self.is_lost or insists

    def report_silence(self, location: str) -> bool:
        assert location == SERVER
        self.silent.append(location)
        return True

    def placement(self) -> list[tuple[str, ...]]:
        if not self.has_servers:
            raise NoDataServersError("none is left")
        return [(SERVER,)]


def about(error: MrflightError) -> MrflightError:
    error.location = SERVER
    return error


def report(reporter: FetchFailureReporter, error: Exception, *shuffles: RecordingShuffle) -> bool:
    return reporter.report(error, shuffles)  # type: ignore[arg-type]


def test_a_failure_counts_once_for_all_shuffles_of_the_attempt() -> None:
    reporter, first, second = FetchFailureReporter(), RecordingShuffle(), RecordingShuffle()
    for _ in range(2):
        assert not report(reporter, about(ServerUnavailableError("gone")), first, second)
    assert first.forced == second.forced == [False, False]
    assert report(reporter, about(ServerUnavailableError("gone")), first, second)
    assert first.forced == second.forced == [False, False, True]


@pytest.mark.parametrize("is_lost", [False, True], ids=["alive for others", "gone"])
def test_one_failure_is_enough_if_the_server_is_silent_there(*, is_lost: bool) -> None:
    shuffle = RecordingShuffle(is_lost=is_lost)
    silent = ServerUnavailableError("nothing answers")
    silent.is_silent = True
    assert report(FetchFailureReporter(), pickle.loads(pickle.dumps(about(silent))), shuffle)
    assert shuffle.forced == [False]  # the metadata server checks it before
    assert shuffle.silent == ([] if is_lost else [SERVER])


def test_errors_that_are_not_about_a_data_server_are_not_reported() -> None:
    shuffle = RecordingShuffle()
    of_metadata = ServerUnavailableError("gone")
    of_metadata.location = shuffle.metadata
    for error in (ValueError("1"), ServerUnavailableError("where?"), of_metadata):
        assert not report(FetchFailureReporter(), error, shuffle)
    assert shuffle.forced == []


def test_a_full_disk_is_the_error_if_there_is_no_other_server() -> None:
    full = about(SpillError("the disk is full"))
    with pytest.raises(SpillError, match="the disk is full"):
        report(FetchFailureReporter(), full, RecordingShuffle(has_servers=False))


def test_a_job_fails_after_too_many_losses() -> None:
    reporter, shuffles = (
        FetchFailureReporter(),
        [RecordingShuffle(is_lost=True), RecordingShuffle(is_lost=True)],
    )
    gone = about(ServerUnavailableError("gone"))
    for _ in range(MAX_LOSSES):
        assert report(reporter, gone, *shuffles)
    with pytest.raises(ServerUnavailableError):
        report(reporter, gone, *shuffles)
