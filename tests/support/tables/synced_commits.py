"""Commits of every kind to a table on a disk, which a power loss must not make unreadable.

Run as a program with the names of cases and a folder, each in a folder of its own there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from mrflight.config.formats import OutputFormat
from mrflight.config.output_section import OutputSection
from mrflight.ids import new_job_id
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.delta.maintenance import MaintenanceOptions
from mrflight.sinks.delta.vacuum import Retention
from mrflight.storage.disk import Disk
from mrflight.storage.ducklake.process_pool import end_idle_processes
from tests.services.built import ducklake_python
from tests.support.faults.lost_power import mark, sync_all
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.lakes import Lake, rows_of
from tests.support.tables.merges import write_rows
from tests.support.tables.outputs import NEW, OLD, SCHEMA, Mode, Output, Rows, table_of, written

REST_URI = "POWER_LOSS_REST_URI"

Do = Callable[[Path], None]
Found = list[tuple[Any, ...]] | None
"""The rows; None if there is no table."""

_ALL = MaintenanceOptions(retention=Retention(timedelta(0), is_forced=True))


class Case(NamedTuple):
    """A step that commits, and what comes before it and is on the disk."""

    step: Do
    read: Callable[[Path], Found]
    before: tuple[Do, ...] = ()
    keeps_rows: bool = False
    """Whether the table has the same rows after the step."""
    is_quick: bool = False
    """Whether every change runs it."""


def run(sink: Sink, base: Path, rows: Rows) -> None:
    """Do what a job does; it says that it is committed before it removes what it replaced."""
    schema = pa.schema([*SCHEMA, pa.field("more", pa.int64())][: len(rows[0])])
    commit_in(base, sink, Commit(tuple(written(sink, rows, schema)), schema))


def commit_in(base: Path, sink: Sink, commit: Commit) -> None:
    sink.setup(commit)
    sink.commit(commit)
    mark("said", base)
    sink.cleanup()


def folder(format: OutputFormat, mode: str, *by: str, rows: Rows = NEW, **keys: Any) -> Do:
    def do(base: Path) -> None:
        given = {"format": format, "mode": mode, "partition_by": list(by), **keys}
        section = OutputSection(table="out/table", **given)
        run(open_sink(section, base, {}, new_job_id(), None), base, rows)

    return do


def found_by_rerun(
    format: OutputFormat, mode: Mode, *by: str, rows: Rows = NEW, run_id: str = "run"
) -> Do:
    """A job is killed before it has synced its commit, and runs again."""

    def do(base: Path) -> None:
        section = OutputSection(table="out/table", format=format, mode=mode, partition_by=list(by))
        with _no_sync_of_commits():
            commit_rows(open_sink(section, base, {}, new_job_id(), run_id), rows)
        assert open_sink(section, base, {}, new_job_id(), run_id).was_committed()
        mark("said", base)

    return do


def found_by_stream(*by: str, rows: Rows = NEW, start: int = 0, stop: int = 4) -> Do:
    """A stream is killed before it has synced its commit, and starts again."""

    def do(base: Path) -> None:
        section = OutputSection(table="out/table", mode="append", partition_by=list(by))
        before, after = ({"cluster/topic/id/0": at} if at else {} for at in (start, stop))
        offsets = StreamOffsets("events", before, after)
        with _no_sync_of_commits():
            commit_rows(open_sink(section, base, {}, new_job_id(), None), rows, offsets)
        again = open_sink(section, base, {}, new_job_id(), None)
        assert again.recorded_offsets("events") == offsets.after
        mark("said", base)

    return do


def commit_rows(sink: Sink, rows: Rows, offsets: StreamOffsets | None = None) -> None:
    commit = Commit(tuple(written(sink, rows, SCHEMA)), SCHEMA, offsets=offsets)
    sink.setup(commit)
    sink.commit(commit)


@contextmanager
def _no_sync_of_commits() -> Iterator[None]:
    """Sync neither the folder of entries or manifests, nor an entry that deltalake writes."""
    sync = Disk.sync

    def sync_files(self: Disk, path: str) -> None:
        if not path.endswith(("_delta_log", "_mrflight", ".json")):
            sync(self, path)

    Disk.sync = sync_files  # type: ignore[method-assign]
    try:
        yield
    finally:
        Disk.sync = sync  # type: ignore[method-assign]


def deltalake_writes(**more: Any) -> Do:
    """By another writer."""

    def do(base: Path) -> None:
        from deltalake import write_deltalake

        write_deltalake(base / "out/table", table_of(OLD), mode="append", **more)

    return do


def maintain_delta(base: Path, options: MaintenanceOptions = _ALL) -> None:
    from mrflight.sinks.delta.maintenance import maintain
    from mrflight.storage import locate

    maintain(locate("out/table", base), options)


def remove_delta_rows(base: Path, n: int = 1) -> None:
    from mrflight.sinks.delta.removed_rows import remove_rows
    from mrflight.storage import locate

    remove_rows(locate("out/table", base), f"n = {n}", f"replay {n}", 1)


def merge_delta(base: Path, rows: Rows = ((1, "z"), (9, "y"))) -> None:
    section = OutputSection(table="out/table", mode="merge", keys=["n"])
    sink = open_sink(section, base, {}, new_job_id(), None)
    commit_in(base, sink, Commit(*write_rows(sink, table_of(rows), ["n"], None, base)))


def iceberg(mode: Mode, rows: Rows = NEW) -> Do:
    return lambda base: run(lake(base).open(mode, new_job_id()), base, rows)


def lake(base: Path) -> Lake:
    return Lake(base, "sqlite:///catalog.db", "warehouse", "ns")


def rest(base: Path) -> None:
    """To the namespace that has the name of the folder, in the warehouse of a REST catalog."""
    output = Lake(base, os.environ[REST_URI], None, base.name)
    run(output.open("append", new_job_id()), base, NEW)


def read_rest(base: Path) -> Found:
    """Read the newest metadata, which the catalog would name."""
    from pyiceberg.table import StaticTable

    newest = max(base.glob("events/metadata/*.metadata.json"), key=lambda path: path.name)
    found = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    return rows_of(found, ("n", "k"))


def maintain_iceberg(base: Path) -> None:
    from mrflight.sinks.iceberg.maintenance import maintain
    from mrflight.sinks.iceberg.table import TableInCatalog
    from mrflight.storage.iceberg import CatalogAddress

    address = CatalogAddress.of("output", OutputSection(**lake(base).section()), base, {})
    maintain(TableInCatalog(address, ("ns", "events")), _ALL)


def ducklake(kind: str, mode: str, rows: Rows = NEW, app_id: str | None = None) -> Do:
    return lambda base: run(ducklake_in(kind, base).open(mode, new_job_id(), app_id), base, rows)


def ducklake_in(kind: str, base: Path) -> DuckLake:
    return DuckLake(ducklake_python(), base, f"{kind}:///lake.{kind}", "data")


def maintain_ducklake(kind: str) -> Do:
    def do(base: Path) -> None:
        from mrflight.sinks.ducklake.maintenance import maintain

        maintain("sales.orders", f"{kind}:///{base}/lake.{kind}", {}, _ALL)

    return do


def read_delta(base: Path) -> Found:
    from deltalake import DeltaTable

    path = str(base / "out/table")
    if not DeltaTable.is_deltatable(path):
        return None
    found = DeltaTable(path).to_pyarrow_table()
    return sorted(zip(*(found[name].to_pylist() for name in ("n", "k")), strict=True), key=repr)


def read_folder(format: OutputFormat) -> Callable[[Path], Found]:
    """Of the files that count: others, of jobs that have not ended, may be beside them."""

    def read(base: Path) -> Found:
        from mrflight.storage import locate
        from mrflight.storage.manifest_log import ManifestLog

        output = Output(base, format)
        manifest = ManifestLog(locate("out/table", base)).newest().manifest
        if manifest is None:
            return None
        for path in output.folder.rglob("part-*"):
            if str(path.relative_to(output.folder)) not in manifest.files:
                path.unlink()
        assert manifest.files == {
            str(path.relative_to(output.folder)) for path in output.folder.rglob("part-*")
        }
        return output.read()

    return read


def read_iceberg(base: Path) -> Found:
    from pyiceberg.exceptions import NoSuchTableError

    if not (base / "catalog.db").exists():
        return None
    try:
        return lake(base).rows("n", "k", by_polars=False)
    except NoSuchTableError:
        return None


def read_ducklake(kind: str) -> Callable[[Path], Found]:
    def read(base: Path) -> Found:
        if not (base / f"lake.{kind}").exists():
            return None
        found = ducklake_in(kind, base)
        tables = "SELECT table_name FROM information_schema.tables WHERE table_name = 'orders'"
        try:
            return found.read() if found.query(tables) else None
        except ValueError as error:  # a catalog without a lake
            if "data_path is not set" not in str(error):
                raise
            return None

    return read


def _delta(step: Do, *before: Do, **more: Any) -> Case:
    return Case(step, read_delta, before, **more)


def _iceberg(step: Do, commits: int, **more: Any) -> Case:
    return Case(step, read_iceberg, (iceberg("append", OLD),) * commits, **more)


_NEW_DELTA = folder("delta", "append", rows=OLD)
_DUE = {"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 0 seconds"}


CASES: dict[str, Case] = {
    "delta new": _delta(folder("delta", "append"), is_quick=True),
    "delta new, partitioned": _delta(folder("delta", "error", "k")),
    "delta append": _delta(folder("delta", "append"), _NEW_DELTA),
    "delta new partition": _delta(
        folder("delta", "append", "k"), folder("delta", "append", "k", rows=OLD)
    ),
    "delta after another writer": _delta(folder("delta", "append"), deltalake_writes()),
    "delta overwrite": _delta(folder("delta", "overwrite"), _NEW_DELTA, is_quick=True),
    "delta overwrite, partitioned": _delta(folder("delta", "overwrite", "k"), _NEW_DELTA),
    "delta merge": _delta(merge_delta, _NEW_DELTA),
    "delta checkpoint": _delta(
        folder("delta", "append"), deltalake_writes(configuration=_DUE), is_quick=True
    ),
    "delta new column": _delta(
        folder("delta", "append", rows=[(*row, 1) for row in NEW], schema="evolve"), _NEW_DELTA
    ),
    "delta maintenance": _delta(maintain_delta, *[_NEW_DELTA] * 3, keeps_rows=True, is_quick=True),
    "delta found by a rerun": _delta(
        found_by_rerun("delta", "overwrite"), _NEW_DELTA, is_quick=True
    ),
    "delta found by a stream": _delta(found_by_stream()),
    "parquet found by a rerun": Case(
        found_by_rerun("parquet", "append"),
        read_folder("parquet"),
        (folder("parquet", "error", rows=OLD),),
    ),
    "delta removed rows": _delta(remove_delta_rows, _NEW_DELTA),
    **{
        f"{format} {mode}": Case(
            folder(format, mode, *by),
            read_folder(format),
            () if mode == "error" else (folder(format, "error", *by, rows=OLD),),
            is_quick=(format, mode) == ("parquet", "overwrite"),
        )
        for format, by in (("parquet", ("k",)), ("csv", ()), ("arrow", ()))
        for mode in ("error", "append", "overwrite")
    },
    "iceberg new": _iceberg(iceberg("append"), 0, is_quick=True),
    "iceberg append": Case(
        iceberg("append"), read_iceberg, (iceberg("append", OLD),), is_quick=True
    ),
    "iceberg overwrite": _iceberg(iceberg("overwrite"), 1),
    "iceberg maintenance": _iceberg(maintain_iceberg, 3, keeps_rows=True),
    **{
        f"ducklake in {kind}, {what}": case
        for kind in ("sqlite", "duckdb")
        for what, case in {
            "new": Case(ducklake(kind, "append", app_id="run"), read_ducklake(kind)),
            "append": Case(
                ducklake(kind, "append"),
                read_ducklake(kind),
                (ducklake(kind, "append", OLD),),
                is_quick=kind == "sqlite",
            ),
            "overwrite": Case(
                ducklake(kind, "overwrite"), read_ducklake(kind), (ducklake(kind, "append", OLD),)
            ),
            "maintenance": Case(
                maintain_ducklake(kind),
                read_ducklake(kind),
                (ducklake(kind, "append", OLD),) * 3,
                keeps_rows=True,
            ),
        }.items()
    },
}


REST = Case(rest, read_rest, (rest,))
"""Its folder, whose name begins with ``rest_``, is in the warehouse of a catalog at `REST_URI`."""


def folder_of(root: Path, name: str) -> Path:
    """Return the folder in which a case runs."""
    return root / name.replace(" ", "-").replace(",", "")


def main(root: Path, *names: str) -> None:
    for name in names:
        case, base = CASES.get(name, REST), folder_of(root, name)
        base.mkdir(parents=True)
        for each in case.before:
            each(base)
        sync_all(base)
        mark("begin", base)
        case.step(base)
        mark("said", base)
    end_idle_processes()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
