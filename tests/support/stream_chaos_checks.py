"""What is wrong with the tables of a stream to which much was done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake

from tests.support.stream_chaos_producers import Sent

FOREIGN = -1
"""The producer of rows that another writer has appended."""


def wrong_rows(table: Path, sent: Sent, foreign: int) -> list[str]:
    """Return what is lost, doubled or invented in the table of a stream."""
    rows = deltalake.DeltaTable(table).to_pyarrow_table()
    places = zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)
    found = Counter(zip(rows["producer"].to_pylist(), rows["number"].to_pylist(), strict=True))
    wanted = sent.committed | {(FOREIGN, number) for number in range(foreign)}
    return [
        *_compared("row", found, wanted, sent.unknown),
        *_twice("offset", Counter(each for each in places if each[0] is not None)),
    ]


def wrong_dead_letters(table: Path, sent: Sent) -> list[str]:
    """Return what is lost, doubled or invented in the table of bad events."""
    values: list[Any] = []
    if deltalake.DeltaTable.is_deltatable(str(table)):
        values = deltalake.DeltaTable(table).to_pyarrow_table()["value"].to_pylist()
    return _compared("dead letter", Counter(values), sent.poison, set())


def _compared(
    what: str, found: Counter[Any], wanted: Iterable[Any], allowed: set[Any]
) -> list[str]:
    lost = set(wanted) - set(found)
    invented = set(found) - set(wanted) - allowed
    return [
        *([f"{len(lost)} {what}s are lost, such as {min(lost)}"] if lost else []),
        *([f"{len(invented)} {what}s are invented, such as {min(invented)}"] if invented else []),
        *_twice(what, found),
    ]


def _twice(what: str, found: Counter[Any]) -> list[str]:
    twice: list[Hashable] = [each for each, count in found.items() if count > 1]
    return [f"{len(twice)} {what}s are there twice, such as {twice[0]}"] if twice else []


def wrong_offsets(table: Path, ends: dict[int, int]) -> list[str]:
    """Return where the offsets of a table's commits do not go on from each other to the ends."""
    wrong, next_offset = [], dict[str, int]()
    for path in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        moved = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
        for note in (each.get("commitInfo", {}).get("mrflightStream") for each in actions):
            for name, (before, after) in json.loads(note or '{"offsets": {}}')["offsets"].items():
                if before != next_offset.get(name):
                    wrong.append(f"{path.name}: {name} went on from {before}")
                if before != after and moved.get(f"mrflight/events/{name}") != after:
                    wrong.append(f"{path.name}: {name} is noted, and not recorded, as {after}")
                next_offset[name] = after
    reached = {int(name.rpartition("/")[2]): offset for name, offset in next_offset.items()}
    if reached != {partition: end for partition, end in ends.items() if end}:
        wrong.append(f"the table has come to {reached} of {ends}")
    return wrong


def clean(table: Path) -> tuple[int, list[str]]:
    """Remove what killed ingesters have left; return how many files, and what stays."""
    before = unnamed(table)
    command = [sys.executable, "-m", "mrflight", "clean", str(table), "--older-than", "0 s"]
    done = subprocess.run([*command, "--remove"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        return 0, [f"mrflight clean failed: {done.stderr}"]
    left = unnamed(table)
    return len(before - left), [f"{name} is left" for name in sorted(left)]


def unnamed(table: Path) -> set[str]:
    """Return the files of a table's folder that its log names neither as added nor as removed."""
    log = table / "_delta_log"
    actions = [
        json.loads(line) for path in log.glob("*.json") for line in path.read_text().splitlines()
    ]
    named = {
        unquote(each[kind]["path"])
        for each in actions
        for kind in ("add", "remove")
        if kind in each
    }
    files = (path for path in table.rglob("*") if path.is_file() and log not in path.parents)
    return {str(path.relative_to(table)) for path in files} - named
