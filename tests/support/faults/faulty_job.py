"""A job that stops at places of its functions: its input, its files and its result."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
from deltalake import write_deltalake

from mrflight import partition_ids
from tests.support.commands.driver import write_job
from tests.support.faults import faulty_functions
from tests.support.faults.faulty_functions import MAPS, PARTITIONS

FILES = MAPS
"""Each is a map. With two workers, when map 4 has begun and map 3 has not ended, 0 to 2 are done
and none is left to begin: so what a fault costs does not depend on who is faster."""

BATCHES = 5
ROWS = 2_000
"""The rows of a batch."""

BEFORE = (-1, -1, -1)
"""The row that the table has already."""

SPECULATES = ("job.speculation=true",)
WATCHED = ("cluster.heartbeat_timeout=4 s",)
"""Without these options no clock decides what a job does: tasks notice what is lost, and nobody
else; no server is ended as it does not answer, and no task gets a second attempt beside the first.
"""

JOB = """
[job]
name = "faulty"
run_id = "one"
speculation = false
events = "events"
[inputs.rows]
path = "in/*.arrow"
map = "functions:{map}"
key = ["k"]
[shuffle]
partitions = {partitions}
[reduce]
{reduce}
[output]
table = "out"
mode = "append"
[cluster]
workers = 2
data_servers = 4
heartbeat_timeout = "10 min"
"""

AGGREGATE = 'group_by = ["k"]\naggregate = { v = "sum(v)", n = "sum(n)" }'
FUNCTION = 'function = "functions:total"'


def write_faulty_job(folder: Path, map_function: str = "narrow", reduce: str = FUNCTION) -> Path:
    """Write the job, its input and its functions, and a table that it appends to."""
    (folder / "in").mkdir()
    for number in range(FILES):
        with pa.ipc.new_file(folder / "in" / f"{number}.arrow", batch_of(0, 0).schema) as file:
            for part in range(BATCHES):
                file.write_batch(batch_of(number, part))
    before = pa.table([[value] for value in BEFORE], pa.schema(dict.fromkeys("kvn", pa.int64())))
    write_deltalake(folder / "out", before)
    (folder / "places").mkdir()
    shutil.copy(faulty_functions.__file__, folder / "functions.py")
    text = JOB.format(map=map_function, reduce=reduce, partitions=PARTITIONS)
    return write_job(folder, text)


def batch_of(file: int, part: int) -> pa.RecordBatch:
    """Return one of the input's batches; ``v`` differs in every row of all of them."""
    start = (file * BATCHES + part) * ROWS
    numbers = range(start, start + ROWS)
    return pa.record_batch(
        {
            "file": pa.repeat(pa.scalar(file, pa.int64()), ROWS),
            "part": pa.repeat(pa.scalar(part, pa.int64()), ROWS),
            "k": pa.array([key_of(number) for number in numbers], pa.int64()),
            "v": pa.array([value_of(number) for number in numbers], pa.int64()),
            "n": pa.repeat(pa.scalar(1, pa.int64()), ROWS),
        }
    )


def key_of(row: int) -> int:
    keys = _keys()
    return keys[row % len(keys)]


@cache
def _keys() -> list[int]:
    """Return keys such that partition 0 is the largest and is reduced first, and so on."""
    numbers = pa.record_batch({"k": pa.array(range(2_000), pa.int64())})
    by_partition: dict[int, list[int]] = {}
    for key, partition in enumerate(partition_ids(numbers, ["k"], PARTITIONS).to_pylist()):
        by_partition.setdefault(partition, []).append(key)
    return sorted(key for p, keys in by_partition.items() for key in keys[: 120 - 6 * p])


def value_of(row: int) -> int:
    """Return a value whose 8 bytes occur nowhere else by chance, and are found quickly."""
    return 0x0001_5EED_5EED_0000 + row


OF_A_VALUE = value_of(0).to_bytes(8, "little")[2:]
"""The bytes that all values have in common in a block."""


def bytes_in(partition: int) -> bytes:
    """Return the bytes in a block of a value of map 0 in a partition."""
    keys = pa.record_batch({"k": pa.array(map(key_of, range(ROWS)), pa.int64())})
    row = partition_ids(keys, ["k"], PARTITIONS).to_pylist().index(partition)
    return value_of(row).to_bytes(8, "little")


def expected_rows() -> list[tuple[int, int, int]]:
    """The table after the job: `BEFORE`, then each key with the sum of ``v`` and its rows."""
    found: dict[int, tuple[int, int]] = {}
    for row in range(FILES * BATCHES * ROWS):
        total, count = found.get(key_of(row), (0, 0))
        found[key_of(row)] = (total + value_of(row), count + 1)
    return [BEFORE, *sorted((key, total, count) for key, (total, count) in found.items())]
