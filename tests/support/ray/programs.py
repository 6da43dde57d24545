"""Programs on Ray that have a shuffle in them, as users write them; each leaves what came of it.

python -m tests.support.ray.programs PROGRAM ADDRESS FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray

import mrflight
from mrflight import Shuffle, on_ray
from mrflight.errors import MrflightError

MAPS, PARTITIONS, ROWS = 4, 6, 20_000

RESULT = "result.json"


def rows_of(number: int) -> pa.RecordBatch:
    """Return the rows of a map. No two rows of all maps are equal."""
    rows = range(number * ROWS, (number + 1) * ROWS)
    return pa.record_batch({"k": [f"k{row % 97}" for row in rows], "row": list(rows)})


@ray.remote(max_retries=2)
def write(shuffle: Shuffle, number: int, folder: str = "", dies: str = "") -> None:
    """Write a map; its first attempt is killed ``within`` it or ``after`` it, as ``dies`` says."""
    if folder:
        tries = Path(folder, f"tries-{number}")
        is_first = not tries.exists()
        tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    else:
        is_first = False
    with shuffle.writer(map_id=number, key=["k"], buffer_bytes=2**16) as out:
        for start in range(0, ROWS, 1_000):
            out.write(rows_of(number).slice(start, 1_000))
            if dies == "within" and is_first and start == ROWS // 2:
                os.kill(os.getpid(), signal.SIGKILL)
    if dies == "after" and is_first:
        os.kill(os.getpid(), signal.SIGKILL)


@ray.remote
def read(shuffle: Shuffle, partition: int) -> tuple[list[int], list[str]]:
    """A reduce: its rows' numbers, and its keys."""
    table = pa.Table.from_batches(shuffle.reader(partition), shuffle.schema())
    return table["row"].to_pylist(), table["k"].unique().to_pylist()


def read_all(shuffle: Shuffle) -> dict[str, Any]:
    """Return whether all rows are there once, and all rows of a key in one partition."""
    parts = ray.get([read.remote(shuffle, number) for number in range(PARTITIONS)])
    keys = Counter(key for _, keys in parts for key in keys)
    return {
        "exact": sorted(row for rows, _ in parts for row in rows) == list(range(MAPS * ROWS)),
        "keys": len(keys),
        "places": max(keys.values()),
    }


def retries(folder: str) -> dict[str, Any]:
    """Tasks whose processes are killed before and after their commits, and are made again."""
    with on_ray.serving(data_servers=2, memory="64 MiB") as cluster:
        shuffle = cluster.create_shuffle("retries", PARTITIONS)
        dies = ("after", "within", "", "after")
        ray.get([write.remote(shuffle, n, folder, dies[n]) for n in range(MAPS)])
        (status,) = cluster.status().shuffles
        return {**read_all(shuffle), "maps": status.maps, "rows": status.rows}


def losses(folder: str) -> dict[str, Any]:
    """A data server that is killed after the maps, then the metadata server."""
    with on_ray.serving(data_servers=2, memory="64 MiB", heartbeat_timeout="2 s") as cluster:
        shuffle = cluster.create_shuffle("losses", PARTITIONS)
        ray.get([write.remote(shuffle, number) for number in range(MAPS)])
        _, infos = shuffle.layout()
        lost = infos[0].locations[0]
        _kill_the_one_at(lost)
        while not shuffle.report_loss(lost):
            pass  # the metadata server still reaches it
        again = shuffle.health().lost_maps
        ray.get([write.remote(shuffle, number) for number in again])
        _kill_the_one_at(cluster.location)
        return {**read_all(shuffle), "again": again, "left": shuffle.health().lost_maps}


