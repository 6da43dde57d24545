"""The work of the two Arrow prototypes on record batches (section 3.2).

The shuffle writes as soon as a batch has been split, and the reduce counts dictionary-encoded keys:
these are the two improvements of that section. Hashing and counting are done in Python, key by key.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
from pyarrow import ipc

from experiments.thesis.md5 import partition_of
from experiments.thesis.step import WEIGHTS

BATCH_ROWS = 8196  # section 4.3
SCHEMA = pa.schema([("url", pa.string()), ("weight", pa.int32())])


def map_file(source: Path, mapped: Path) -> None:
    """Read a csv file row by row into an Arrow IPC file of weighed batches."""
    with source.open(newline="") as visits, ipc.new_file(str(mapped), SCHEMA) as out:
        rows = csv.reader(visits)
        next(rows)
        while batch := list(islice(rows, BATCH_ROWS)):
            keys = [url for url, _ in batch]
            weights = [WEIGHTS[visitor] for _, visitor in batch]
            arrays = [pa.array(keys, pa.string()), pa.array(weights, pa.int32())]
            out.write_batch(pa.record_batch(arrays, schema=SCHEMA))


def read_file(path: Path) -> Iterator[pa.RecordBatch]:
    """Return the batches of an IPC file, which is mapped into memory."""
    with pa.memory_map(str(path)) as source, ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def split(batch: pa.RecordBatch, partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows of ``batch`` by partition, without partitions that get none."""
    indices: list[list[int]] = [[] for _ in range(partitions)]
    for index, key in enumerate(batch.column(0).to_pylist()):
        indices[partition_of(key, partitions)].append(index)
    for partition, rows in enumerate(indices):
        if rows:
            yield partition, batch.take(pa.array(rows, pa.int32()))


def count(keys: pa.Array, weights: Iterable[int]) -> tuple[pa.Array, list[int]]:
    """Return each key once, with the sum of its weights."""
    encoded = keys.dictionary_encode()
    sums = [0] * len(encoded.dictionary)
    for index, weight in zip(encoded.indices.to_pylist(), weights, strict=True):
        sums[index] += weight
    return encoded.dictionary, sums


def reduce_batches(batches: Iterable[pa.RecordBatch], reduced: Path) -> None:
    """Sum per batch, and then over the sums of all batches, and write the result to a csv file."""
    partial_keys = [pa.array([], pa.string())]
    partial_sums: list[int] = []
    for batch in batches:
        keys, sums = count(batch.column(0), batch.column(1).to_pylist())
        partial_keys.append(keys)
        partial_sums += sums
    keys, sums = count(pa.concat_arrays(partial_keys), partial_sums)
    clicks = pa.table({"url": keys, "clicks": pa.array(sums, pa.int64())})
    pacsv.write_csv(clicks, str(reduced))
