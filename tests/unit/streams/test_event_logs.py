"""Where a stream is in an event log, and how that is the tail of its table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mrflight.config.identity import ANONYMOUS, ClientOptions, Endpoint
from mrflight.config.input_spec import InputSpec, shown_log
from mrflight.errors import InputError, JobFileError, LostOffsetsError, NoDataServersError
from mrflight.ids import ShuffleKey
from mrflight.security.known_tails import find_tail
from mrflight.shuffle.client.log_client import LogClient
from mrflight.shuffle.wire.log_protocol import LogState
from mrflight.shuffle.wire.log_rights import LogId, LogRight, log_id
from mrflight.shuffle.wire.tail_protocol import reader_token
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.log_source import LogInput
from mrflight.sources.recorded_names import MARK
from mrflight.storage import locate
from mrflight.storage.tail_file import TailFile, read_tail_files
from mrflight.streams import log_positions
from mrflight.streams.committer import Committer
from mrflight.streams.live_log import LiveLog, forget_live_log
from mrflight.streams.log_positions import LogPositions
from mrflight.streams.tail_servers import OwnServers
from tests.support.streams.memory_table import MemorySink, MemoryTable
from tests.support.streams.scripted_broker import Script
from tests.support.suite.messages import refused

KEY = ShuffleKey("rows", "abc")
NAME, NAME_BEFORE = f"log/rows/{log_id('abc')}/0", "log/rows/abc/0"
PLACE = ("rows", 0)


class Log:
    """An event log whose rows from ``low`` to ``high`` are there, and its client."""

    key, log, rights = KEY, LogId.of(KEY), list(LogRight)

    def __init__(self, low: int, high: int, age: int = 1) -> None:
        """``age``: the mark of each offset is so many times the offset."""
        self.low, self.high, self.age = low, high, age
        self.trimmed: list[int] = []

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def describe(self, key: ShuffleKey) -> Log:
        assert key == ShuffleKey("rows")
        return self

    def trim(self, key: ShuffleKey, offset: int) -> None:
        assert key == KEY
        self.trimmed.append(offset)

    def state(self, key: ShuffleKey, offsets: Sequence[int] = ()) -> LogState:
        assert key == KEY
        marks = [self.age * each if self.low < each <= self.high else 0 for each in offsets]
        return LogState(self.low, self.high, marks=marks)


class PositionsInLog(LogPositions):
    """The positions in a log that is in memory."""

    def __init__(self, log: Log, start: str = "earliest") -> None:
        self._log_in_memory = log
        place = LogInput("grpc://here:1", ClientOptions())
        super().__init__("rows", InputSpec(log="rows", start=start), place)

    def _client(self) -> LogClient:
        return cast(LogClient, self._log_in_memory)


@pytest.mark.parametrize(
    ("start", "recorded", "at"),
    [
        ("earliest", {}, 3),
        ("latest", {}, 9),
        ("earliest", {NAME: 5}, 5),
        ("latest", {NAME: 5}, 5),
        ("earliest", {"log/other/x/0": 7}, 3),
        ("earliest", {NAME_BEFORE: 5}, 5),
        ("latest", {NAME_BEFORE: 5, NAME: 7}, 7),
    ],
)
def test_a_log_is_read_from_its_start_or_from_what_is_recorded(
    start: str, recorded: dict[str, int], at: int
) -> None:
    positions = PositionsInLog(Log(3, 9), start)
    assert (positions.partitions, positions.name(PLACE)) == ([PLACE], NAME)
    assert positions.ends() == {PLACE: 9}
    assert positions.position(recorded) == {PLACE: at}


def test_a_log_that_was_made_anew_is_refused() -> None:
    for before in ("before", log_id("before")):
        with refused(InputError, "inputs.rows.log"):
            PositionsInLog(Log(0, 1)).position({f"log/rows/{before}/0": 4})


def test_rows_that_were_trimmed_before_they_were_read_are_lost_or_skipped() -> None:
    positions = PositionsInLog(Log(3, 9))
    assert positions.check_kept({PLACE: 3}, takes_earliest=False) == {PLACE: 3}
    assert positions.check_kept({PLACE: 1}, takes_earliest=True) == {PLACE: 3}
    with pytest.raises(LostOffsetsError) as caught:
        positions.check_kept({PLACE: 1}, takes_earliest=False)
    assert (caught.value.wanted, caught.value.earliest) == (1, 3)


@pytest.mark.parametrize("takes_earliest", [False, True])
@pytest.mark.parametrize(
    ("recorded", "later"),
    [
        ({NAME: 9}, Log(3, 8)),
        ({NAME: 9, MARK + NAME: 9}, Log(3, 8)),
        ({NAME: 9, MARK + NAME: 9}, Log(3, 12, age=2)),
    ],
)
def test_a_log_that_has_gone_back_ends_the_stream(
    recorded: dict[str, int], later: Log, takes_earliest: bool
) -> None:
    before = PositionsInLog(Log(3, 9))
    position = before.position(recorded)
    assert before.check_kept(position, takes_earliest=takes_earliest) == position
    for positions in (PositionsInLog(later), before):
        positions._log_in_memory = later
        assert positions.position(recorded) == {PLACE: 9}
        with refused(LostOffsetsError) as caught:
            positions.check_kept(position, takes_earliest=takes_earliest)
        assert not caught.value.is_deletion
        if later.high < 9:
            with pytest.raises(LostOffsetsError):
                positions.ends()
        with pytest.raises(LostOffsetsError):
            positions.marks([OffsetRange("rows", 0, 9, 12)])


def test_a_stream_that_runs_notices_that_its_log_has_gone_back() -> None:
    positions = PositionsInLog(Log(0, 9))
    assert positions.check_kept(positions.position({}), takes_earliest=False) == {PLACE: 0}
    assert positions.marks([OffsetRange("rows", 0, 0, 5)]) == {MARK + NAME: 5}
    assert positions.position({NAME: 5}) == {PLACE: 5}, "as the stream looks for new partitions"
    positions._log_in_memory.age = 2
    with pytest.raises(LostOffsetsError):
        positions.marks([OffsetRange("rows", 0, 5, 9)])


def test_a_table_without_a_mark_gets_one() -> None:
    positions = PositionsInLog(Log(3, 12, age=2))
    assert positions.check_kept(positions.position({NAME: 9}), takes_earliest=False) == {PLACE: 9}
    assert positions.marks([OffsetRange("rows", 0, 9, 12)]) == {MARK + NAME: 24}


@pytest.mark.parametrize("rights", [["read"], ["read", "drop"]])
def test_a_stream_that_may_only_read_trims_nothing(
    rights: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_positions, "TRIM_EVERY_S", 0.0)
    log = Log(0, 9)
    log.rights = [LogRight(each) for each in rights]
    PositionsInLog(log).committed({NAME: 5})
    assert log.trimmed == ([5] if "drop" in rights else [])


def test_a_log_is_named_by_a_handle_in_a_file_beside_the_job(tmp_path: Path) -> None:
    (tmp_path / "rows.handle").write_text("rows:abc\n")
    place = LogInput("grpc://here:1", ClientOptions(), tmp_path)
    assert place.key("rows", InputSpec(log="file:rows.handle")) == KEY
    assert place.key("rows", InputSpec(log="rows:abc")) == KEY
    with pytest.raises(JobFileError, match=r"inputs\.rows\.log: .*none.* cannot be read"):
        place.key("rows", InputSpec(log="file:none"))
    assert [shown_log(each) for each in ("rows:abc", "rows", "file:x")] == [
        "rows",
        "rows",
        "file:x",
    ]


class Recorded:
    """What a committer has recorded."""

    def __init__(self) -> None:
        self.recorded: dict[str, int] = {}


def live_log(folder: Path, committer: Recorded) -> LiveLog:
    positions = PositionsInLog(Log(0, 9))
    table = locate("t", folder, {})
    return LiveLog.of(table, "s", "grpc://here:1", positions, cast(Committer, committer))


def test_readers_are_told_of_a_log_once_the_table_has_recorded_an_offset(tmp_path: Path) -> None:
    table, committer = locate("t", tmp_path, {}), Recorded()
    (tmp_path / "t").mkdir()
    live = live_log(tmp_path, committer)
    live.follow({PLACE: 0})
    assert read_tail_files(table) == []
    committer.recorded[NAME] = 4
    live.committed()
    assert read_tail_files(table) == [
        TailFile("s", cluster="grpc://here:1", log=f"rows:{log_id('abc')}")
    ]
    live.close()
    assert read_tail_files(table), "the log can be read without the stream"
    forget_live_log(table, "s")
    forget_live_log(table, "s")
    assert read_tail_files(table) == []


def test_a_tail_file_that_cannot_be_written_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    committer = Recorded()
    committer.recorded[NAME] = 4
    (tmp_path / "t").write_text("a file where the table should be")
    live = live_log(tmp_path, committer)
    with caplog.at_level(logging.WARNING):
        live.committed()
    assert "stream 's' cannot be read fresh yet" in caplog.text
    (tmp_path / "t").unlink()
    (tmp_path / "t").mkdir()
    live.follow({PLACE: 0})
    assert len(read_tail_files(locate("t", tmp_path, {})) or ()) == 1


class Cluster:
    """A cluster of a stream's own."""

    def __init__(self, *locations: str) -> None:
        self.locations = list(locations)
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def wait(self) -> None:
        self.calls.append("wait")

    def data_servers(self) -> list[str]:
        return self.locations


