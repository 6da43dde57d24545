"""Runs the records of a file, and compares each query by stages with DataFusion in one process."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from experiments.sqllogictest.records import Record
from mrflight.compute.sql.engine import error_text, new_session
from tests.support.queries.answers import ParquetFiles, Way
from tests.support.queries.random_queries import RandomQuery

WAYS = (
    Way(7, "never", "fed"),
    Way(2, "never", "scanned"),
    Way(7, "always", "scanned"),
    Way(2, "always", "fed"),
    Way(7, "planned", "scanned"),
)
"""How queries are planned and run, in turn."""

_ROWS = re.compile(r"\s*(\(|(select|with|from|values)\b)(?! recursive)", re.IGNORECASE)
"""The start of a query that a job may have."""

_MAX_ROWS = 10_000
"""The files have row groups of five rows, so larger tables are left out."""

SAME, OTHER_ORDER, DIFFERENT, REFUSED = "same", "other order", "different", "refused"
LEFT_OUT, FAILED_STATEMENT = "left out", "failed statement"
"""The outcomes of what says nothing about the stages: of a query that DataFusion alone cannot
answer from Parquet files, and of a statement that it cannot run."""


class RunError(Exception):
    """An error or a panic of what was run."""


@contextmanager
def errors_and_panics() -> Iterator[None]:
    """Raise errors and panics, which are no Exception, as RunError.

    DataFusion raises a bare Exception for most errors.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise RunError(f"{type(error).__name__}: {error_text(error)}") from error


class Outcome(NamedTuple):
    """What became of a query."""

    record: Record
    way: Way
    kind: str
    reason: str = ""


class Session:
    """The tables that the statements of a file have made until now."""

    def __init__(self) -> None:
        self._session = new_session({})
        self._count = 0
        self._tables: dict[str, pa.Table] = {}

    def outcomes(self, records: Iterator[Record]) -> Iterator[Outcome]:
        """Run all records; yield what became of each query, and of statements that fail."""
        for record in records:
            if record.is_error:
                continue
            if record.is_query and _ROWS.match(record.text):
                yield self._compared(record)
                continue
            self._tables = {}
            try:
                with errors_and_panics():
                    self._session.sql(record.text).collect()
            except RunError as error:  # queries of what it would have made are left out
                yield Outcome(record, WAYS[0], FAILED_STATEMENT, str(error))

    def _compared(self, record: Record) -> Outcome:
        way = WAYS[self._count % len(WAYS)]
        words = set(re.findall(r"\w+", record.text))
        names = self._session.catalog().schema().table_names()
        query = RandomQuery(record.text, is_ordered=True)
        with tempfile.TemporaryDirectory(prefix="slt-") as folder:
            try:
                with errors_and_panics():
                    tables = {name: self._table(name) for name in names if name in words}
                if not tables:
                    return Outcome(record, way, LEFT_OUT, "it reads no table")
                if any(table.num_rows > _MAX_ROWS for table in tables.values()):
                    return Outcome(record, way, LEFT_OUT, f"a table has over {_MAX_ROWS:,} rows")
                with errors_and_panics():
                    files = ParquetFiles(Path(folder), tables)
                    right = files.by_datafusion(query)
            except RunError as error:
                return Outcome(record, way, LEFT_OUT, str(error))
            self._count += 1
            try:
                with errors_and_panics():
                    found = files.by_stages(query, way)
            except RunError as error:
                return Outcome(record, way, REFUSED, str(error))
        if repr(found) == repr(right):
            return Outcome(record, way, SAME)
        if sorted(map(repr, found)) == sorted(map(repr, right)):
            is_ordered = "order by" in " ".join(record.text.lower().split())
            return Outcome(record, way, OTHER_ORDER if is_ordered else SAME)
        reason = f"{len(found)} rows {found[:2]}, not {len(right)} rows {right[:2]}"
        return Outcome(record, way, DIFFERENT, reason)

    def _table(self, name: str) -> pa.Table:
        if name not in self._tables:
            self._tables[name] = self._session.table(name).to_arrow_table()
        return self._tables[name]
