"""New fields of events, and the types that they get."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mrflight.sources.bad_rows import BadRow
from mrflight.sources.kafka.rejected_message import RejectedMessage
from mrflight.streams.schema_growth import with_new_fields

KNOWN = pa.schema([("n", pa.int64())])


def rejected(value: bytes | None) -> BadRow:
    return RejectedMessage("f", 0, "why", "", "t", 0, 0, -1, None, value)


def grown(*values: bytes | None) -> list[str] | None:
    found = with_new_fields(KNOWN, [rejected(each) for each in values], ("_offset",))
    if found is None:
        return None
    assert found.field(0) == KNOWN.field(0)
    return [f"{each.name} {each.type}" for each in list(found)[1:]]


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (b"1", "int64"),
        (b"1.5", "double"),
        (b"true", "bool"),
        (b'"x"', "string"),
        (b"null", "string"),
        (b'"2024-01-01T05:00:00+05:00"', "string"),
        (b'"2024-01-01"', "string"),
        (b"[1, 2]", "list<item: int64>"),
        (b"[]", "list<item: string>"),
        (b'{"a": 1, "b": null}', "struct<a: int64, b: string>"),
        (b'[{"a": "2024-01-01"}]', "list<item: struct<a: string>>"),
        (b"12345678901234567890", "double"),
    ],
)
def test_types_are_inferred(value: bytes, type: str) -> None:
    assert grown(b'{"n": 1, "m": ' + value + b"}") == [f"m {type}"]


@pytest.mark.parametrize(
    "values",
    [
        (),
        (b"no json", b"[1]", b"", None, b"1"),
        (b'{"n": "x"}',),
        (b'{"_offset": 1}',),
        (b'{"m": {}}',),
        (b'{"m": [{}]}',),
        (b'{"m": {"a": {}}}',),
        (b'{"m": 1}', b'{"m": "x"}'),
        (b'{"m": [1]}', b'{"m": {"a": 1}}'),
    ],
)
def test_events_that_stay_rejected(values: tuple[bytes | None, ...]) -> None:
    assert grown(*values) is None


def test_fields_are_in_the_order_in_which_they_come() -> None:
    assert grown(b'{"b": 1}', b"bad", b'{"a": 1, "b": 2.5}', b'{"c": null, "b": null}') == [
        "b double",
        "a int64",
        "c string",
    ]


def test_a_field_that_contradicts_itself_does_not_keep_others_out() -> None:
    assert grown(b'{"m": 1, "k": 1}', b'{"m": "x"}') == ["k int64"]


def test_a_large_event_has_its_field() -> None:
    assert grown(b'{"m": "' + b"x" * (3 << 20) + b'"}', b'{"m": "y"}') == ["m string"]


def test_rows_of_files_have_no_fields() -> None:
    assert with_new_fields(KNOWN, [BadRow("f", 1, "why", '{"m": 1}')]) is None
