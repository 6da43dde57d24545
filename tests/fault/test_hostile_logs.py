"""What hostile clients send to event logs is refused, and the logs are as they were."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import LogOwnerChangedError, MrflightError, ProtocolError
from mrflight.shuffle.log.frame import Frame, joined, serialize
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.log_protocol import REPLICA_SCHEMA
from tests.support.clusters.event_logs import LogCluster, held, log_cluster, numbers
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

ROWS = numbers(0, 1, 2, 3)


class Target:
    """The owner of a log with three rows, and a client of it."""

    def __init__(self, servers: LogCluster, cluster: mrflight.Cluster) -> None:
        self.servers, self.cluster = servers, cluster
        self.placement = cluster.create_log("target")
        cluster.append("target", ROWS)
        self.location = self.placement.owner_location
        self.client = flight.FlightClient(self.location)

    def put(self, path: list[str], *messages: tuple[pa.RecordBatch, bytes]) -> None:
        """Put messages, and raise what the server answers at the end."""
        with from_flight(self.location, "put"):
            descriptor = flight.FlightDescriptor.for_path(*path)
            writer, _ = self.client.do_put(descriptor, messages[0][0].schema)
            with writer:
                for batch, tag in messages:
                    writer.write_with_metadata(batch, tag)

    def action(self, action: str, /, **body: Any) -> None:
        with from_flight(self.location, action):
            list(self.client.do_action((action, json.dumps(body).encode())))

    def check(self) -> None:
        """The log is as it was, and takes rows."""
        assert held(self.cluster, "target")[:3] == [(0, 0, 1), (1, 0, 2), (2, 0, 3)]
        self.cluster.append("target", numbers(1, 1))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("logs")
    with log_cluster(folder, data_servers=2) as servers, servers.connect(hang_s()) as cluster:
        yield Target(servers, cluster)


@pytest.mark.parametrize(
    "tag",
    [
        b"{",
        b"\xff",
        b'{"producer": "p"}',
        b'{"producer": "p", "sequence": -1}',
        b'{"producer": "p", "sequence": 5}',
        b'{"producer": "p", "sequence": 99999999999999999999}',
        b'{"producer": "../p", "sequence": 0}',
        b'{"producer": "' + b"p" * 65 + b'", "sequence": 0}',
        b'{"producer": "p", "sequence": 0, "more": 1}',
        b"[" * 100_000,
    ],
)
def test_tags(target: Target, tag: bytes) -> None:
    with pytest.raises(MrflightError):
        target.put(["log", "target"], (ROWS, tag))
    target.check()


@pytest.mark.slow
def test_batches(target: Target) -> None:
    nulls = pa.record_batch({"n": pa.nulls(2**25)})
    wide = pa.DictionaryArray.from_arrays(pa.array([0] * 2**16, pa.int32()), ["x" * 2**12])
    for number, batch in enumerate((nulls, pa.record_batch({"s": wide}))):
        target.cluster.create_log(f"new{number}")
        placement = target.cluster.log_state(f"new{number}")
        assert placement.high == 0
        with refused(ProtocolError):
            target.cluster.append(f"new{number}", batch)
        target.cluster.drop_log(f"new{number}")
    target.check()


PATHS = (
    *(["log"], ["log", ""], ["log", "../x"], ["log", "target", "replica"], ["log", "a:b:c"]),
    *(["log", "target", "replica", "1", "steal"], ["log", "target", "other", "1", "copy"]),
    *(["log", "target", "replica", "-1", "copy"], ["log", "target", "replica", "9" * 30, "copy"]),
)


@pytest.mark.parametrize("path", PATHS)
def test_paths(target: Target, path: list[str]) -> None:
    with pytest.raises(MrflightError):
        target.put(path, (ROWS, b""))
    target.check()


@pytest.mark.parametrize(
    "ticket",
    [
        b"log/target/0/-1",
        b"log/target/x/9",
        b"log/../0/9",
        b"log//0/9",
        b"log/target/5/" + b"9" * 30,
    ],
)
def test_tickets(target: Target, ticket: bytes) -> None:
    with pytest.raises(MrflightError), from_flight("", "get"):
        list(target.client.do_get(flight.Ticket(ticket)))
    target.check()


@pytest.mark.parametrize("name", ["../../etc", "target/..", "", "a b", "target:x", "x" * 129])
@pytest.mark.parametrize("action", ["drop_log", "trim_log", "pin_log", "log_state"])
def test_names(target: Target, action: str, name: str) -> None:
    more = {"trim_log": {"offset": 10}, "pin_log": {"offset": 10, "for_s": 1.0}}.get(action, {})
    with pytest.raises(MrflightError):
        target.action(action, name=name, token="t", **more)
    target.check()


def test_a_log_that_exists_is_not_deleted_at_its_server(target: Target) -> None:
    with pytest.raises(ProtocolError, match="is not dropped yet"):
        target.action("drop_log", name="target", token=target.placement.token)
    target.check()


@pytest.mark.parametrize("mode", ["follow", "copy"])
@pytest.mark.parametrize("epoch", [0, 1, 2, 7])
def test_frames_of_nobody(target: Target, mode: str, epoch: int) -> None:
    frames = joined([Frame(3, 3, serialize(ROWS))])
    batch = pa.record_batch([pa.array([frames], pa.large_binary())], schema=REPLICA_SCHEMA)
    path = ["log", f"target:{target.placement.token}", "replica", str(epoch), mode]
    with pytest.raises(MrflightError):
        target.put(path, (batch, b""))
    target.check()


def test_damaged_frames_to_a_replica(target: Target) -> None:
    chosen = random.Random(7)
    placement = target.cluster.create_log("pair", replicas=2)
    target.cluster.append("pair", ROWS)
    replica = next(each for each in placement.members if each.store != placement.owner)
    data = joined([Frame(3, 3, serialize(ROWS))])
    with flight.FlightClient(replica.location) as client:
        for _ in range(50):
            damaged = bytearray(data)
            damaged[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
            path = ["log", str(placement.key), "replica", "1", "follow"]
            writer, _ = client.do_put(flight.FlightDescriptor.for_path(*path), REPLICA_SCHEMA)
            value = pa.array([bytes(damaged)], pa.large_binary())
            with pytest.raises(MrflightError), from_flight("", "put"), writer:
                writer.write_batch(pa.record_batch([value], schema=REPLICA_SCHEMA))
    assert target.cluster.append("pair", ROWS).start == 3
    assert len(held(target.cluster, "pair")) == 6


def test_members_are_changed_by_owners_only(target: Target) -> None:
    body = {"name": "target", "epoch": 1, "owner": "somebody", "remove": ["x"]}
    action = ("change_log_members", json.dumps(body).encode())
    with (
        flight.FlightClient(target.servers.location) as client,
        pytest.raises(LogOwnerChangedError),
        from_flight("", "change"),
    ):
        list(client.do_action(action))
    target.check()
