"""Rows with a number each, on a cluster, and what servers store of them."""

from __future__ import annotations

import json

import pyarrow as pa
from pyarrow import flight

import mrflight


def batch(start: int, rows: int = 1_000) -> pa.RecordBatch:
    """Return rows with numbers from ``start`` on, each with a URL that is derived from it."""
    numbers = range(start, start + rows)
    return pa.record_batch({"url": [f"s{i}.com" for i in numbers], "n": pa.array(numbers)})


def numbers(shuffle: mrflight.Shuffle, partitions: int) -> list[int]:
    """Return the sorted numbers of all partitions."""
    return sorted(
        number
        for partition in range(partitions)
        for rows in shuffle.reader(partition)
        for number in rows["n"].to_pylist()
    )


def held(shuffle: mrflight.Shuffle) -> list[int]:
    """Return the bytes that each data server of a shuffle stores, for all shuffles."""
    locations = {at for info in shuffle.layout()[1] for at in info.locations}
    return [stats(location)["size_bytes"] for location in sorted(locations)]


def stats(location: str) -> dict[str, int]:
    """Return the figures that a data server gives a plain Flight client."""
    with flight.FlightClient(location) as client:
        (answer,) = client.do_action(("stats", b"{}"))
        stats: dict[str, int] = json.loads(answer.body.to_pybytes())
        return stats
