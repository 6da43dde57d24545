"""Messages of a few KB that decode to hundreds of MB: a server stays within its memory."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import ProtocolError
from mrflight.shuffle.wire.block import (
    WIRE_SCHEMA,
    Block,
    BlockTag,
    encode_block,
    ipc_options,
    to_wire,
)
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.tickets import BlockStream
from tests.support.clusters.cluster import data_server, standing_cluster
from tests.support.faults.inflating import SCHEMA, inflating_batch, inflating_stream
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

    def put_block(self, block: Block, compression: str | None = None) -> None:
        """Put a block as attempt 0 of map 0."""
        descriptor = flight.FlightDescriptor.for_command(BlockStream("grown", 0, 0).encode())
        written = pa.ipc.IpcWriteOptions(compression=compression)
        options = flight.FlightCallOptions(write_options=written)
        with flight.FlightClient(self.location) as client, from_flight(self.location, "put"):
            writer, _ = client.do_put(descriptor, WIRE_SCHEMA, options)
            tag = BlockTag(0, block.rows, block.xxh3).encode()
            writer.write_with_metadata(to_wire(block), tag)
            writer.close()

    def held_bytes(self) -> int:
        """Return the memory that the server counts."""
        with mrflight.connect(self.metadata) as cluster:
            return cluster.stats(self.location).memory_bytes

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


# Blocks, which a server stores without a look inside


def encoded_as(kind: str, column: pa.Array) -> Block:
    """Return a block whose column says that it is the encoding of a type."""
    field = pa.field("n", column.type, metadata={"mrflight": kind})
    batch = pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))
    return encode_block([batch], ipc_options("zstd"))


def zeros(rows: int, kind: pa.DataType) -> pa.Array:
    size = rows * kind.bit_width // 8
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(bytes(size))])


LARGE: dict[str, Callable[[], Block]] = {
    "compressed": lambda: encode_block([inflating_batch(2**25)], ipc_options("zstd")),
    "hidden by one plain buffer": lambda: Block.of(2**25, inflating_stream(2**25)),
    "a dictionary": lambda: encode_block(
        [pa.record_batch({"n": pa.DictionaryArray.from_arrays([0], ["x" * 2**27])})],
        ipc_options("lz4"),
    ),
    "narrow decimals": lambda: encoded_as("decimal128(18, 2)", zeros(2**23, pa.int8())),
    "narrow codes": lambda: encoded_as(
        "string", pa.DictionaryArray.from_arrays(zeros(2**24, pa.uint8()), ["x"])
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_block_that_inflates_too_far_is_not_read_as_rows(name: str, tmp_path: Path) -> None:
    block = LARGE[name]()
    assert block.body.size < MIB
    with small_server(tmp_path) as server:
        server.put_block(block)
        server.commit(block.rows, pa.schema({"n": pa.int64()}))
        before = server.peak()
        for _ in range(2):
            with refused(ProtocolError), from_flight(server.location, "read"):
                next(server.batches())
        assert server.peak() - before < MEMORY


def test_blocks_that_are_read_at_the_same_time_share_the_memory(tmp_path: Path) -> None:
    """Each inflates to 48 MiB, and all together to four times what may be held."""
    rows, readers = 2**22, 12
    block = encode_block([inflating_batch(rows)], ipc_options("zstd"))
    with small_server(tmp_path) as server:
        server.put_block(block)
        server.commit(rows, SCHEMA)
        held, before = server.held_bytes(), server.peak()
        first = server.batches()
        begun = next(first)  # and holds the block until it has taken all of it
        with ThreadPoolExecutor(readers) as pool:
            counts = [
                pool.submit(lambda: sum(piece.num_rows for piece in server.batches()))
                for _ in range(readers)
            ]
            assert begun.num_rows + sum(piece.num_rows for piece in first) == rows
            assert [each.result() for each in counts] == [rows] * readers
        assert server.peak() - before < MEMORY + BEYOND
        assert server.held_bytes() == held


def test_a_block_of_a_dictionary_is_decoded_a_slice_at_a_time(tmp_path: Path) -> None:
    rows, wide = 900, 10**6
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1] * (rows // 3)), ["x" * wide, "y"])
    block = encode_block([pa.record_batch({"n": column})], ipc_options("none"))
    with small_server(tmp_path) as server:
        server.put_block(block)
        server.commit(rows, pa.schema({"n": pa.string()}))
        before = server.peak()
        lengths = [
            None if value is None else len(value)
            for piece in server.batches()
            for value in piece.column("n").to_pylist()
        ]
        assert lengths == [wide, None, 1] * (rows // 3)
        assert server.peak() - before < MEMORY + BEYOND


def test_a_message_of_blocks_is_not_compressed(tmp_path: Path) -> None:
    block = encode_block([inflating_batch(2**20)], ipc_options("none"))
    with small_server(tmp_path) as server:
        with refused(ProtocolError):
            server.put_block(block, compression="zstd")
        assert server.held_bytes() == 0
