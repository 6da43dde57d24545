"""Commit an output by renaming, as Hadoop's FileOutputCommitter does it on S3.

A task writes to a folder of its attempt. Its commit moves the files, and in version 1 the job's
commit moves them again. S3 cannot rename, so a move is a copy and a delete. There is no connector,
so the folder markers that it adds and its lookups of parent folders are missing: these are the
least requests that the algorithm takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.committing.output import Output

_TEMPORARY = "_temporary/0"


@dataclass(frozen=True)
class RenameCommitter:
    """Commits to the folder ``root`` of a bucket, with version 1 or 2 of the algorithm."""

    store: Any
    root: str
    version: int

    def run(self, output: Output) -> None:
        """Run all tasks, one after the other, and then the commit of the job."""
        for part in range(output.parts):
            for attempt in range(output.attempts(part)):
                self.write(part, attempt, output.part(part))
            self.commit_task(part, 0)
            for attempt in range(1, output.attempts(part)):
                self.abort_task(part, attempt)
        self.commit_job()

    def write(self, part: int, attempt: int, rows: pa.Table) -> None:
        name = f"part-{part:05}.parquet"
        file = pa.BufferOutputStream()
        pq.write_table(rows, file, compression="snappy")
        obstore.put(
            self.store, f"{self._attempt(part, attempt)}/{name}", file.getvalue().to_pybytes()
        )

    def commit_task(self, part: int, attempt: int) -> None:
        to = f"{self.root}/{_TEMPORARY}/task_{part:06}" if self.version == 1 else self.root
        self._rename_all(self._attempt(part, attempt), to)

    def abort_task(self, part: int, attempt: int) -> None:
        for path in self._files(self._attempt(part, attempt)):
            obstore.delete(self.store, path)

    def commit_job(self) -> None:
        if self.version == 1:
            found = obstore.list_with_delimiter(self.store, f"{self.root}/{_TEMPORARY}")
            for task in found["common_prefixes"]:
                self._rename_all(task, self.root)
        for path in self._files(f"{self.root}/_temporary"):
            obstore.delete(self.store, path)
        obstore.put(self.store, f"{self.root}/_SUCCESS", b"")

    def _attempt(self, part: int, attempt: int) -> str:
        return f"{self.root}/{_TEMPORARY}/_temporary/attempt_m_{part:06}_{attempt}"

    def _rename_all(self, folder: str, to: str) -> None:
        for path in self._files(folder):
            obstore.copy(self.store, path, f"{to}/{path.rpartition('/')[2]}")
            obstore.delete(self.store, path)

    def _files(self, folder: str) -> list[str]:
        return [each["path"] for chunk in obstore.list(self.store, folder) for each in chunk]
