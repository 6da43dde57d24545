"""What a parquet part costs to write, by codec, dictionary, statistics and row group.

    python -m experiments.parquet_encoding [--rows 750000] [--rounds 9] [--json results.json]

Every variant is written and read back once per round, in turn, so that a slow
moment of the machine falls on all of them; medians of processor time are
reported, and the size. ``ours`` is what a reduce task writes for a Delta table,
from `mrflight.sinks.parts.parquet_encoder`, which has its constants from here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mrflight.sinks.parts.parquet_encoder import ParquetEncoder


@dataclass(frozen=True)
class Variant:
    """One way to write one table."""

    question: str
    data: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    """For `pyarrow.parquet.ParquetWriter`; without any, our own encoder writes."""
    row_group_rows: int = 1 << 18


@dataclass(frozen=True)
class Result:
    question: str
    data: str
    name: str
    write_ms: float
    write_ms_worst: float
    read_ms: float
    size_bytes: int


HEX = "0123456789abcdef"
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def strings(rows: int, distinct: int, alphabet: str = LETTERS) -> pa.Array:
    """``rows`` random strings of 18 characters, ``distinct`` different ones at most."""
    random = np.random.default_rng(1)
    characters = np.frombuffer(alphabet.encode(), np.uint8)
    words = characters[random.integers(0, len(alphabet), (distinct, 18))]
    picked = words if distinct >= rows else words[random.integers(0, distinct, rows)]
    fixed = pa.Array.from_buffers(pa.binary(18), rows, [None, pa.py_buffer(picked.tobytes())])
    return fixed.cast(pa.binary()).cast(pa.string())


def tables(rows: int) -> dict[str, pa.Table]:
    """The tables by name: a key with few to only different values, and an int64 beside it."""
    random = np.random.default_rng(7)
    counts = pa.array(random.integers(0, 100, rows))
    made = {
        f"{distinct}% distinct": pa.table(
            {"key": strings(rows, max(1, rows * distinct // 100)), "count": counts}
        )
        for distinct in (1, 10, 25, 50, 100)
    }
    wide = pa.array(random.integers(-(2**62), 2**62, rows))
    made["unique, wide int64"] = pa.table({"key": strings(rows, rows), "count": wide})
    for name, most in (("discounts", 11), ("prices", 10**7)):
        cents = pa.array(random.integers(0, most, rows)).cast(pa.decimal128(21, 2))
        made[name] = pa.table({"key": cents.cast(pa.decimal128(15, 2)), "count": counts})
    made["unique, hex"] = pa.table({"key": strings(rows, rows, HEX), "count": counts})
    return made


CODECS = {
    "none": {"compression": "none"},
    "snappy": {"compression": "snappy"},
    "lz4": {"compression": "lz4"},
    "zstd 1": {"compression": "zstd", "compression_level": 1},
    "zstd 3": {"compression": "zstd", "compression_level": 3},
}
DICTIONARIES = {"both": True, "key": ["key"], "count": ["count"], "neither": False}
UNIQUE = "100% distinct"


def variants() -> list[Variant]:
    """All that is compared, question by question."""
    zstd = CODECS["zstd 1"]
    plain = {**zstd, "use_dictionary": ["count"]}
    made = []
    for data in tables(100):
        for name, codec in CODECS.items():
            # A dictionary where it pays, so that the codecs get what they would get.
            dictionary = ["key", "count"] if data == "1% distinct" else ["count"]
            options = {**codec, "use_dictionary": dictionary}
            made.append(Variant("codec", data, name, options))
        for name, columns in DICTIONARIES.items():
            options = {**zstd, "use_dictionary": columns}
            made.append(Variant("dictionary", data, name, options))
        made.append(Variant("ours", data, "ours"))
    made += [
        Variant("statistics", UNIQUE, str(on), {**plain, "write_statistics": on})
        for on in (True, False)
    ]
    made += [
        Variant("decimal", data, name, {**options, "store_decimal_as_integer": name == "integer"})
        for data, options in (("discounts", zstd), ("prices", plain))
        for name in ("integer", "bytes")
    ]
    made += [
        Variant("row group", UNIQUE, f"{size} rows", plain, size)
        for size in (122_880, 1 << 18, 1 << 20)
    ]
    return made


def write(table: pa.Table, variant: Variant, path: Path) -> float:
    """Write the table row group by row group; the seconds it took."""
    size = variant.row_group_rows
    start = time.process_time()
    with pa.OSFile(str(path), "wb") as file:
        chunks = [table.slice(offset, size) for offset in range(0, table.num_rows, size)]
        if variant.options:
            writer = pq.ParquetWriter(file, table.schema, **variant.options)
        else:
            writer = ParquetEncoder(file, chunks[0], statistics_columns=32, codec="zstd")
        for chunk in chunks:
            writer.write(chunk)
        writer.close()
    return time.process_time() - start


def read(path: Path) -> float:
    start = time.process_time()
    pq.ParquetFile(path).read(use_threads=False)
    return time.process_time() - start


def measure(rows: int, rounds: int) -> list[Result]:
    made, todo = tables(rows), variants()
    writes: dict[int, list[float]] = {index: [] for index in range(len(todo))}
    reads: dict[int, list[float]] = {index: [] for index in range(len(todo))}
    sizes: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.parquet"
        for _ in range(rounds):
            for index, variant in enumerate(todo):
                writes[index].append(write(made[variant.data], variant, path) * 1000)
                reads[index].append(read(path) * 1000)
                sizes[index] = path.stat().st_size
    return [
        Result(
            variant.question,
            variant.data,
            variant.name,
            round(statistics.median(writes[index]), 1),
            round(max(writes[index]), 1),
            round(statistics.median(reads[index]), 1),
            sizes[index],
        )
        for index, variant in enumerate(todo)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=750_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    results = measure(asked.rows, asked.rounds)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    print(
        f"{'question':<12}{'data':<22}{'variant':<14}"
        f"{'write ms':>9}{'worst':>8}{'read ms':>9}{'MB':>8}"
    )
    for result in sorted(results, key=lambda r: (r.question, r.data)):
        print(
            f"{result.question:<12}{result.data:<22}{result.name:<14}{result.write_ms:>9}"
            f"{result.write_ms_worst:>8}{result.read_ms:>9}{result.size_bytes / 1e6:>8.2f}"
        )


if __name__ == "__main__":
    main()
