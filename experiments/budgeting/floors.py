"""The floor of each stage: the same work done alone, in one process, by the fastest library here.

    python -m experiments.budgeting.floors WORK RESULT

Prints the floors by stage, as JSON. Each way to do the work of a stage is tried several times, and
the least processor time counts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from experiments import timed_process, tpch
from experiments.budgeting import ways
from experiments.budgeting.stages import Stage
from experiments.budgeting.work import Floor, Result, Work
from experiments.datasets import WORK

ROUNDS = 3
TIMEOUT_S = 600.0

_BEFORE_REDUCE = (Stage.READ, Stage.DECODE, Stage.MAP, Stage.COMBINE)

T = TypeVar("T")
Floors = dict[Stage, Floor]


def measure(work: Work, result: Result) -> Floors:
    """Return the floors of a job, measured in a process of their own."""
    encoded = [msgspec.json.encode(each).decode() for each in (work, result)]
    words = [sys.executable, "-m", "experiments.budgeting.floors", *encoded]
    return msgspec.json.decode(timed_process.run(words, TIMEOUT_S).stdout, type=Floors)


class Alone:
    """Does the work of one stage after the other, and keeps the floors."""

    def __init__(self, work: Work, result: Result, scratch: Path) -> None:
        self.floors: Floors = {}
        self._work = work
        self._result = result
        self._scratch = scratch

    def run(self) -> None:
        self.floors[Stage.START] = start()
        rows = self._query() if self._work.query else self._rows()
        for stage in (Stage.SEND, Stage.RECEIVE, Stage.FETCH):
            size = self._result.bytes_shuffled
            self._try(stage, ways.copy(size, keeps=stage is Stage.RECEIVE))
        parts = self._try(Stage.ENCODE_PARTS, ways.encode_parts(rows, self._result.partitions))
        self._try(Stage.WRITE, ways.write(list(parts()), self._scratch))
        if self._work.is_delta:
            self._try(Stage.COMMIT, ways.commit(rows.schema, self._scratch))

    def _query(self) -> pa.Table:
        assert self._work.query is not None
        sql = tpch.sql_of(self._work.query).read_text()
        tried = ways.query(sql, Path(self._work.folder))
        (rows,) = self._try(Stage.REDUCE, tried, includes=_BEFORE_REDUCE)()
        return rows

    def _rows(self) -> pa.Table:
        """Return the rows of the result."""
        work = self._work
        self._try(Stage.READ, ways.read(work.files))
        decode = ways.decode(work.files)
        self._try(Stage.DECODE, decode)
        tables = list(decode["Arrow"]())
        if work.map is not None:
            tables = list(self._try(Stage.MAP, ways.map_rows(_function(work.map), tables))())
        sent = [_partial(work, table) for table in tables] if work.combines else tables
        self._shuffle(sent)
        rows = pa.concat_tables(tables)
        if work.reduce == "none":
            return rows
        if work.reduce == "groups":
            reduces = ways.group(rows, work.key, work.sums)
        else:
            reduces = ways.sort(rows, work.key)
        (result,) = self._try(Stage.REDUCE, reduces, includes=(Stage.COMBINE,))()
        return result

    def _shuffle(self, sent: list[pa.Table]) -> None:
        placed = self._try(Stage.PLACE, ways.place(sent, self._work.key, self._result.partitions))
        encoded = self._try(Stage.ENCODE_BLOCKS, ways.encode_blocks(list(placed())))
        self._try(Stage.DECODE_BLOCKS, ways.decode_blocks(list(encoded())))

    def _try(
        self, stage: Stage, tried: ways.Ways[T], includes: tuple[Stage, ...] = ()
    ) -> Callable[[], Iterable[T]]:
        """Measure the floor of a stage; return the way to it."""
        seconds, how = fastest(tried)
        self.floors[stage] = Floor(seconds, how, includes)
        return tried[how]


def fastest(tried: ways.Ways[T]) -> tuple[float, str]:
    """Return the least processor seconds, and of which way. Results are let go of at once."""
    found = []
    for how, way in tried.items():
        for _ in range(ROUNDS):
            began = time.process_time()
            deque(way(), maxlen=0)
            found.append((time.process_time() - began, how))
    return min(found)


def start() -> Floor:
    """Return what importing Flight takes."""
    words = [sys.executable, "-c", "import pyarrow.flight"]
    seconds = min(timed_process.run(words, TIMEOUT_S).cpu_s for _ in range(ROUNDS))
    return Floor(seconds, "import pyarrow.flight")


def _partial(work: Work, rows: pa.Table) -> pa.Table:
    (partial,) = ways.group(rows, work.key, work.sums)["Arrow"]()
    return partial


def _function(name: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return the function ``file.py:function``."""
    path, _, function = name.rpartition(":")
    spec = spec_from_file_location("mapped", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[pa.RecordBatch], pa.RecordBatch] = getattr(module, function)
    return found


def main() -> None:
    work = msgspec.json.decode(sys.argv[1], type=Work)
    result = msgspec.json.decode(sys.argv[2], type=Result)
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        alone = Alone(work, result, Path(scratch))
        alone.run()
    print(msgspec.json.encode(alone.floors).decode())


if __name__ == "__main__":
    main()
