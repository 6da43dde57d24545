"""How rows are best carried: blocks as bytes or as record batches, of which size, over what.

    python -m experiments.transport [--rows N] [--rounds N]

One client, one data server in a process of its own. ``batches`` is plain
Flight, as a raw loopback would be measured; ``blocks`` is what mrflight does:
each block an IPC stream of its own, encoded before the put and decoded after
the get, both counted. Rates are MB of Arrow data per second, the best of the
rounds, which go through all forms in turn.

The last table is what a block's checksum costs where the block is encoded and
decoded: microseconds of both together, and of the two hashes among them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import flight

from mrflight.shuffle.wire.block import (
    WIRE_SCHEMA,
    Block,
    BlockTag,
    check_hash,
    decode_block,
    encode_block,
    from_wire,
    ipc_options,
    to_wire,
)

BLOCK_ROWS = (625, 2_500, 10_000, 40_000, 160_000)  # of 26 bytes: 16 KiB to 4 MiB
OPTIONS = ipc_options("none")
NO_TAG = bytes(len(BlockTag(0, 0, 0).encode()))


class _Echo(flight.FlightServerBase):
    """Keeps what is put and gives it back."""

    def __init__(self, location: str) -> None:
        self._kept: list[tuple[pa.RecordBatch, pa.Buffer]] = []
        super().__init__(location)

    def do_put(self, context, descriptor, reader, writer) -> None:
        self._kept = [(message.data, message.app_metadata) for message in reader]

    def do_get(self, context, ticket) -> flight.GeneratorStream:
        return flight.GeneratorStream(self._kept[0][0].schema, iter(self._kept))


def serve(location: str) -> None:
    server = _Echo(location)
    print(f"grpc+tcp://127.0.0.1:{server.port}" if "tcp" in location else location, flush=True)
    sys.stdin.read()
    server.shutdown()


@contextmanager
def echo(location: str) -> Iterator[flight.FlightClient]:
    """A client of a server process that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.transport", "--serve", location],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        with flight.FlightClient(process.stdout.readline().strip()) as client:
            yield client
    finally:
        process.communicate()


def clicks(rows: int) -> pa.RecordBatch:
    """Rows as the clicks job shuffles them: an 18-byte key and an int32."""
    digits = np.char.zfill(np.arange(rows).astype("U"), 9)
    urls = np.char.add(np.char.add("www.s", digits), ".com")
    return pa.record_batch({"url": pa.array(urls), "weight": pa.array(np.ones(rows, np.int32))})


def as_batch(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, bytes]:
    return batch, NO_TAG


def as_block(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, bytes]:
    block = encode_block([batch], OPTIONS)
    return to_wire(block), BlockTag(0, block.rows, block.xxh3).encode()


def from_block(message: flight.FlightStreamChunk) -> pa.RecordBatch:
    return decode_block(from_wire(message.data, BlockTag.decode(message.app_metadata)))


def measure(
    client: flight.FlightClient, slices: list[pa.RecordBatch], blocks: bool
) -> tuple[float, float]:
    """Seconds of a put and of a get."""
    encode = as_block if blocks else as_batch
    started = time.perf_counter()
    schema = WIRE_SCHEMA if blocks else slices[0].schema
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("x"), schema)
    for piece in slices:
        writer.write_with_metadata(*encode(piece))
    writer.done_writing()
    writer.close()
    put = time.perf_counter()
    rows = 0
    for message in client.do_get(flight.Ticket(b"x")):
        batch = from_block(message) if blocks else message.data
        rows += batch.num_rows
    assert rows == sum(piece.num_rows for piece in slices)
    return put - started, time.perf_counter() - put


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    base = clicks(min(options.rows, 800_000))
    repeats = max(1, options.rows // base.num_rows)
    print(f"{'over':6}{'form':9}{'block':>10}{'put MB/s':>10}{'get MB/s':>10}")
    with tempfile.TemporaryDirectory() as folder:
        locations = {
            "unix": f"grpc+unix://{Path(folder) / 's.sock'}",
            "tcp": "grpc+tcp://127.0.0.1:0",
        }
        for over, location in locations.items():
            with echo(location) as client:
                report(client, over, base, repeats, options.rounds)
    report_checksums(base, options.rounds)


def report(
    client: flight.FlightClient, over: str, base: pa.RecordBatch, repeats: int, rounds: int
) -> None:
    forms = [(blocks, rows) for rows in BLOCK_ROWS for blocks in (False, True)]
    best = dict.fromkeys(forms, (float("inf"), float("inf")))
    for _ in range(rounds):
        for blocks, rows in forms:
            slices = [base.slice(i, rows) for i in range(0, base.num_rows, rows)] * repeats
            put, get = measure(client, slices, blocks)
            best[blocks, rows] = (min(best[blocks, rows][0], put), min(best[blocks, rows][1], get))
    megabytes = base.nbytes * repeats / 1e6
    for (blocks, rows), (put, get) in best.items():
        size = f"{base.nbytes * rows / base.num_rows / 1024:.0f} KiB"
        form = "blocks" if blocks else "batches"
        print(f"{over:6}{form:9}{size:>10}{megabytes / put:10.0f}{megabytes / get:10.0f}")


def report_checksums(base: pa.RecordBatch, rounds: int) -> None:
    print(f"\n{'block':>10}{'encode and decode, us':>24}{'hashes, us':>12}{'share':>8}")
    for rows in BLOCK_ROWS:
        pieces = [base.slice(i, rows) for i in range(0, base.num_rows, rows)]
        timed = [checksum_seconds(pieces) for _ in range(rounds)]
        both, hashes = (min(column) / len(pieces) * 1e6 for column in zip(*timed, strict=True))
        size = f"{base.nbytes * rows / base.num_rows / 1024:.0f} KiB"
        print(f"{size:>10}{both:24.1f}{hashes:12.2f}{hashes / both:8.1%}")


def checksum_seconds(pieces: list[pa.RecordBatch]) -> tuple[float, float]:
    """Return the seconds to encode and decode all pieces, and to hash and check their bytes."""
    both = hashes = 0.0
    for piece in pieces:
        started = time.perf_counter()
        block = encode_block([piece], OPTIONS)
        decode_block(block)
        ended = time.perf_counter()
        check_hash(Block.of(block.rows, block.body))
        both += ended - started
        hashes += time.perf_counter() - ended
    return both, hashes


if __name__ == "__main__":
    main()
