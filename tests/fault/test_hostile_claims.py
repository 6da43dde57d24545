"""Well-formed messages with false claims are refused, and change nothing."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mrflight.servers.listening import Listening
from mrflight.servers.metadata import MetadataServer
from pyarrow import flight

from mrflight.errors import ProtocolError, SchemaMismatchError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.protocol import MetadataAction
from tests.support.clusters.hostile_servers import BATCH, SHUFFLE, Put, Servers, act, ask
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.suite.messages import refused


def commit(**fields: Any) -> str:
    schema = BATCH.schema.serialize().to_pybytes()
    valid = {"id": SHUFFLE, "map_id": 0, "attempt": 0, "rows": [1] * 3, "size_bytes": [1] * 3}
    encoded = base64.b64encode(fields.pop("schema", schema)).decode()
    return json.dumps({**valid, "schema": encoded, **fields})


def named(*names: str) -> bytes:
    schema: bytes = pa.schema([(name, pa.int8()) for name in names]).serialize().to_pybytes()
    return schema


LONG = b"\xff" * 4_000
BELIEVED: dict[str, tuple[str, str]] = {
    "rows below none": ("commit_map", commit(rows=[-1, 0, 0])),
    "rows beyond counting": ("commit_map", commit(rows=[2**63, 0, 0])),
    "rows of other partitions": ("commit_map", commit(rows=[1])),
    "sizes of other partitions": ("commit_map", commit(size_bytes=[1] * 100_000)),
    "sizes beyond counting": ("commit_map", commit(size_bytes=[2**48, 0, 0])),
    "a map out of bounds": ("commit_map", commit(map_id=10**7)),
    "a map below 0": ("commit_map", commit(map_id=-1)),
    "an attempt out of bounds": ("commit_map", commit(attempt=10**3)),
    "a writer that is none": ("commit_map", commit(writer="../" * 30)),
    "no schema": ("commit_map", commit(schema=b"")),
    "a schema that is none": ("commit_map", commit(schema=LONG)),
    "half a schema": ("commit_map", commit(schema=named("a")[:-40])),
    "too many partitions": ("put_shuffle", '{"id": "new", "reducers": 100001}'),
    "no partitions": ("put_shuffle", '{"id": "new", "reducers": 0}'),
    "no replicas": ("put_shuffle", '{"id": "new", "reducers": 1, "replicas": 0}'),
    "a lease below 0": ("put_shuffle", '{"id": "new", "reducers": 1, "lease_s": -1}'),
    "a lease of 0": ("put_shuffle", '{"id": "new", "reducers": 1, "lease_s": 0}'),
    "a lease for ever": ("put_shuffle", '{"id": "new", "reducers": 1, "lease_s": 1e308}'),
    "a location that is a path": ("register_server", '{"location": "/etc/passwd"}'),
    "a location that is a socket": (
        "register_server",
        '{"location": "grpc+unix:///etc/passwd"}',
    ),
    "a location without a port": ("register_server", '{"location": "grpc+tcp://127.0.0.1"}'),
    "a location that is empty": ("register_server", '{"location": ""}'),
    "an id that is a path": ("put_shuffle", '{"id": "../new", "reducers": 1}'),
    "an id that is long": ("put_shuffle", json.dumps({"id": "x" * 10**6, "reducers": 1})),
    "an id that is empty": ("describe_shuffle", '{"id": ""}'),
    "an id with a NUL": ("describe_shuffle", '{"id": "a\\u0000"}'),
    "a location of 10 MB": ("register_server", json.dumps({"location": "x" * 10**7})),
    "a heartbeat of 10 MB": ("heartbeat", json.dumps({"location": "x" * 10**7})),
    "bytes beyond counting": ("heartbeat", '{"location": "a", "stored_bytes": 1%s}' % ("0" * 99)),
    "a field of 10 MB": ("status", json.dumps({"x" * 10**7: 1})),
}


def test_what_is_out_of_bounds_is_refused(servers: Servers) -> None:
    with flight.FlightClient(servers.metadata) as client:
        servers.cluster.create_shuffle(SHUFFLE, partitions=3)
        for what, (action, body) in BELIEVED.items():
            with pytest.raises(ProtocolError) as caught:
                act(client, action, body)
            assert " answered: " not in str(caught.value), what
        (state,) = servers.cluster.status().shuffles
        assert (state.id, state.maps, state.rows, state.size_bytes) == (SHUFFLE, 0, 0, 0)
        assert [server.location for server in servers.cluster.status().servers] == [servers.data]


def test_only_sockets_register_at_a_server_on_a_socket(tmp_path: Path) -> None:
    registry = Registry(Clock(), TIMEOUT_S)
    (tmp_path / "file").touch()
    ours = f"grpc+unix://{tmp_path}/metadata.sock"
    server = MetadataServer(Listening(ours), registry)
    with flight.FlightClient(ours) as client:
        for path in ("/etc/passwd", tmp_path / "file", tmp_path / "nothing", tmp_path):
            with refused(ProtocolError):
                act(client, "register_server", json.dumps({"location": f"grpc+unix://{path}"}))
        assert registry.overview.servers() == []
        act(client, "register_server", json.dumps({"location": ours}))
        assert [each.location for each in registry.overview.servers()] == [ours]
    server.shutdown()


@pytest.mark.slow
def test_a_heartbeat_of_a_million_shuffles_leaves_nothing(servers: Servers) -> None:
    names = [f"s{number}" for number in range(10**6)]
    body = json.dumps({"location": "grpc+tcp://127.0.0.1:1", "shuffles": names})
    answer = json.loads(ask(servers.metadata, MetadataAction.HEARTBEAT, body))
    assert answer == {"registered": False, "drop": names}


# Names that are no UTF-8, and answers that are too long


def unreadable(schema: pa.Schema) -> pa.Schema:
    """The same with a name ``abcd`` in it that no text can be."""
    written = schema.serialize().to_pybytes()
    assert written.count(b"abcd") == 1
    return pa.ipc.read_schema(pa.py_buffer(written.replace(b"abcd", b"ab\xffd")))


UNREADABLE = {
    "column": unreadable(pa.schema({"abcd": pa.int8()})),
    "field": unreadable(pa.schema({"a": pa.struct({"abcd": pa.int8()})})),
}


@pytest.mark.parametrize("schema", UNREADABLE.values(), ids=UNREADABLE)
def test_a_schema_with_a_name_that_is_no_text_is_not_committed(
    schema: pa.Schema, servers: Servers
) -> None:
    with flight.FlightClient(servers.metadata) as client:
        servers.cluster.create_shuffle(SHUFFLE, partitions=3)
        with pytest.raises(ProtocolError, match="utf-8"):
            act(client, "commit_map", commit(schema=schema.serialize().to_pybytes()))
        act(client, "commit_map", commit())


@pytest.mark.parametrize("schema", UNREADABLE.values(), ids=UNREADABLE)
def test_a_column_with_a_name_that_is_no_text_is_not_put(
    schema: pa.Schema, servers: Servers
) -> None:
    column = pa.nulls(1, schema.types[0])
    batch = pa.RecordBatch.from_arrays([column], schema=schema)
    descriptor = flight.FlightDescriptor.for_path(SHUFFLE, "0", "0", "0")
    with flight.FlightClient(servers.data) as client:
        servers.cluster.create_shuffle(SHUFFLE, partitions=3)
        with pytest.raises(ProtocolError, match="utf-8"):
            Put(descriptor, schema, [(batch, None)]).send(client)


def test_an_error_about_something_long_is_answered(servers: Servers) -> None:
    with flight.FlightClient(servers.metadata) as client:
        servers.cluster.create_shuffle(SHUFFLE, partitions=3)
        act(client, "commit_map", commit(schema=named("x" * 100_000)))
        with refused(SchemaMismatchError):
            act(client, "commit_map", commit(map_id=1))


@pytest.mark.parametrize("location", ["", "nowhere", "http://127.0.0.1:5005", "grpc+tcp://\0:1"])
def test_what_is_no_location_is_not_registered(location: str, servers: Servers) -> None:
    """Every flight-info of a shuffle that is placed there would fail."""
    with flight.FlightClient(servers.metadata) as client:
        with pytest.raises(ProtocolError, match="is not a location"):
            act(client, "register_server", json.dumps({"location": location}))
        assert [server.location for server in servers.cluster.status().servers] == [servers.data]
