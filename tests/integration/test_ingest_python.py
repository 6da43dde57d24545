"""`mrflight.ingest` runs a stream in a process that does other things as well."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import deltalake
import pytest

import mrflight
from tests.services.kafka import Kafka
from tests.support.commands.running_command import running_command
from tests.support.streams.ingest_job import Stream, check_once, numbered
from tests.support.suite.waiting import await_that, hang_s

INTERRUPTED = """
import sys, mrflight
try:
    mrflight.ingest(sys.argv[1], progress=False)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def stream(kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(kafka, kafka.topic(2), tmp_path)


def test_a_stream_runs_until_it_is_caught_up(
    stream: Stream, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stream.produce(numbered(1, range(100)))
    job = stream.write_job()
    overrides = {"stream.max_rows": 30}
    result = mrflight.ingest(job, overrides, until_caught_up=True, progress=False)
    assert isinstance(result, mrflight.StreamResult)
    assert (result.state, result.rows_in, result.lag_rows) == ("caught_up", 100, 0)
    assert result.commits >= 4
    check_once(stream.rows(), {1: 100})
    assert capfd.readouterr() == ("", "")
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_an_event_stops_a_stream_after_a_commit(stream: Stream) -> None:
    job, stop = stream.write_job(), threading.Event()
    found: list[mrflight.StreamResult] = []
    thread = threading.Thread(
        target=lambda: found.append(mrflight.ingest(job, stop=stop, progress=False))
    )
    thread.start()
    try:
        stream.produce(numbered(1, range(10)))
        await_that(lambda: len(stream.rows()) == 10, "10 rows")
    finally:
        stop.set()
        thread.join(hang_s())
    assert [(each.state, each.rows_in) for each in found] == [("stopped", 10)]
    check_once(stream.rows(), {1: 10})


def test_a_keyboard_interrupt_ends_a_stream_and_leaves_no_files(stream: Stream) -> None:
    job = stream.write_job()
    command = [sys.executable, "-c", INTERRUPTED, str(job)]
    with running_command(command) as process:
        stream.produce(numbered(1, range(10)))
        await_that(lambda: len(stream.rows()) == 10, "10 rows")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (0, "interrupted\n"), stderr
    check_once(stream.rows(), {1: 10})
    files = {path.name for path in stream.table.rglob("*.parquet")}
    uris = deltalake.DeltaTable(stream.table).file_uris()
    assert files == {Path(uri).name for uri in uris}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"output.mode": "overwrite"}, "would undo the batches before"),
        ({"stream.max_bad": "many"}, "stream.max_bad"),
    ],
)
def test_mistakes_are_those_of_the_command(
    stream: Stream, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(mrflight.MrflightError, match=message):
        mrflight.ingest(stream.write_job(), overrides, progress=False)
