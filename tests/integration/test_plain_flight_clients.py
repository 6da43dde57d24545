"""The exchange of the thesis, by clients that know Arrow Flight but not mrflight."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from tests.support.numbered_rows import batch


def test_a_plain_flight_client_speaks_the_thesis_exchange(cluster: mrflight.Cluster) -> None:
    """Listings 3.1 and 3.2: put_shuffle, DoPut per partition, flight-info, DoGet."""
    with flight.FlightClient(cluster.location) as metadata:
        request = json.dumps({"id": "thesis", "reducers": 6}).encode()
        (answer,) = metadata.do_action(("put_shuffle", request))
        targets = json.loads(answer.body.to_pybytes())["partitions"]
        assert [target["descriptor"] for target in targets] == [f"thesis/{p}" for p in range(6)]
        per_server = {target["location"] for target in targets}
        assert len(per_server) == 3
        sizes = []
        for partition, target in enumerate(targets):
            with flight.FlightClient(target["location"]) as data:
                descriptor = flight.FlightDescriptor.for_path(target["descriptor"], "7", "0")
                rows = batch(partition * 10, 10)
                writer, _ = data.do_put(descriptor, rows.schema)
                writer.write_batch(rows)
                writer.done_writing()
                writer.close()
            sizes.append(10)
        schema = list(batch(0).schema.serialize().to_pybytes())
        commit = {
            "id": "thesis",
            "map_id": 7,
            "attempt": 0,
            "schema": base64.b64encode(bytes(schema)).decode(),
            "rows": sizes,
            "size_bytes": [1] * 6,
        }
        (answer,) = metadata.do_action(("commit_map", json.dumps(commit).encode()))
        assert json.loads(answer.body.to_pybytes()) == {"attempt": 0, "writer": ""}
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
        request = json.dumps({"id": "layouts", "reducers": 1}).encode()
        (answer,) = metadata.do_action(("put_shuffle", request))
        (target,) = json.loads(answer.body.to_pybytes())["partitions"]
        with flight.FlightClient(target["location"]) as data:
            for map_id, schema in enumerate([pa.schema([column]), PLAIN]):
                descriptor = flight.FlightDescriptor.for_path("layouts/0", str(map_id), "0")
                writer, _ = data.do_put(descriptor, schema)
                writer.write_batch(pa.record_batch([pa.array(["a"], schema[0].type)], schema))
                writer.done_writing()
                writer.close()
                commit = {
                    "id": "layouts",
                    "map_id": map_id,
                    "attempt": 0,
                    "schema": base64.b64encode(schema.serialize()).decode(),
                    "rows": [1],
                    "size_bytes": [1],
                }
                list(metadata.do_action(("commit_map", json.dumps(commit).encode())))
            (endpoint,) = metadata.get_flight_info(
                flight.FlightDescriptor.for_path("layouts")
            ).endpoints
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
