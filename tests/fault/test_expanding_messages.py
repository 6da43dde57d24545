"""Messages of a few KB that decode to hundreds of MB: a server stays within its memory."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import ProtocolError
from mrflight.shuffle.wire.flight_errors import from_flight
from tests.support.clusters.cluster import data_server, standing_cluster
from tests.support.suite.messages import refused

MIB = 2**20
MEMORY = 16 * MIB
BEYOND = 150 * MIB
"""The bytes that messages in flight, malloc and gRPC may hold in addition."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@dataclass(frozen=True)
class Server:
    """A data server of a cluster with one shuffle of one partition, ``grown``."""

    metadata: str
    location: str
    pid: int

    def peak(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return int(kib) * 1024

    def put(self, batch: pa.RecordBatch) -> dict[str, int]:
        """Return what the server reports as stored of a message sent as attempt 0 of map 0."""
        descriptor = flight.FlightDescriptor.for_path("grown", "0", "0", "0")
        with flight.FlightClient(self.location) as client:
            writer, reader = client.do_put(descriptor, batch.schema)
            with from_flight(self.location, "put"):
                writer.write_batch(batch)
                writer.done_writing()
                receipt = reader.read()  # None where the put failed, which closing it tells
                writer.close()
        stored: dict[str, int] = json.loads(receipt.to_pybytes())
        return stored

    def commit(self, rows: int, schema: pa.Schema) -> None:
        encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
        body = {"id": "grown", "map_id": 0, "attempt": 0, "schema": encoded}
        counts = {"rows": [rows], "size_bytes": [rows]}
        with flight.FlightClient(self.metadata) as client:
            list(client.do_action(("commit_map", json.dumps({**body, **counts}).encode())))

    def batches(self) -> Iterator[pa.RecordBatch]:
        with flight.FlightClient(self.metadata) as client:
            path = flight.FlightDescriptor.for_path("grown", "0")
            (endpoint,) = client.get_flight_info(path).endpoints
        with flight.FlightClient(self.location) as client:
            for piece in client.do_get(endpoint.ticket):
                yield piece.data


@contextmanager
def small_server(spill_dir: Path) -> Iterator[Server]:
    options = ("--memory", MEMORY, "--spill-dir", spill_dir)
    with (
        standing_cluster(data_servers=0) as standing,
        data_server(standing.metadata, *options, is_warm=False) as (process, ready),
        mrflight.connect(standing.metadata) as cluster,
    ):
        shuffle = cluster.create_shuffle("grown", partitions=1)
        try:
            yield Server(standing.metadata, ready.split()[-1], process.pid)
        finally:
            shuffle.drop()  # or the server would wait for one to move it to


def sent_bytes(batch: pa.RecordBatch) -> int:
    with pa.BufferOutputStream() as out:
        with pa.ipc.new_stream(out, batch.schema) as stream:
            stream.write_batch(batch)
        return int(out.getvalue().size)


def test_a_run_of_many_rows(tmp_path: Path) -> None:
    rows = 40_000_000
    column = pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([7]))
    batch = pa.RecordBatch.from_arrays([column], ["n"])
    assert sent_bytes(batch) < 2_000
    with small_server(tmp_path) as server:
        before = server.peak()
        receipt = server.put(batch)
        assert receipt["rows"] == rows
        assert receipt["blocks"] > 10
        server.commit(rows, pa.schema({"n": pa.int64()}))
        found = 0
        for piece in server.batches():
            assert piece.column("n").unique().to_pylist() == [7]
            found += piece.num_rows
        assert found == rows
        assert server.peak() - before < MEMORY + BEYOND


def test_a_dictionary_of_one_wide_value(tmp_path: Path) -> None:
    rows, wide = 200, 10**6
    column = pa.DictionaryArray.from_arrays(pa.array([0, None] * (rows // 2)), ["x" * wide])
    more = pa.DictionaryArray.from_arrays(pa.array([0] * rows), ["y" * wide])
    batch = pa.record_batch({"n": pa.array(range(rows)), "a": column, "b": more})
    assert sent_bytes(batch) < 3 * wide
    with small_server(tmp_path) as server:
        before = server.peak()
        assert server.put(batch)["rows"] == rows
        schema = pa.schema({"n": pa.int64(), "a": pa.string(), "b": pa.string()})
        server.commit(rows, schema)
        numbers = []
        for piece in server.batches():
            for row in piece.to_pylist():
                numbers.append(row["n"])
                assert row["a"] == (None if row["n"] % 2 else "x" * wide)
                assert row["b"] == "y" * wide
        assert numbers == list(range(rows))
        assert server.peak() - before < MEMORY + BEYOND


def test_one_row_of_many_values_is_refused(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000), ["x" * 10**6])
    column = pa.ListArray.from_arrays(pa.array([0, 1_000], pa.int32()), values)
    with small_server(tmp_path) as server:
        before = server.peak()
        with refused(ProtocolError):
            server.put(pa.record_batch({"a": column}))
        assert server.put(pa.record_batch({"a": [["x"]]})) == {"blocks": 1, "rows": 1}
        assert server.peak() - before < MEMORY + BEYOND
