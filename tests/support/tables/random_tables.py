"""Random steps on tables nested in each other's folders, and a model of what must be there.

The tables are of several formats and have links to each other, and strangers put files beside
theirs. After each step a stock reader has to find exactly the rows of the model in each table, and
the part files on the disk have to be exactly those of the model, whose names say by which step they
came. A killed job is a sink that is left alone after its part files, or after its commit.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from deltalake import DeltaTable

from mrflight.config.output_section import OutputSection
from mrflight.errors import OutputError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from tests.support.commands.clean_command import Cleaned, run_command
from tests.support.commands.leftovers import tree
from tests.support.tables.manifests import newest_manifest
from tests.support.tables.outputs import SCHEMA, written

RUNS_AFTER_RESTORE = False
"""Whether a run id that a RESTORE has undone is run again, which has to commit again."""

Rows = list[tuple[int, str]]
FORMATS = ("delta", "delta", "parquet", "parquet", "iceberg")
FOLDERS = ("outer", "outer/archive", "outer/k=z", "outer/archive/deep", "beside")
"""Of the tables, the outer ones first. The last one is behind links in the others."""


@dataclass
class Version:
    """What a version of a table has."""

    rows: Rows = field(default_factory=list)
    live: set[Path] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)


@dataclass
class Table:
    """A table, and the part files that belong to it."""

    folder: Path
    """That of the files of rows."""
    section: OutputSection
    now: Version = field(default_factory=Version)
    versions: dict[int, Version] = field(default_factory=dict)
    """Those that can be restored, of a Delta table."""
    removed: set[Path] = field(default_factory=set)
    """Files that are kept for readers of older versions, or that a killed job has not deleted."""
    left: dict[Path, str | None] = field(default_factory=dict)
    """Files of killed jobs, with their run ids."""
    is_restored: bool = False

    @classmethod
    def of(cls, base: Path, name: str, format: str, partition_by: Sequence[str]) -> Table:
        keys: dict[str, Any] = {"format": format, "partition_by": list(partition_by)}
        if format != "iceberg":
            return cls(base / name, OutputSection(table=str(base / name), **keys))
        table = f"{name.replace('/', '_').replace('=', '_')}.events"
        keys |= {"catalog": f"sqlite:///{base}/catalog.db", "warehouse": str(base / name)}
        folder = base / name / table.replace(".", "/") / "data"
        return cls(folder, OutputSection(table=table, **keys))

    @property
    def format(self) -> str:
        return self.section.format

    def command(self, name: str, *options: str) -> Cleaned:
        """Run a command with the table, which has to succeed."""
        catalog = [] if self.section.catalog is None else ["--catalog", self.section.catalog]
        done = run_command(name, self.section.table, *catalog, *options)
        assert done.returncode == 0, done.stderr
        return done

    def read(self) -> tuple[Rows, set[Path]]:
        """The rows and the files that stock readers find."""
        if self.format == "delta":
            table = DeltaTable(self.folder)
            found = table.to_pyarrow_table().select(["n", "k"]).to_pylist()
            names = {Path(uri) for uri in table.file_uris()}
        elif self.section.catalog is not None:
            from pyiceberg.catalog.sql import SqlCatalog

            scan = (
                SqlCatalog("default", uri=self.section.catalog)
                .load_table(self.section.table)
                .scan()
            )
            found = scan.to_arrow().to_pylist()
            names = {Path(t.file.file_path.removeprefix("file://")) for t in scan.plan_files()}
        else:
            runs = json.loads(newest_manifest(self.folder).read_text())["runs"]
            names = {self.folder / file for run in runs for file in run["files"]}
            found = []
            for name in names:
                k = name.parent.name.removeprefix("k=")
                rows = pq.ParquetFile(name).read().to_pylist()
                found += [{"n": row["n"], "k": row.get("k", k)} for row in rows]
        return sorted((row["n"], row["k"]) for row in found), names


class RandomTables:
    """The tables of one seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._base = folder
        self._strangers: dict[Path, str] = {}
        self._count = 0
        self.steps: list[str] = []
        """What was done, for whoever looks for the reason of a failure."""
        self._tables = []
        for name in FOLDERS:
            by = ("k",) if self._random.random() < 0.5 else ()
            format = self._random.choice(FORMATS)
            self._tables.append(Table.of(folder, name, format, by))
            self._run(self._tables[-1], "append", None, "")
        for outer in self._tables[:2]:
            for link in ("link", "k=l"):
                (outer.folder / link).symlink_to(self._tables[-1].folder)

    def step(self) -> None:
        """Do one thing, and check that everything is there that has to be."""
        table = self._random.choice(self._tables)
        choose: list[tuple[Callable[[Table], None], int]] = [
            (self._job, 5), (self._killed, 4), (self._clean, 3), (self._stranger, 2),
        ]  # fmt: skip
        choose += [(self._restore, 3)] if table.format == "delta" else []
        choose += [(self._maintain, 2)] if table.format != "parquet" else []
        doing, weights = zip(*choose, strict=True)
        do = self._random.choices(doing, weights)[0]
        self.steps.append(f"{do.__name__} {table.folder.relative_to(self._base)} {table.format}")
        do(table)
        self.check()

    def check(self) -> None:
        for table in self._tables:
            assert table.read() == (sorted(table.now.rows), table.now.live), table.folder
        on_disk = {path for path in self._base.rglob("part-*") if not _is_linked(path)}
        expected = {
            path for t in self._tables for path in (*t.now.live, *t.removed, *t.left)
        }  # fmt: skip
        assert on_disk - self._strangers.keys() == expected
        assert {path: path.read_text() for path in self._strangers} == self._strangers

    def _job(self, table: Table) -> None:
        self._run(table, self._mode(), self._run_id(table), "")

    def _killed(self, table: Table) -> None:
        moment = self._random.choice(("written", "committed"))
        self._run(table, self._mode(), self._run_id(table), moment)

    def _mode(self) -> str:
        return self._random.choice(("append", "append", "overwrite"))

    def _run_id(self, table: Table) -> str | None:
        if table.is_restored and not RUNS_AFTER_RESTORE:
            return None
        return self._random.choice((None, "mrflight/job/monday", "mrflight/job/tuesday"))

    def _run(self, table: Table, mode: str, run: str | None, killed: str) -> None:
        self.steps.append(f"  {mode} run {run} killed {killed}")
        before = tree(self._base)
        section = msgspec.structs.replace(table.section, mode=mode)
        job_id = f"20200101T000000-{self._random.getrandbits(48):012x}"
        sink = None
        with suppress(OutputError):
            sink = open_sink(section, self._base, {}, job_id, run)
        if sink is None:  # an overwrite that would leave others' files in the folder
            self.steps.append("  refused")
            assert (mode, table.format) == ("overwrite", "parquet")
            assert tree(self._base) == before
            return
        if table.format == "parquet":  # what a killed job has replaced is deleted first
            table.removed.clear()
        assert sink.was_committed() == (run in table.now.runs)
        if sink.was_committed():
            return
        first, self._count = self._count, self._count + 3
        rows = [(n, "ab"[n % 2]) for n in range(first, self._count)]
        parts = tuple(written(sink, rows))
        files = {table.folder / part.path for part in parts}
        if killed == "written":
            table.left |= dict.fromkeys(files, run)
            return
        version = sink.commit(Commit(parts, SCHEMA))
        keeps = mode == "append"
        replaced = set() if keeps else table.now.live
        table.now = Version(
            [*(table.now.rows if keeps else []), *rows],
            {*(table.now.live - replaced), *files},
            {*table.now.runs, *([] if run is None else [run])},
        )
        if table.format == "parquet":
            replaced |= {path for path, of in table.left.items() if run is not None and of == run}
            table.left = {path: of for path, of in table.left.items() if path not in replaced}
        table.removed |= replaced
        if table.format == "delta":
            assert version is not None
            table.versions[version] = table.now
        if not killed:
            sink.cleanup()
            if table.format == "parquet":
                table.removed.clear()

    def _clean(self, table: Table) -> None:
        done = table.command("clean", "--remove", "--older-than", "0 s")
        listed = {table.folder / line.split("  ")[0] for line in done.stdout.splitlines()}
        replaced = table.removed if table.format == "parquet" else set()
        assert listed == table.left.keys() | replaced
        table.left.clear()
        table.removed -= replaced

    def _restore(self, table: Table) -> None:
        newest = DeltaTable(table.folder).version()
        if not (older := [version for version in table.versions if version < newest]):
            return
        version = self._random.choice(older)
        DeltaTable(table.folder).restore(version)
        before, table.now = table.now, table.versions[version]
        table.removed = (table.removed | before.live) - table.now.live
        table.versions[DeltaTable(table.folder).version()] = table.now
        table.is_restored = True
        if not RUNS_AFTER_RESTORE:
            table.now = Version(table.now.rows, table.now.live, before.runs)

    def _maintain(self, table: Table) -> None:
        table.command("maintain", "--retain", "0 s", "--force")
        rows, live = table.read()
        assert rows == sorted(table.now.rows)
        table.now = Version(rows, live, table.now.runs)
        table.removed.clear()
        if table.format == "delta":
            table.versions = {DeltaTable(table.folder).version(): table.now}

    def _stranger(self, table: Table) -> None:
        """Somebody puts a file of his into the folder, or below it, perhaps with a name of ours."""
        name = f"part-00000-0-20200101T000000-{self._random.getrandbits(48):012x}.parquet"
        folder = self._random.choice(("_mine", "_mine/k=a", "_mine", "", "mine", "k=a/mine"))
        if not folder or self._random.random() < 0.5:
            name = f"notes-{self._random.getrandbits(24)}.txt"
        path = table.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        self._strangers[path] = name


def _is_linked(path: Path) -> bool:
    return any(folder.is_symlink() for folder in path.parents)
