"""Random commits to a table of any format on a disk, and the rows that it has after each.

Run as a program with a folder and seeds, each in a folder of its own there.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from mrflight.config.formats import OutputFormat
from mrflight.config.output_section import OutputSection
from mrflight.ids import new_job_id
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Sink
from mrflight.storage.ducklake.process_pool import end_idle_processes
from tests.support.faults.lost_power import Call, Power, mark, restore
from tests.support.tables import synced_commits as commits
from tests.support.tables.outputs import Rows
from tests.support.tables.synced_commits import Do, Found

KINDS = ("delta", "delta", "parquet", "csv", "arrow", "iceberg", "sqlite", "duckdb")
"""The formats of tables; the last two are the catalogs of a DuckLake."""
_CUTS = 4


class RandomCommits:
    """The commits of one seed to one table."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.kind = self._random.choice(KINDS)
        has_partitions = self.kind in ("delta", "parquet") and self._random.random() < 0.4
        self._by = ("k",) if has_partitions else ()
        self.steps: list[tuple[str, Do]] = []
        self.versions: list[Found] = [None]
        """The rows before the first commit, and after each."""
        self._count = self._offset = 0
        for _ in range(self._random.randint(2, 5)):
            self._add()

    def run(self, base: Path) -> None:
        """Make all commits in a process that is recorded."""
        for _, step in self.steps:
            mark("begin", base)
            step(base)
            mark("said", base)

    def check(self, base: Path, calls: list[Call]) -> None:
        """Lose the power after some of the calls: the table can be read and appended to."""
        for cut in sorted(self._random.choices(range(1, len(calls) + 1), k=_CUTS)):
            power = Power(base, keeps_removed=self._random.random() < 0.5)
            for call in calls[:cut]:
                power.apply(call)
            marks = [call.what for call in calls[:cut] if call.what in ("begin", "said")]
            begun = marks.count("begin")
            restore(power.files(), base)
            found = self._read(base)
            allowed = self.versions[max(0, begun - (marks[-1:] != ["said"])) : begun + 1]
            assert found in allowed, f"after call {cut} of {len(calls)}, {calls[cut - 1]}"
            if (
                found is not None
            ):  # in a folder files of a job that has not ended would be in the way
                rows = self._rows()
                commits.commit_rows(self._open(base), rows)
                assert self._read(base) == _sorted([*found, *rows])
            end_idle_processes()

    def _add(self) -> None:
        choose = [("append", 4), ("overwrite", 2)]
        is_folder = self.kind in ("delta", "parquet", "csv", "arrow")
        choose += [("rerun", 2)] if is_folder else []
        choose += [("stream", 2)] if self.kind == "delta" else []
        if self.versions[-1]:
            choose += [("maintain", 2)] if not is_folder or self.kind == "delta" else []
            choose += [("merge", 1), ("remove", 1)] if self.kind == "delta" and not self._by else []
        names, weights = zip(*choose, strict=True)
        name = self._random.choices(names, weights)[0]
        before = self.versions[-1] or []
        step, after = getattr(self, f"_{name}")(before)
        self.steps.append((name, step))
        self.versions.append(_sorted(after))

    def _append(self, before: Rows) -> tuple[Do, Rows]:
        rows = self._rows()
        return self._written("append", rows), [*before, *rows]

    def _overwrite(self, before: Rows) -> tuple[Do, Rows]:
        rows = self._rows()
        return self._written("overwrite", rows), rows

    def _rerun(self, before: Rows) -> tuple[Do, Rows]:
        mode, rows = self._random.choice(("append", "overwrite")), self._rows()
        run_id = f"run {self._count}"
        step = commits.found_by_rerun(
            cast(OutputFormat, self.kind), mode, *self._by, rows=rows, run_id=run_id
        )
        return step, [*(before if mode == "append" else []), *rows]

    def _stream(self, before: Rows) -> tuple[Do, Rows]:
        rows, start, self._offset = self._rows(), self._offset, self._offset + 3
        step = commits.found_by_stream(*self._by, rows=rows, start=start, stop=self._offset)
        return step, [*before, *rows]

    def _maintain(self, before: Rows) -> tuple[Do, Rows]:
        if self.kind == "delta":
            return commits.maintain_delta, before
        if self.kind == "iceberg":
            return commits.maintain_iceberg, before
        return commits.maintain_ducklake(self.kind), before

    def _merge(self, before: Rows) -> tuple[Do, Rows]:
        rows = [(self._random.choice(before)[0], "z"), *self._rows()]
        after = dict([*before, *rows])
        return partial(commits.merge_delta, rows=rows), list(after.items())

    def _remove(self, before: Rows) -> tuple[Do, Rows]:
        n = self._random.choice(before)[0]
        return partial(commits.remove_delta_rows, n=n), [row for row in before if row[0] != n]

    def _rows(self) -> Rows:
        first, self._count = self._count, self._count + self._random.randint(1, 5)
        return [(n, self._random.choice("abc")) for n in range(first, self._count)]

    def _written(self, mode: str, rows: Rows) -> Do:
        return lambda base: commits.run(self._open(base, mode), base, rows)

    def _open(self, base: Path, mode: str = "append") -> Sink:
        if self.kind == "iceberg":
            return commits.lake(base).open(cast(commits.Mode, mode), new_job_id())
        if self.kind in ("sqlite", "duckdb"):
            return commits.ducklake_in(self.kind, base).open(mode, new_job_id())
        section = OutputSection(
            table="out/table",
            format=cast(OutputFormat, self.kind),
            mode=cast(commits.Mode, mode),
            partition_by=list(self._by),
        )
        return open_sink(section, base, {}, new_job_id(), None)

    def _read(self, base: Path) -> Found:
        readers: dict[str, Callable[[Path], Found]] = {
            "delta": commits.read_delta,
            "iceberg": commits.read_iceberg,
            **{kind: commits.read_ducklake(kind) for kind in ("sqlite", "duckdb")},
        }
        read = readers.get(self.kind) or commits.read_folder(cast(OutputFormat, self.kind))
        found = read(base)
        return None if found is None else _sorted(found)


def _sorted(rows: Rows) -> Found:
    return sorted(rows)


def main(root: Path, *seeds: str) -> None:
    for seed in seeds:
        (root / seed).mkdir()
        RandomCommits(int(seed)).run(root / seed)
    end_idle_processes()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
