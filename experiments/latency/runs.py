"""Run one cell in processes of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake.fs
import pyarrow.parquet as pq

from experiments import machine, mrflight_job, timed_process
from experiments.comparison import inputs
from experiments.latency import measured, pinned
from experiments.latency.cells import Cell, Data

TIMEOUT_S = 3600.0

_JOB = """
[job]
name = "rows"
[inputs.rows]
path = "*.parquet"
key = ["{key}"]
[output]
table = "out"
mode = "error"
"""


@dataclass(frozen=True)
class Run:
    """The time and memory of one process or job."""

    call_s: float
    """The seconds of the call alone, as in the thesis; for a job, everything except its stage
    ``start``."""
    process_s: float
    """The seconds from the start of the process to its end."""
    peak_bytes: int
    """The peak memory; for a job, the sum over its processes."""


@dataclass(frozen=True)
class Runner:
    """Runs cells. ``roots`` has the folders of tables by store, ``data`` is that of the inputs."""

    roots: Mapping[str, str]
    data: Path
    python: Path
    memory: str | None = None
    """The job's ``cluster.memory``; None for the default."""
    touched_bytes: int = 0
    """The memory that a process fills and frees before each run.

    The host of a virtual machine may have reclaimed free memory. The first process that fills it
    waits for that, 0.05 to 3 s per GiB, and the next one does not.
    """

    def run(self, cell: Cell) -> Run:
        """Run a cell; raise RuntimeError if it fails or has the wrong number of rows."""
        rows = _rows(self.source(cell.data))
        if cell.operation == "read":
            return self._call(cell, self.table_to_read(cell), rows)
        table = f"{self.roots[cell.store]}/{cell.data.name}-{uuid4().hex[:12]}"
        try:
            done = self._job(cell, table, rows) if cell.system.startswith("mrflight") else None
            done = done or self._call(cell, table, None)
            _check(table, rows)
            return done
        finally:
            _remove(table)

    def source(self, data: Data) -> Path:
        """Return the folder with the table's files, and make them if they do not exist."""
        return inputs.tpch(data.table, data.scale, self.data, self.python)

    def table_to_read(self, cell: Cell) -> str:
        """Return the table that all systems read, written by delta-rs as in the thesis."""
        table = f"{self.roots[cell.store]}/{cell.data.name}-to-read"
        if not deltalake.DeltaTable.is_deltatable(table):
            write = ["write", "stream", str(self.source(cell.data)), table]
            timed_process.run([sys.executable, "-m", measured.__name__, *write], TIMEOUT_S)
        return table

    def _call(self, cell: Cell, table: str, rows: int | None) -> Run:
        words = [cell.operation, cell.system, str(self.source(cell.data)), table]
        timed = self._timed(cell, [sys.executable, "-m", measured.__name__, *words])
        result = json.loads(timed.stdout.splitlines()[-1])
        if result["rows"] != rows:
            raise RuntimeError(f"{cell.name}: {result['rows']} rows were read, of {rows}")
        return Run(result["call_s"], timed.wall_s, timed.peak_rss_bytes)

    def _job(self, cell: Cell, table: str, rows: int) -> Run:
        job = self.data / f"{cell.data.name}.toml"
        job.write_text(_JOB.format(key=cell.data.key))
        source = self.source(cell.data)
        settings = [f"inputs.rows.path={source}/*.parquet", f"output.table={table}"]
        if cell.system == "mrflight-snappy":
            settings.append("output.compression=snappy")
        if self.memory is not None:
            settings.append(f"cluster.memory={self.memory}")
        timed = self._timed(cell, mrflight_job.driver_command(job, settings, sys.executable))
        report: dict[str, Any] = json.loads(timed.stdout.splitlines()[-1])
        if report["rows_out"] != rows:
            raise RuntimeError(f"{cell.name}: {report['rows_out']} rows were written, of {rows}")
        seconds = report["seconds"]
        peak = int(report["peak_memory_bytes"])
        return Run(seconds["total"] - seconds["start"], timed.wall_s, peak)

    def _timed(self, cell: Cell, command: list[str]) -> timed_process.Timed:
        if self.touched_bytes:
            machine.fill_memory(self.touched_bytes)
        pin = [sys.executable, "-I", "-S", pinned.__file__, str(cell.cores)]
        return timed_process.run([*pin, *command], TIMEOUT_S)


def _rows(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in inputs.files_of(folder))


def _check(table: str, rows: int) -> None:
    found = deltalake.DeltaTable(table).count()
    if found != rows:
        raise RuntimeError(f"{table}: {found} rows were written, of {rows}")


def _remove(table: str) -> None:
    if "://" not in table:
        shutil.rmtree(table, ignore_errors=True)
    elif deltalake.DeltaTable.is_deltatable(table):
        deltalake.fs.DeltaStorageHandler(table).delete_dir("/")
