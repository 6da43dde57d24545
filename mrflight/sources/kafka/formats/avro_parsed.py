"""Schemas of Avro as fastavro takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=64)
def parsed_schema(text: str) -> Mapping[str, Any]:
    """Return a schema as fastavro takes it; raises ValueError for one that it cannot read."""
    from fastavro import parse_schema

    try:
        return parse_schema(_with_plain_uuids(json.loads(text)))  # type: ignore[no-any-return,unused-ignore]
    except Exception as error:  # of many kinds, for any text
        raise ValueError(f"its schema cannot be read: {error}") from error


def _with_plain_uuids(kind: Any) -> Any:
    """Return a schema whose uuids are the strings that they are written as.

    fastavro makes Python objects of them, which no column of strings takes.
    """
    if isinstance(kind, list):
        return [_with_plain_uuids(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    is_uuid = kind.get("type") == "string" and kind.get("logicalType") == "uuid"
    kept = {key: value for key, value in kind.items() if not (is_uuid and key == "logicalType")}
    places = ("type", "items", "values", "fields")
    return {
        key: _with_plain_uuids(value) if key in places else value for key, value in kept.items()
    }
