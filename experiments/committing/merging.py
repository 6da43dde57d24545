"""A small merge into a table of several files, for what its requests cost.

Every file has keys of its own, told apart by the log's minima and maxima. The source has rows of
one of them: most have new values, one is to be deleted where ``deletes``, and one row is new.
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
    """Into a table of ``files``, of ``rows`` rows each."""

    files: int
    rows: int
    deletes: bool = False

    @property
    def name(self) -> str:
        return f"a merge into {self.files} files" + (", with a row to delete" * self.deletes)

    def file(self, number: int) -> pa.Table:
        """Random values, which no codec makes smaller."""
        values = np.random.default_rng(number).integers(0, 2**63, self.rows)
        keys = np.arange(number * self.rows, (number + 1) * self.rows)
        return pa.table({"key": keys, "value": values})

    def changes(self) -> pa.Table:
        """Return changes to the first file's keys, and one new key."""
        keys = np.append(np.arange(CHANGED_ROWS), -1)
        values = np.arange(len(keys)) - self.deletes  # the first is less than zero
        return pa.table({"key": keys, "value": values})

    def result(self) -> pa.Table:
        """What the table has then, by its keys."""
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
    """RuntimeError where the table is not exactly what the merge makes of it."""
    table = deltalake.DeltaTable(f"{bucket.url}/{NAME}", storage_options=bucket.options)
    found = table.to_pyarrow_table().sort_by("key")
    if found != merge.result():
        raise RuntimeError(f"{merge.name}: the table has {len(found)} rows, not those it should")


def by_mrflight_job(bucket: Bucket, merge: SmallMerge) -> None:
    """The whole job, with its source read from a file."""
    run_job(bucket, _JOB, merge.changes(), *[f"output.delete_when={_DELETES}"] * merge.deletes)


def by_deltalake(bucket: Bucket, merge: SmallMerge) -> None:
    """What deltalake has for it, of the same rows in memory."""
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
