"""Write a site's access logs as json lines: time, user, request, status; a file per day.

A visit is a user who opens pages with a few minutes between them. Visits are
drawn for one stretch of a day at a time, so that memory does not grow with
the log; as in real logs, lines are only nearly in the order of their time.
The same options give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY = np.datetime64("2026-03-02", "ms")
_DAY_MS = 86_400_000
_BATCH_EVENTS = 50_000
_EVENTS_PER_VISIT = 8
_GAP_MS = 120_000  # two minutes on a page, on average; rarely half an hour
_PATHS = [
    "/",
    "/search?q=shoes",
    "/search?q=boots",
    *(f"/product/{number}" for number in range(200)),
    "/cart",
    "/checkout",
    "/account",
    *(f"/static/style-{number}.css" for number in range(20)),
]
_MANIFEST = ".logs.json"


@dataclass(frozen=True)
class Logs:
    """Which logs to write. Visits are uneven: some users come often, many rarely."""

    events: int
    users: int
    files: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.files < 1 or self.events < 0 or self.users < 1:
            raise ValueError("a log needs one file and one user at least, and no negative events")

    def events_of(self, file: int) -> int:
        """How many lines file number ``file`` has."""
        return self.events * (file + 1) // self.files - self.events * file // self.files


def events(logs: Logs, file: int) -> Iterator[pa.RecordBatch]:
    """The events of one file, batch by batch; a batch is one stretch of the day."""
    total = logs.events_of(file)
    stretches = -(-total // _BATCH_EVENTS)
    for stretch in range(stretches):
        count = total * (stretch + 1) // stretches - total * stretch // stretches
        random = np.random.default_rng([logs.seed, file, stretch])
        opens = _FIRST_DAY + file * _DAY_MS + stretch * _DAY_MS // stretches
        yield _stretch(random, logs.users, count, opens, _DAY_MS // stretches)


def _stretch(
    random: np.random.Generator, users: int, count: int, opens: np.datetime64, length_ms: int
) -> pa.RecordBatch:
    """``count`` events of visits that begin within ``length_ms`` from ``opens``."""
    visit = np.repeat(np.arange(count), random.geometric(1 / _EVENTS_PER_VISIT, count))[:count]
    first_of_visit = np.searchsorted(visit, np.arange(count))[visit]
    elapsed = np.cumsum(random.exponential(_GAP_MS, count).astype(np.int64))
    begin = random.integers(0, length_ms, count)[visit]
    time = opens + begin + elapsed - elapsed[first_of_visit]
    user = (users * random.random(count) ** 2).astype(np.int64)[visit]
    known = (random.random(count) < 0.9)[visit]
    path = random.integers(0, len(_PATHS), count)
    path[random.random(count) < 0.2] = 0
    status = random.choice([200, 304, 404, 500], count, p=[0.9, 0.06, 0.03, 0.01])
    order = np.argsort(time, kind="stable")
    return pa.RecordBatch.from_arrays(
        [
            pa.array(time[order], pa.timestamp("ms")),
            pa.array(user[order], mask=~known[order]),
            pa.array(_PATHS).take(pa.array(path[order])),
            pa.array(status[order]),
        ],
        names=["time", "user", "path", "status"],
    )


def lines(batch: pa.RecordBatch) -> bytes:
    """Events as json lines."""
    digits = pc.utf8_lpad(pc.cast(batch["user"], pa.string()), 6, "0")
    user = pc.fill_null(pc.binary_join_element_wise('"u', digits, '"', ""), "null")
    text = pc.binary_join_element_wise(
        '{"time":"',
        pc.strftime(batch["time"], format="%Y-%m-%dT%H:%M:%SZ"),
        '","user":',
        user,
        ',"request":"GET ',
        batch["path"],
        ' HTTP/1.1","status":',
        pc.cast(batch["status"], pa.string()),
        "}\n",
        "",
    )
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(text)], text), "")
    return bytes(joined[0].as_buffer())


def write_file(logs: Logs, file: int, path: Path) -> None:
    """One log file, under a temporary name until it is whole."""
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        with unfinished.open("wb") as out:
            for batch in events(logs, file):
                out.write(lines(batch))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write(logs: Logs, folder: Path) -> list[Path]:
    """The files of ``logs`` in ``folder``, and no others; kept if they are there already."""
    days = [_FIRST_DAY.astype("M8[D]") + np.timedelta64(file, "D") for file in range(logs.files)]
    paths = [folder / f"access-{day}.ndjson" for day in days]
    manifest = folder / _MANIFEST
    there = manifest.exists() and json.loads(manifest.read_text()) == asdict(logs)
    if there and sorted(folder.glob("access-*.ndjson")) == paths:
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    manifest.unlink(missing_ok=True)
    for stale in folder.glob("access-*.ndjson"):
        stale.unlink()
    for file, path in enumerate(paths):
        write_file(logs, file, path)
    unfinished = manifest.with_suffix(".tmp")
    unfinished.write_text(json.dumps(asdict(logs)))
    unfinished.replace(manifest)
    return paths


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a web site's access logs as json lines.")
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--files", type=int, default=7, help="days, one file each")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "logs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        logs = Logs(options.events, options.users, options.files, options.seed)
    except ValueError as wrong:
        parser.error(str(wrong))
    paths = write(logs, options.out)
    size = sum(path.stat().st_size for path in paths)
    where = os.path.relpath(options.out)
    print(f"{logs.events:,} events: {len(paths)} files, {size:,} bytes in {where}")


if __name__ == "__main__":
    main()
