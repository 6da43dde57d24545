"""The exchange of the thesis, by clients that know Arrow Flight but not mrflight."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import ProtocolError
from mrflight.shuffle.wire.flight_errors import from_flight
from tests.support.clusters.numbered_rows import batch


def call(metadata: flight.FlightClient, action: str, **request: Any) -> Any:
    """Return the answer to an action."""
    (answer,) = metadata.do_action((action, json.dumps(request).encode()))
    return json.loads(answer.body.to_pybytes())


def put(target: Mapping[str, str], map_id: int, rows: pa.RecordBatch) -> None:
    """Send rows to the partition of a target, as the first attempt of a map."""
    with flight.FlightClient(target["location"]) as data:
        descriptor = flight.FlightDescriptor.for_path(target["descriptor"], str(map_id), "0")
        writer, _ = data.do_put(descriptor, rows.schema)
        writer.write_batch(rows)
        writer.done_writing()
        writer.close()


def commit(
    metadata: flight.FlightClient, shuffle: str, map_id: int, schema: pa.Schema, rows: list[int]
) -> Any:
    """Commit the first attempt of a map, and return the attempt that won."""
    return call(
        metadata,
        "commit_map",
        id=shuffle,
        map_id=map_id,
        attempt=0,
        schema=base64.b64encode(schema.serialize()).decode(),
        rows=rows,
        size_bytes=[1] * len(rows),
    )


def test_a_plain_flight_client_speaks_the_thesis_exchange(cluster: mrflight.Cluster) -> None:
    """Listings 3.1 and 3.2: put_shuffle, DoPut per partition, flight-info, DoGet."""
    with flight.FlightClient(cluster.location) as metadata:
        targets = call(metadata, "put_shuffle", id="thesis", reducers=6)["partitions"]
        assert [target["descriptor"] for target in targets] == [f"thesis/{p}" for p in range(6)]
        per_server = {target["location"] for target in targets}
        assert len(per_server) == 3
        for partition, target in enumerate(targets):
            put(target, 7, batch(partition * 10, 10))
        won = commit(metadata, "thesis", 7, batch(0).schema, [10] * 6)
        assert won == {"attempt": 0, "writer": ""}
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("thesis"))
    assert info.total_records == 60
    assert info.schema == batch(0).schema
    for partition, endpoint in enumerate(info.endpoints):
        assert endpoint.ticket.ticket.startswith(f"thesis/{partition}".encode())
        with flight.FlightClient(endpoint.locations[0]) as data:
            table = data.do_get(endpoint.ticket).read_all()
        assert table["n"].to_pylist() == list(range(partition * 10, partition * 10 + 10))
    cluster.open_shuffle("thesis").drop()


PLAIN = pa.schema([("word", pa.string())])


@pytest.mark.parametrize(
    "column",
    [
        pa.field("word", pa.string(), nullable=False),
        pa.field("word", pa.large_string()),
        pa.field("word", pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=["without nulls", "large", "dictionary"],
)
def test_rows_of_any_layout_are_read_in_the_canonical_one(
    cluster: mrflight.Cluster, column: pa.Field
) -> None:
    """Two maps send the column in two layouts, which the readers do not see."""
    with flight.FlightClient(cluster.location) as metadata:
        (target,) = call(metadata, "put_shuffle", id="layouts", reducers=1)["partitions"]
        for map_id, schema in enumerate([pa.schema([column]), PLAIN]):
            values = pa.array(["a"], schema[0].type)
            put(target, map_id, pa.RecordBatch.from_arrays([values], schema=schema))
            commit(metadata, "layouts", map_id, schema, [1])
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("layouts"))
    (endpoint,) = info.endpoints
    with flight.FlightClient(target["location"]) as data:
        table = data.do_get(endpoint.ticket).read_all()
    assert table == pa.table({"word": ["a", "a"]}, PLAIN)
    cluster.open_shuffle("layouts").drop()


def test_our_writers_rows_are_read_by_a_plain_client(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("plain", partitions=2)
    with shuffle.writer(0, key=["url"], compression="lz4") as out:
        out.write(batch(0))
    seen: list[int] = []
    with flight.FlightClient(cluster.location) as metadata:
        info = metadata.get_flight_info(flight.FlightDescriptor.for_path("plain"))
    for endpoint in info.endpoints:
        with flight.FlightClient(endpoint.locations[0]) as data:
            seen += data.do_get(endpoint.ticket).read_all()["n"].to_pylist()
    assert sorted(seen) == list(range(1_000))
    shuffle.drop()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_rows_are_refused(cluster: mrflight.Cluster, codec: str) -> None:
    """They may inflate without a limit."""
    shuffle = cluster.create_shuffle("compressed", partitions=1)
    ((location,),) = shuffle.placement()
    options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression=codec))
    descriptor = flight.FlightDescriptor.for_path("compressed", "0", "0", "0")
    with flight.FlightClient(location) as data:
        writer, _ = data.do_put(descriptor, batch(0).schema, options)
        writer.write_batch(batch(0))
        writer.done_writing()
        with pytest.raises(ProtocolError, match="--compressed-puts"), from_flight(location, "put"):
            writer.close()
    shuffle.drop()
