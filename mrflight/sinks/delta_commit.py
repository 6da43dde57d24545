"""Part files into one version of a Delta table, once per application id.

Everything is committed with deltalake's own retries off. With them on, two
runs that create the same table both succeed, the second as version 1 with its
own schema; a commit that lost the race to its version is checked again, but
for the application id of the winner only among the versions since its own
load. Off, a commit is made to the version after the one that was looked at, or
not at all. So the version is known before it is written, which is why it can
be the number of the application transaction.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mrflight.errors import CommitError, OutputError
from mrflight.sinks.base import PartFile
from mrflight.sinks.delta_errors import delta_errors, import_deltalake
from mrflight.sinks.delta_table import DeltaTable
from mrflight.storage import Location

TRIES = 30
"""How often another writer may be faster."""
LONGEST_PAUSE_S = 0.2

NTZ_FEATURE = "timestampNtz"


@dataclass(frozen=True)
class DeltaCommit:
    """One commit: what is added, to which table, and by whom."""

    location: Location
    mode: str
    partition_by: tuple[str, ...]
    schema: pa.Schema
    """As it is stored; for an append that of the table, which must still have it."""
    parts: Sequence[PartFile]
    app_id: str
    job_id: str

    def run(self) -> tuple[int, bool]:
        """The version in which ``app_id`` is committed, and whether it was by this call.

        Raises OutputError where the table has changed so that it takes no such commit,
        CommitError where the store fails or other writers were faster each time.
        """
        failure: CommitError | None = None
        seen: int | None = -1
        for _ in range(TRIES):
            table = DeltaTable.load(self.location)
            version = None if table is None else table.version
            done = None if table is None else table.committed_version(self.app_id)
            if done is not None:
                return done, failure is not None and self._is_ours(table, done)
            if failure is not None and version == seen:
                raise failure  # nobody was faster: it is the store
            if failure is not None:
                time.sleep(random.uniform(0, LONGEST_PAUSE_S))
            seen = version
            try:
                return self._try(table), True
            except CommitError as error:
                failure = error
        raise CommitError(
            f"{self.location.url}: other writers were faster {TRIES} times; run the job again"
        ) from failure
