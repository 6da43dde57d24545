"""One change of a row, as it is taken out of its message."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

Row = TypeVar("Row")

STORED_OPERATIONS = ("c", "u", "r")
"""Operations after which the row is there: it was created, updated, or read for a snapshot."""

DELETE = "d"

_NO_ROWS = {
    "t": "a truncate event, which does not say which rows are deleted; begin again with a new "
    "snapshot, or let Debezium leave them out (skipped.operations = t)",
}


class Change(NamedTuple, Generic[Row]):
    """An operation, and the row after it; for a delete, what is known of the row before it."""

    operation: str
    row: Row


def check_operation(operation: object) -> str:
    """Return an operation that is for one row; raise ValueError, in words, for any other."""
    if operation == DELETE or operation in STORED_OPERATIONS:
        return str(operation)
    if operation is None:
        raise ValueError(
            "the message is no change event of Debezium: it has no op; write it with Debezium's "
            'envelope, or remove envelope = "debezium" if only the row is in it'
        )
    known = _NO_ROWS.get(str(operation))
    raise ValueError(
        f"the message is {known}"
        if known
        else f"the message is a change event with the unknown op {str(operation)[:20]!r}"
    )


def no_row(operation: str) -> ValueError:
    """Return the error for a change without a row."""
    if operation == DELETE:
        return ValueError(
            "the message is a delete (op d) without the row before it, and its key does not have "
            "the row's columns; write keys as the format of the values, or the whole row before a "
            "change (in PostgreSQL, REPLICA IDENTITY FULL)"
        )
    return ValueError(f"the message has the op {operation!r}, and after it there is no row")
