"""Makes DataFusion sessions, and translates DataFusion's errors.

DataFusion may be loaded before a fork. It starts threads with its first query, and these do not
survive a fork.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from mrflight.errors import ColumnNotFoundError, JobFileError, MrflightError
from mrflight.system.lazy_pandas import lazy_pandas

if TYPE_CHECKING:
    from datafusion import DataFrame, RuntimeEnvBuilder, SessionContext


_MAX_ERROR_CHARS = 300
"""An error text may contain a whole plan, so longer ones are cut."""

_OPTIONS = {
    "datafusion.sql_parser.enable_ident_normalization": "false",  # names keep their case
    # This rule fails for a field of a struct above a projection. It is for tables that can read
    # single fields.
    "datafusion.optimizer.enable_leaf_expression_pushdown": "false",
}

EXACT = {"datafusion.sql_parser.parse_float_as_decimal": "true"}
"""Literals with a decimal point are decimals, so that 0.06 + 0.01 is 0.07. Queries that read floats
do not get this option: DataFusion would compare the floats as decimals, which cannot hold NaN and
large values."""

_UNKNOWN_COLUMN = r"No field named (.+?)\. "
_NO_QUERY = (
    r"(DDL|DML|Statement) not supported: |only supports a single SQL statement|No SQL statements"
)
_SAME_NAME = (
    r'expression names but the expression "(.+)" at position \d+ and "(.+)" at position \d+ have '
)
_WRONG_ARGUMENTS = (
    r"a call to '(.+?)' function: coercion from (.+) to the signature Exact\((.+?)\) failed"
)
_UNKNOWN_TABLE = r"table '(?:datafusion\.public\.)?(.+?)' not found"


def import_datafusion(key_path: str) -> ModuleType:
    """Import DataFusion without pandas; raise JobFileError if it is not installed."""
    check_installed(key_path)
    lazy_pandas()  # DataFusion makes pyarrow import pandas, which is 0.3 of its 0.35 s
    import datafusion

    return datafusion


def check_installed(key_path: str) -> None:
    """Raise JobFileError if DataFusion is not installed."""
    if find_spec("datafusion") is None:
        raise JobFileError(
            f"{key_path} needs DataFusion, which is not installed: pip install 'mrflight[sql]'"
        )


def new_session(
    options: Mapping[str, str], *, partitions: int = 1, runtime: RuntimeEnvBuilder | None = None
) -> SessionContext:
    """Return a session without tables. It takes 3 ms once DataFusion is loaded."""
    lazy_pandas()  # DataFusion makes pyarrow import pandas, which is 0.3 of its 0.35 s
    from datafusion import SessionConfig, SessionContext

    config = SessionConfig({**_OPTIONS, **options}).with_target_partitions(partitions)
    return SessionContext(config, runtime)


def add_table(session: SessionContext, name: str, batches: list[pa.RecordBatch]) -> None:
    """Register rows in memory, in at least one batch, as a table."""
    session.register_record_batches(quoted(name), [batches])


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def query(session: SessionContext, text: str) -> DataFrame:
    """Plan a query. Raise for a statement that changes something or writes files."""
    from datafusion import SQLOptions

    only = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
    return session.sql_with_options(text, only)


def error_text(error: BaseException) -> str:
    """Return the text of an error in one line of bounded length."""
    words = " ".join(str(error).removeprefix("DataFusion error: ").split())
    return words if len(words) <= _MAX_ERROR_CHARS else f"{words[:_MAX_ERROR_CHARS]}..."


@contextmanager
def translate_errors(key_path: str, schemas: Mapping[str, pa.Schema]) -> Iterator[None]:
    """Translate DataFusion's errors for a query over these tables into ours, with the key path.

    An unknown column becomes ColumnNotFoundError, and everything else JobFileError.
    """
    try:
        yield
    except MrflightError:
        raise
    except Exception as error:  # DataFusion raises a bare Exception for all errors
        raise _translate(error, key_path, schemas) from error


def _translate(error: Exception, key_path: str, schemas: Mapping[str, pa.Schema]) -> MrflightError:
    words = " ".join([*str(error).split(), ""])
    if found := re.search(_UNKNOWN_COLUMN, words):
        names = [(table, name) for table, schema in schemas.items() for name in schema.names]
        return ColumnNotFoundError.among(
            _last_part(found[1]),
            [name if len(schemas) == 1 else f"{table}.{name}" for table, name in names],
            f"{key_path}: {' with '.join(schemas)}",
        )
    if found := re.search(_UNKNOWN_TABLE, words):
        named = f"tables have the names of the inputs: {', '.join(map(repr, schemas))}"
        unnamed = "give it a path: --table NAME=PATH, [inputs.NAME], or a path in quotes"
        return JobFileError(
            f"{key_path}: there is no table {found[1]!r}; {named if schemas else unnamed}"
        )
    if re.search(_NO_QUERY, words):
        return JobFileError(
            f"{key_path} must be one query that selects rows, without statements that change "
            f"tables or settings ({error_text(error)})"
        )
    if twice := re.search(_SAME_NAME, words):
        return JobFileError(
            f"{key_path}: {twice[1]} and {twice[2]} would be columns with the same name; "
            "rename one with `as`"
        )
    if call := re.search(_WRONG_ARGUMENTS, words):
        return JobFileError(
            f"{key_path}: {call[1]} takes arguments of the types {call[3]}, and is called with "
            f"{call[2]}; cast them"
        )
    return JobFileError(f"{key_path}: {error_text(error)}")


def _last_part(name: str) -> str:
    """Return the column name at the end of a name that may be quoted or qualified by a table."""
    if name.endswith('"'):
        return name[:-1].rpartition('"')[2]
    return name.rpartition(".")[2]
