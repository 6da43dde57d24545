"""Where event logs are: placement, loss of servers, epochs, and the journal of all that."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from mrflight.errors import (
    AccessDeniedError,
    EventLogExistsError,
    EventLogNotFoundError,
    LogOwnerChangedError,
    NoDataServersError,
    ProtocolError,
)
from mrflight.ids import ShuffleKey
from mrflight.shuffle.metadata.event_logs import EventLogs
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.log_protocol import (
    ChangeLogMembers,
    CreateLog,
    LogName,
    LogPlacement,
)
from mrflight.shuffle.wire.log_rights import ALL_RIGHTS, LogId, LogRight, log_id
from tests.support.suite.messages import refused

TIMEOUT_S = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Cluster:
    """A registry with a journal, and data servers 0, 1, ... with the stores s0, s1, ..."""

    def __init__(self, path: Path, servers: int) -> None:
        self.path, self.clock = path, Clock()
        self.journal = Journal(path)
        self.registry = Registry(self.clock, TIMEOUT_S, self.journal.record)
        for number in range(servers):
            self.join(number)

    @property
    def logs(self) -> EventLogs:
        return self.registry.logs

    def join(self, number: int, process: str = "a", port: int = 0) -> None:
        self.registry.register_server(location(number, port), process, f"s{number}")

    def leave(self, number: int) -> None:
        self.registry.unregister_server(location(number))

    def resume(self) -> None:
        """Begin again from the journal."""
        self.journal.close()
        self.journal = Journal(self.path)
        self.registry = Registry(self.clock, TIMEOUT_S, self.journal.record)
        self.registry.resume(self.journal.events())

    def place(self, name: str = "x") -> tuple[int, str, list[str]]:
        """The epoch, owner and members of a log."""
        found = self.logs.describe(LogName(name))
        return found.epoch, found.owner, [each.store for each in found.members]

    def change(self, epoch: int, owner: str, *, remove: str = "", add: str = "") -> LogPlacement:
        removed, added = ([each] if each else [] for each in (remove, add))
        return self.logs.change_members(ChangeLogMembers("x", epoch, owner, removed, added))


def location(number: int, port: int = 0) -> str:
    return f"grpc+tcp://127.0.0.1:{1000 + number + port}"


@pytest.fixture
def made(tmp_path: Path) -> Callable[[int], Cluster]:
    return lambda servers: Cluster(tmp_path / "journal", servers)


def test_logs_are_spread_over_servers_that_keep_them(made: Callable[[int], Cluster]) -> None:
    cluster = made(3)
    cluster.registry.register_server("grpc+tcp://127.0.0.1:1", "a")  # it has no --log-dir
    placements = [cluster.logs.create(CreateLog(f"l{n}", 2)) for n in range(3)]
    held = [each.store for placement in placements for each in placement.members]
    assert sorted(held) == ["s0", "s0", "s1", "s1", "s2", "s2"]
    assert all(placement.owner == placement.members[0].store for placement in placements)
    assert all(not placement.spares for placement in placements)
    with refused(NoDataServersError):
        cluster.logs.create(CreateLog("l3", 4))


def test_a_name_is_taken_once(made: Callable[[int], Cluster]) -> None:
    cluster = made(1)
    first = cluster.logs.create(CreateLog("x", 1, "t"))
    assert cluster.logs.create(CreateLog("x", 1, "t")) == first
    with pytest.raises(EventLogExistsError):
        cluster.logs.create(CreateLog("x", 1, "other"))
    with refused(EventLogNotFoundError):
        cluster.logs.describe(LogName("x", "other"))
    cluster.logs.drop(LogName("x", "t"))
    with pytest.raises(EventLogNotFoundError, match="was never created"):
        cluster.logs.describe(LogName("x"))


SECRET = "5ec2e7"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_handle_allows_what_it_was_made_for(made: Callable[[int], Cluster], count: int) -> None:
    cluster = made(1)
    log = cluster.logs.create(CreateLog("x", 1, SECRET))
    assert (log.key, set(log.rights)) == (ShuffleKey("x", SECRET), ALL_RIGHTS)
    assert log.handle() == log.handle(*LogRight) == f"x:{SECRET}"
    for rights in itertools.combinations(LogRight, count):
        key = ShuffleKey.parse(log.handle(*rights))
        found = cluster.logs.describe(LogName(*key))
        assert (found.key, found.log, set(found.rights)) == (key, log.log, set(rights))
        if rights != tuple(LogRight):
            with refused(AccessDeniedError):
                found.handle("read")
        if "drop" not in rights:
            with refused(AccessDeniedError):
                cluster.logs.drop(LogName(*key))
        else:
            assert cluster.logs.drop(LogName(*key)).key == log.key, "its files are found by that"
            if rights != tuple(LogRight):
                with refused(ProtocolError):
                    cluster.logs.create(CreateLog(key.id, 1, key.token))
            cluster.logs.create(CreateLog("x", 1, SECRET))


def test_an_id_gives_no_rights(made: Callable[[int], Cluster]) -> None:
    cluster = made(1)
    log = cluster.logs.create(CreateLog("x", 1, SECRET)).log
    assert str(log) == f"x:{log_id(SECRET)}"
    assert LogId.parse(str(log)) == LogId.parse(f"x:{SECRET}") == log
    for token in (log.id, log.id.removeprefix("id-")):
        with pytest.raises(EventLogNotFoundError, match="another one has its name"):
            cluster.logs.describe(LogName("x", token))
    with pytest.raises(ProtocolError):
        ShuffleKey.parse(str(log))
    with refused(ProtocolError):
        LogId.parse("x")


def test_a_replica_takes_over_in_the_next_epoch(made: Callable[[int], Cluster]) -> None:
    cluster = made(3)
    cluster.logs.create(CreateLog("x", 2))
    assert cluster.place() == (1, "s0", ["s0", "s1"])
    cluster.leave(0)
    assert cluster.place() == (2, "s1", ["s1"])
    spares = cluster.logs.describe(LogName("x")).spares
    assert [each.store for each in spares] == ["s2"]
    with refused(LogOwnerChangedError):
        cluster.change(1, "s0", remove="s1")
    cluster.change(2, "s1", add="s2")
    assert cluster.place() == (2, "s1", ["s1", "s2"])
    cluster.join(0)  # it may lack rows, and is no member any more
    assert cluster.place() == (2, "s1", ["s1", "s2"])


def test_a_lost_replica_leaves_and_the_owner_stays(made: Callable[[int], Cluster]) -> None:
    cluster = made(2)
    cluster.logs.create(CreateLog("x", 2))
    cluster.clock.now = 9.0
    cluster.registry.heartbeat(location(0), [], 0, "a", [])
    cluster.clock.now = 11.0
    assert cluster.place() == (1, "s0", ["s0"])


def test_the_last_member_keeps_the_log_while_it_is_away(made: Callable[[int], Cluster]) -> None:
    cluster = made(3)
    cluster.logs.create(CreateLog("x", 2))
    cluster.leave(1)
    cluster.leave(0)
    found = cluster.logs.describe(LogName("x"))
    assert cluster.place() == (1, "s0", ["s0"])
    assert found.owner_location == ""
    cluster.join(0, "b", port=500)
    assert cluster.logs.describe(LogName("x")).owner_location == location(0, 500)


def test_another_process_with_the_folder_replaces_the_first(
    made: Callable[[int], Cluster],
) -> None:
    cluster = made(2)
    cluster.logs.create(CreateLog("x", 2))
    cluster.join(0, "b", port=500)
    assert cluster.registry.incarnation(location(0)) is None
    assert cluster.place() == (2, "s1", ["s1"])


@pytest.mark.parametrize(
    ("remove", "add"), [("s0", ""), ("", "s2"), ("s0", "s2")], ids=["itself", "too many", "both"]
)
def test_an_owner_cannot_leave_or_have_too_many(
    made: Callable[[int], Cluster], remove: str, add: str
) -> None:
    cluster = made(3)
    cluster.logs.create(CreateLog("x", 2))
    with pytest.raises(LogOwnerChangedError, match="cannot have"):
        cluster.change(1, "s0", remove=remove, add=add)
    assert cluster.place() == (1, "s0", ["s0", "s1"])


def test_a_restarted_metadata_server_knows_every_log(made: Callable[[int], Cluster]) -> None:
    cluster = made(3)
    cluster.logs.create(CreateLog("x", 2, "t"))
    cluster.logs.create(CreateLog("gone"))
    cluster.leave(0)
    cluster.change(2, "s1", add="s2")
    cluster.logs.drop(LogName("gone"))
    before = cluster.logs.describe(LogName("x"))
    cluster.resume()
    assert cluster.logs.describe(LogName("x", "t")) == before
    assert cluster.logs.all() == [before]
    cluster.leave(1)
    assert cluster.place() == (3, "s2", ["s2"])
    cluster.resume()
    assert cluster.place() == (3, "s2", ["s2"])
