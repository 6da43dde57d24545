"""Merge a few rows into a table of several files, and count the requests.

Every file has its own range of keys, which the log's minima and maxima show. The source has rows
with keys of one file: most have new values, one deletes its row if ``deletes``, and one is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import deltalake
import numpy as np
import pyarrow as pa

from experiments.committing.ways import NAME, run_job
from tests.services.minio import Bucket

CHANGED_ROWS = 10

_JOB = """
[job]
name = "merge"
[inputs.changes]
path = "rows.parquet"
[output]
table = "out"
mode = "merge"
keys = ["key"]
[storage]
"""
_DELETES = "value < 0"


@dataclass(frozen=True)
class SmallMerge:
    """A merge into a table of ``files`` files with ``rows`` rows each."""

    files: int
    rows: int
    deletes: bool = False

    @property
    def name(self) -> str:
        return f"a merge into {self.files} files" + (", with a row to delete" * self.deletes)

    def file(self, number: int) -> pa.Table:
        """Return a file's rows, with random values that do not compress."""
        values = np.random.default_rng(number).integers(0, 2**63, self.rows)
        keys = np.arange(number * self.rows, (number + 1) * self.rows)
        return pa.table({"key": keys, "value": values})

    def changes(self) -> pa.Table:
        """Return changes to the first file's keys, and one new key."""
        keys = np.append(np.arange(CHANGED_ROWS), -1)
        values = np.arange(len(keys)) - self.deletes  # the first is less than zero
        return pa.table({"key": keys, "value": values})

    def result(self) -> pa.Table:
        """Return the rows of the table after the merge, sorted by key."""
        first = self.file(0).slice(CHANGED_ROWS)
        others = [self.file(number) for number in range(1, self.files)]
        table = pa.concat_tables([self.changes().slice(int(self.deletes)), first, *others])
        return table.sort_by("key")


def make_table(bucket: Bucket, merge: SmallMerge) -> None:
    for number in range(merge.files):
        deltalake.write_deltalake(
            f"{bucket.url}/{NAME}",
            merge.file(number),
            mode="append",
            storage_options=bucket.options,
        )


def check(bucket: Bucket, merge: SmallMerge) -> None:
    """Raise RuntimeError unless the table is the exact result of the merge."""
    table = deltalake.DeltaTable(f"{bucket.url}/{NAME}", storage_options=bucket.options)
    found = table.to_pyarrow_table().sort_by("key")
    if found != merge.result():
        raise RuntimeError(f"{merge.name}: the table has {len(found)} rows, not those it should")


def by_mrflight_job(bucket: Bucket, merge: SmallMerge) -> None:
    """Run a whole job, which reads its source from a file."""
    run_job(bucket, _JOB, merge.changes(), *[f"output.delete_when={_DELETES}"] * merge.deletes)


def by_deltalake(bucket: Bucket, merge: SmallMerge) -> None:
    """Run deltalake's merge of the same rows in memory."""
    url = f"{bucket.url}/{NAME}"
    table = deltalake.DeltaTable(url, storage_options=bucket.options)
    started = table.merge(merge.changes(), "t.key = s.key", source_alias="s", target_alias="t")
    if merge.deletes:
        started = started.when_matched_delete(f"s.{_DELETES}")
    started.when_matched_update_all().when_not_matched_insert_all().execute()


WAYS: dict[str, Callable[[Bucket, SmallMerge], None]] = {
    "mrflight, a job": by_mrflight_job,
    "deltalake's merge": by_deltalake,
}
