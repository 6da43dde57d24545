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
from mrflight.errors import MrflightError
from tests.support.query_answers import ParquetFiles, Way
from tests.support.random_queries import RandomQuery

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

_MOST_ROWS = 10_000
"""The files have row groups of five rows, so larger tables are left out."""

SAME, OTHER_ORDER, DIFFERENT, REFUSED = "same", "other order", "different", "refused"


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a panic of DataFusion, which is no Exception, as a RuntimeError."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as panic:
        raise RuntimeError(f"a panic: {panic}") from panic


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
        """Run all records; yield the outcome of each query of tables that DataFusion answers."""
        for record in records:
            if record.is_error:
                continue
            if record.is_query and _ROWS.match(record.text):
                if (outcome := self._compared(record)) is not None:
                    yield outcome
                continue
            self._tables = {}
            try:
                with panics_as_errors():
                    self._session.sql(record.text).collect()
            except Exception:
                continue  # what it would have made is missing, and queries of it say nothing

    def _compared(self, record: Record) -> Outcome | None:
        """Return the outcome of a query; None for one that says nothing."""
        words = set(re.findall(r"\w+", record.text))
        names = self._session.catalog().schema().table_names()
        try:
            with panics_as_errors():
                tables = {name: self._table(name) for name in names if name in words}
        except Exception:  # a table that cannot be read
            return None
        if not tables or any(table.num_rows > _MOST_ROWS for table in tables.values()):
            return None
        query = RandomQuery(record.text, is_ordered=True)
        with tempfile.TemporaryDirectory(prefix="slt-") as folder:
            try:
                files = ParquetFiles(Path(folder), tables)
                with panics_as_errors():
                    right = files.by_datafusion(query)
            except Exception:  # types that Parquet does not have, or an error of DataFusion
                return None
            way = WAYS[self._count % len(WAYS)]
            self._count += 1
            try:
                with panics_as_errors():
                    found = files.by_stages(query, way)
            except MrflightError as error:
                return Outcome(record, way, REFUSED, error_text(error))
            except Exception as error:
                return Outcome(record, way, REFUSED, f"{type(error).__name__}: {error}")
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