def test_a_tail_stays_on_its_server_as_long_as_that_is_there() -> None:
    cluster = Cluster("a", "b")
    servers = OwnServers("s", ANONYMOUS, cast(Any, cluster))
    assert cluster.calls == ["start", "wait"]
    assert servers.choose(None) == Endpoint("a", ANONYMOUS)
    assert servers.choose(Endpoint("b", ANONYMOUS)) == Endpoint("b", ANONYMOUS)
    cluster.locations = ["a"]
    assert servers.choose(Endpoint("b", ANONYMOUS)) == Endpoint("a", ANONYMOUS)
    cluster.locations = []
    with pytest.raises(NoDataServersError):
        servers.choose(Endpoint("a", ANONYMOUS))
    here = Endpoint("grpc+unix:///tmp/a.sock", ANONYMOUS)
    assert servers.file("s", here) == TailFile("s", servers.name), "a name, and nothing else"
    found = find_tail(servers.name)
    assert (found.server.location, found.token) == (here.location, reader_token(servers.token))
    servers.close()


def test_upkeep_compacts_after_commits_and_removes_files_by_the_hour() -> None:
    from mrflight.streams.table_upkeep import COMPACT_EVERY, TableUpkeep

    script, now = Script({}), [0.0]
    sink = MemorySink(MemoryTable(script), "job")
    upkeep = TableUpkeep(lambda: now[0])
    for _ in range(2 * COMPACT_EVERY - 1):
        upkeep.after_commit(sink)
    assert script.steps == {"compact": 1}
    for now[0] in (3599, 3600, 3601, 7199, 7200):
        upkeep.after_commit(sink)
    assert script.steps == {"compact": 2, "remove old files": 2}
