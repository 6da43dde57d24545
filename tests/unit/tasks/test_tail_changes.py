"""Changes in a tail are marked if they delete, as the merge of their stream would see them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mrflight.config.output_section import OutputSection
from mrflight.config.tail_merge import TailMerge
from mrflight.errors import ColumnNotFoundError
from mrflight.shuffle.wire.tail_protocol import DELETED_COLUMN
from mrflight.tasks.tail_changes import TailChanges

ROWS = pa.record_batch({"id": [1, 2, 3], "at": [1, 2, 3], "gone": [True, False, None]})


def changes(**more: Any) -> TailChanges:
    output = OutputSection(table="t", mode="merge", keys=["id"], order_by="at", **more)
    found = TailChanges.of(output)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("delete_when", "deleted"),
    [
        (None, [False, False, False]),
        ("gone", [True, False, False]),
        ("not gone", [False, True, False]),
        ("id + at > 3", [False, True, True]),
        ("true", [True, True, True]),
    ],
)
@pytest.mark.parametrize("rows", [0, 3])
def test_deletes_are_marked(delete_when: str | None, deleted: list[bool], rows: int) -> None:
    marked = changes(delete_when=delete_when).mark(ROWS.slice(0, rows))
    assert marked.schema.names == ["id", "at", "gone", DELETED_COLUMN]
    assert marked[DELETED_COLUMN].to_pylist() == deleted[:rows]


def test_a_stream_that_appends_has_no_changes() -> None:
    assert TailChanges.of(OutputSection(table="t", mode="append")) is None
    assert changes().merge == TailMerge(("id",), "at")


@pytest.mark.parametrize("name", ["id", "at"])
def test_rows_without_a_column_of_the_merge_are_refused(name: str) -> None:
    with pytest.raises(ColumnNotFoundError, match=name):
        changes().mark(ROWS.drop_columns([name]))


def test_rows_without_columns_stay() -> None:
    nothing = pa.RecordBatch.from_pylist([], schema=pa.schema([]))
    assert changes().mark(nothing).num_columns == 0