def datasets(folder: str) -> dict[str, Any]:
    """Through a shuffle from one dataset to another; some partitions are empty."""
    with on_ray.serving(data_servers=2, memory="64 MiB") as cluster:
        shuffle = cluster.create_shuffle("datasets", 60)
        early = _raised(lambda: on_ray.to_dataset(shuffle))
        nothing = on_ray.to_dataset(shuffle, maps=0).count()
        source = ray.data.from_arrow([pa.table(rows_of(n)) for n in range(MAPS)])
        on_ray.from_dataset(source, shuffle, key=["k"])
        _, infos = shuffle.layout()
        full = next(info for info in infos if info.rows)
        whole = on_ray.to_dataset(shuffle)
        part = on_ray.to_dataset(shuffle, [full.partition])
        return {
            "exact": sorted(row["row"] for row in whole.take_all()) == list(range(MAPS * ROWS)),
            "columns": whole.schema().names,
            "empty": sum(info.rows == 0 for info in infos) > 0,
            "part": len(part.take_all()) == full.rows,
            "twice": _written_twice(cluster),
            "early": [early.partition(";")[0], nothing],
            "missing": _raised(lambda: on_ray.to_dataset(shuffle, maps=1000)).partition(" of ")[2],
            "wrong": _raised(lambda: on_ray.to_dataset(shuffle, [60])),
        }


def datasets_again(folder: str) -> dict[str, Any]:
    """Tasks that write a dataset, are killed after that, and are made again."""
    with on_ray.serving(data_servers=2, memory="64 MiB") as cluster:
        numbered, other = (cluster.create_shuffle(n, PARTITIONS) for n in ("numbered", "other"))
        ray.get(write_dataset.remote(numbered, f"{folder}/numbered", first_map_id=3))
        try:
            ray.get(write_dataset.remote(other, f"{folder}/other"))
        except ray.exceptions.RayError as error:
            refused = str(error)
        maps = numbered.committed_maps()
        others = ray.data.from_arrow([_with_other_rows(n) for n in range(MAPS)])
        try:
            on_ray.from_dataset(others, numbered, key=["k"], first_map_id=3)
        except ray.exceptions.RayError as error:
            taken = str(error)
        return {
            **read_all(numbered),
            "maps": maps,
            "tries": Path(folder, "numbered").read_text(),
            "refused": "give from_dataset a first_map_id, so that none" in refused,
            "rows": on_ray.to_dataset(other).count(),
            "taken": "map 3 of the shuffle was written by another task" in taken,
        }


@ray.remote(max_retries=2, num_cpus=0)
def write_dataset(shuffle: Shuffle, tries: str, first_map_id: int | None = None) -> None:
    source = ray.data.from_arrow([pa.table(rows_of(n)) for n in range(MAPS)])
    with Path(tries).open("a") as file:
        file.write("x")
    on_ray.from_dataset(source, shuffle, key=["k"], first_map_id=first_map_id)
    if Path(tries).read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)


def _with_other_rows(number: int) -> pa.Table:
    """Return as many rows with the same keys and other numbers."""
    table = pa.table(rows_of(number))
    return table.set_column(1, "row", pc.negate(table["row"]))


def _written_twice(cluster: mrflight.Cluster) -> list[Any]:
    """Two datasets one after the other, and a third whose numbers are taken."""
    shuffle = cluster.create_shuffle("twice", 3)
    for number in range(2):
        on_ray.from_dataset(ray.data.from_arrow(pa.table(rows_of(number))), shuffle, key=["k"])
    rows = on_ray.to_dataset(shuffle).count()
    third = ray.data.from_arrow(pa.table(rows_of(2)))
    try:
        on_ray.from_dataset(third, shuffle, key=["k"], first_map_id=0)
    except ray.exceptions.RayError as error:
        return [rows, "give each from_dataset a first_map_id" in str(error)]
    return [rows, False]


def mistakes(folder: str) -> dict[str, Any]:
    """Return the messages for mistakes that users make."""
    wrong_options = {
        "memory": {"memory": "much"},
        "servers": {"data_servers": 0},
        "timeout": {"heartbeat_timeout": "soon"},
    }
    found = {name: _raised(partial(_serve, **wrong)) for name, wrong in wrong_options.items()}
    ray.shutdown()
    return found | {"ray": _raised(_serve)}


def _serve(**options: Any) -> None:
    with on_ray.serving(**options):
        pass


def _raised(call: Any) -> str:
    try:
        call()
    except MrflightError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def _kill_the_one_at(location: str) -> None:
    """SIGKILL for the process that listens there, and wait for its end."""
    import psutil

    port = int(location.rpartition(":")[2])
    (pid,) = {
        each.pid
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
    process = psutil.Process(pid)
    process.kill()
    process.wait(10)


def main(program: str, address: str, folder: str) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    Path(folder, RESULT).write_text(json.dumps(globals()[program](folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
