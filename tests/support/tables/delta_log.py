"""A table's log written by hand, as other writers would."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def commit(table: Path, *actions: dict[str, Any]) -> None:
    """Add a version to the log by hand, as other writers would."""
    log = table / "_delta_log"
    version = len(list(log.glob("*.json")))
    (log / f"{version:020}.json").write_text("\n".join(json.dumps(action) for action in actions))


def action(table: Path, kind: str) -> dict[str, Any]:
    lines = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    found: dict[str, Any] = next(
        json.loads(line)[kind] for line in lines if kind in json.loads(line)
    )
    return found


def protocol(*features: str) -> dict[str, Any]:
    names = list(features)
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": names, "writerFeatures": names}}


def first_row_deleted() -> dict[str, Any]:
    """An inline deletion vector of row 0, as Delta's protocol writes it."""
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 0)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    size = len(data)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(data + bytes(-size % 4)),
        "sizeInBytes": size,
        "cardinality": 1,
    }


def z85(data: bytes) -> str:
    """ZeroMQ's base 85 (rfc.zeromq.org/spec/32)."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = [int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4)]
    return "".join(digits[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
