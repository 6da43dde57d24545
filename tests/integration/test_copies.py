"""The bytes that are copied for each byte of rows, from a writer to a reducer, are counted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mrflight.config.transport import Transport
from tests.support.clusters.cluster import StandingCluster, standing_cluster
from tests.support.commands.copied_bytes import CopiedBytes, counting
from tests.support.commands.scripts import running_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD, and memfd")

PARTITIONS = 20
ROW_BYTES = 64 * 2**20

CLIENT = """
import os, sys
import numpy as np
import pyarrow as pa
import mrflight
from mrflight.shuffle.wire.encoder import WireEncoder

moved = 0
encode = WireEncoder.block

def count(self, rows):
    # Rows that do not lie in a batch that was given to the writer have been copied.
    global moved
    moved += sum(
        column.nbytes for column in rows.columns
        if not any(first <= column.buffers()[1].address < end for first, end in inputs)
    )
    return encode(self, rows)

WireEncoder.block = count

metadata, transport, partitions, row_bytes = sys.argv[1:]
random = np.random.default_rng(1)
rows = int(row_bytes) // 64 // 16
batches = [
    pa.record_batch({f"c{n}": random.integers(-2**62, 2**62, rows) for n in range(8)})
    for _ in range(16)
]
values = [column.buffers()[1] for batch in batches for column in batch.columns]
inputs = [(each.address, each.address + each.size) for each in values]
with mrflight.connect(metadata, transport=transport) as cluster:
    shuffle = cluster.create_shuffle("copies", int(partitions))
    with shuffle.writer(0, key=["c0"]) as warm:  # modules are loaded, and connections opened
        warm.write(batches[0].slice(0, 100))
    found = sum(batch.num_rows for p in range(int(partitions)) for batch in shuffle.reader(p))
    assert found == 100
    moved = 0
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    with shuffle.writer(1, key=["c0"]) as out:
        for batch in batches:
            out.write(batch)
    print(moved, flush=True)
    sys.stdin.readline()
    found = sum(batch.num_rows for p in range(int(partitions)) for batch in shuffle.reader(p))
    assert found == 100 + 16 * rows
    print("read", flush=True)
    sys.stdin.readline()
    shuffle.drop()
print("dropped", flush=True)
"""


MOST: dict[Transport, dict[str, CopiedBytes]] = {
    "shared": {
        # A third of a partition's rows move once when its buffers grow. A block is encoded, and
        # its segment filled.
        "writer": CopiedBytes(1.4, written=1.0),
        # It maps the segments, and keeps blocks as they lie.
        "server of the writer": CopiedBytes(),
        "server of the reader": CopiedBytes(),
        # It maps the segments, and decodes rows where they lie.
        "reader": CopiedBytes(),
    },
    "flight": {
        # The buffers grow, and a block is encoded. It is sent as it lies.
        "writer": CopiedBytes(1.4, sent=1.0),
        # gRPC gives pieces, of which Flight makes one buffer. It is kept as it lies.
        "server of the writer": CopiedBytes(1.0, received=1.0),
        "server of the reader": CopiedBytes(sent=1.0),
        # Flight makes one buffer, and as that is not aligned, `decode_block` copies it.
        "reader": CopiedBytes(2.0, received=1.0),
    },
}
"""The copies of each byte of rows, besides the one that puts it into its partition's buffer."""

SLACK = 0.05
"""Headers, padding, and what interpreters do."""

PARTITIONED = 1.0


@dataclass(frozen=True)
class Counting:
    """A cluster of one data server that counts, and where."""

    cluster: StandingCluster
    folder: Path

    def counts(self, client: int) -> tuple[CopiedBytes, CopiedBytes]:
        (server,) = self.cluster.data_processes
        return CopiedBytes.of(self.folder, client), CopiedBytes.of(self.folder, server.pid)


@pytest.fixture(scope="module")
def counting_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    folder = tmp_path_factory.mktemp("copies")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in counting(folder).items():
            patch.setenv(name, value)
        with standing_cluster(data_servers=1) as cluster:
            yield Counting(cluster, folder)


def copies_of(cluster: Counting, transport: Transport) -> tuple[float, dict[str, CopiedBytes]]:
    """Write rows and read them; return how often each byte was copied, by whom and how.

    The first is the copy into the partitions' buffers. The kernel copies there in a loop of its
    own, which calls no memcpy, so the test compares the addresses of the rows before and after.
    """
    words = (cluster.cluster.metadata, transport, PARTITIONS, ROW_BYTES)
    with running_script(CLIENT, *words) as client:
        pid = int(client.read_line())
        before = cluster.counts(pid)
        partitioned = int(client.ask())
        written = cluster.counts(pid)
        assert client.ask() == "read"
        read = cluster.counts(pid)
        assert client.ask() == "dropped"
    counted = {
        "writer": written[0].since(before[0]),
        "server of the writer": written[1].since(before[1]),
        "server of the reader": read[1].since(written[1]),
        "reader": read[0].since(written[0]),
    }
    return partitioned / ROW_BYTES, {who: each / ROW_BYTES for who, each in counted.items()}


@pytest.mark.slow
@pytest.mark.usefixtures("needs_kernel")
def test_shared_memory_saves_six_of_nine_copies(counting_cluster: Counting) -> None:
    total: dict[str, float] = {}
    for transport, most in MOST.items():
        partitioned, found = copies_of(counting_cluster, transport)
        assert partitioned == pytest.approx(PARTITIONED, abs=SLACK)
        for who, counted in found.items():
            pairs = zip(counted, most[who], strict=True)
            assert all(number <= bound + SLACK for number, bound in pairs), (who, counted)
        total[transport] = partitioned + sum(map(sum, found.values()))
    assert total["shared"] < 3.5, total  # 3.29 were measured
    assert total["flight"] - total["shared"] > 5.8, total  # 9.29 were measured
