"""An SQL expression that is true or false for each row of a batch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sql.engine import check_installed, error_text, new_session
from mrflight.errors import ColumnNotFoundError, JobError, JobFileError

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, SessionContext

_BATCH_ROWS = 2**20
"""More rows than any batch has, so that DataFusion returns one batch for each."""

_MISSING = "No field named"
_UNKNOWN = re.compile(rf'{_MISSING} "?([^\s"]+?)"?\. ')
_NOT_OF_A_ROW = ("AggregateFunction(", "WindowFunction(")


class Predicate(msgspec.Struct, frozen=True):
    """An SQL expression that is true or false for a row. Picklable."""

    text: str
    key_path: str
    """The key path in the job file, for messages."""

    def check(self, schema: pa.Schema) -> None:
        """Raise JobFileError or ColumnNotFoundError if it cannot be evaluated for this schema."""
        check_installed(self.key_path)
        with self._translate_errors("rows of the result", schema):
            rows, expression = self._parse(empty_batch(schema))
            kind = pa.schema(rows.select(expression.alias("holds")).schema()).field(0).type
            if not pa.types.is_boolean(kind):
                raise self._job_file_error(
                    f"is {kind} and not a condition; compare it with something"
                )
            rows.filter(expression).collect()  # a filter refuses aggregates and windows

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns of ``schema`` that the expression needs, in their order.

        Raises JobFileError as `check` does.
        """
        self.check(schema)
        return [name for name in schema.names if name in self.text and self._needs(name, schema)]

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the expression is true; null counts as false.

        Raises JobFileError if it cannot be evaluated for the values.
        """
        with self._translate_errors(f"{batch.num_rows} rows of the result", batch.schema):
            rows, expression = self._parse(batch)
            found = rows.select(expression.alias("holds")).collect()
        held = pa.chunked_array([part.column(0) for part in found], pa.bool_()).combine_chunks()
        if len(held) != batch.num_rows:
            raise self._job_file_error(f"returned {len(held)} values for {batch.num_rows} rows")
        return pc.fill_null(held, False)

    def _parse(self, batch: pa.RecordBatch) -> tuple[DataFrame, Expr]:
        rows = _session().read_batch(batch)
        return rows, rows.parse_sql_expr(self.text)

    def _needs(self, name: str, schema: pa.Schema) -> bool:
        others = pa.schema([field for field in schema if field.name != name])
        try:
            self._parse(empty_batch(others))
        except Exception as error:  # DataFusion raises a bare Exception for all errors
            if _MISSING not in str(error):  # otherwise the column would be left out of a new table
                raise self._job_file_error(f"cannot be evaluated: {error}") from error
            return True
        return False

    @contextmanager
    def _translate_errors(self, rows: str, schema: pa.Schema) -> Iterator[None]:
        try:
            yield
        except JobError:
            raise
        except Exception as error:  # DataFusion raises a bare Exception for all errors
            message = " ".join(str(error).split())
            if unknown := _UNKNOWN.search(message):
                where = f"{self.key_path}: the result"
                raise ColumnNotFoundError.among(unknown[1], schema.names, where) from error
            if any(word in message for word in _NOT_OF_A_ROW):
                raise self._job_file_error(
                    "uses several rows, but is evaluated for one at a time"
                ) from error
            raise self._job_file_error(
                f"cannot be evaluated for {rows}: {error_text(error)}"
            ) from error

    def _job_file_error(self, reason: str) -> JobFileError:
        return JobFileError(f"{self.key_path}: {self.text!r} {reason}")


@cache
def _session() -> SessionContext:
    """Return the session of the process, which keeps no rows. A worker has one core."""
    return new_session({"datafusion.execution.batch_size": str(_BATCH_ROWS)})
