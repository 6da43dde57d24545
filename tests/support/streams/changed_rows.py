"""A database table for tests, whose changes are written to a topic as Debezium writes them."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.services.kafka import Kafka

Row = dict[str, Any]
Message = tuple[bytes | None, bytes | None]
"""A key and a value."""

EPOCH = dt.date(1970, 1, 1)
KEY_NUMBER, VALUE_NUMBER = 1, 2
"""The schemas of keys and of envelopes in the registry."""

SHAPES = ("json with its schema", "plain json", "avro")

FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "name", "type": "string", "optional": True},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date", "optional": True},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
    {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    {
        "field": "price",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    },
]
CONNECT = {
    "type": "struct",
    "name": "shop.items.Envelope",
    "fields": [
        {"field": "before", "type": "struct", "optional": True, "fields": FIELDS},
        {"field": "after", "type": "struct", "optional": True, "fields": FIELDS},
        {"field": "source", "type": "struct", "fields": [{"field": "lsn", "type": "int64"}]},
        {"field": "op", "type": "string"},
        {"field": "ts_ms", "type": "int64", "optional": True},
    ],
}
TYPES = (
    'types = { id = "int64", name = "string", day = "date32", at = "timestamp[us]", '
    'zoned = "timestamp[us, UTC]", price = "decimal128(10, 2)" }'
)
"""What plain json does not say."""


def _optional(kind: str, name: str, **more: Any) -> Any:
    return ["null", {"type": kind, "connect.version": 1, "connect.name": name, **more}]


AVRO_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "day", "type": _optional("int", "io.debezium.time.Date")},
        {"name": "at", "type": _optional("long", "io.debezium.time.MicroTimestamp")},
        {"name": "zoned", "type": _optional("string", "io.debezium.time.ZonedTimestamp")},
        {
            "name": "price",
            "type": _optional(
                "bytes",
                "org.apache.kafka.connect.data.Decimal",
                logicalType="decimal",
                precision=10,
                scale=2,
            ),
        },
    ],
}
AVRO_ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.items",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
AVRO_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
REGISTERED = {KEY_NUMBER: json.dumps(AVRO_KEY), VALUE_NUMBER: json.dumps(AVRO_ENVELOPE)}


@dataclass
class Changes:
    """A table of a database, and the messages of what was done to it since they were taken."""

    shape: str
    random: random.Random = field(default_factory=lambda: random.Random(0))
    rows: dict[int, Row] = field(default_factory=dict)
    """The rows by their key, as a table of Arrow has them."""
    messages: list[Message] = field(default_factory=list)
    before: str = "whole"
    """What deletes have of the row: the whole one, only its key, or nothing."""

    def snapshot(self, ids: Iterable[int]) -> None:
        for id in ids:
            self.put(id, "r")

    def put(self, id: int, operation: str | None = None) -> None:
        """Insert or update a row."""
        before, after = self.rows.get(id), self._made(id)
        if operation is None:
            operation = "c" if before is None else "u"
        self.rows[id] = after
        self._send(id, operation, before if operation == "u" else None, after)

    def delete(self, id: int) -> None:
        """Delete a row: an event, and a tombstone."""
        row = self.rows.pop(id)
        known = {"whole": row, "key": dict.fromkeys(row) | {"id": id}, "nothing": None}
        self._send(id, "d", known[self.before], None)
        self.messages.append((self._key(id), None))

    def move(self, id: int, other: int) -> None:
        """Change the key of a row, as a delete and an insert."""
        row = self.rows[id]
        self.delete(id)
        self.rows[other] = row | {"id": other}
        self._send(other, "c", None, self.rows[other])

    def change(self, count: int, ids: int) -> None:
        """Do some things at random to rows with keys below ``ids``."""
        for _ in range(count):
            id, other = self.random.randrange(ids), self.random.randrange(ids)
            self.before = self.random.choice(["whole", "key", "nothing"])
            what = self.random.choice(["put", "put", "put", "delete", "move"])
            if what == "put" or id not in self.rows:
                self.put(id)
            elif what == "delete":
                self.delete(id)
            elif other not in self.rows:
                self.move(id, other)

    def mark_stream(self) -> None:
        """Send a heartbeat, and the begin of a transaction."""
        assert "json" in self.shape
        self.messages.append((b'{"serverName":"shop"}', b'{"ts_ms":1700000000000}'))
        begin = {"status": "BEGIN", "id": "7", "event_count": None, "ts_ms": 1}
        self.messages.append((b'{"id":"7"}', json.dumps(begin).encode()))

    def produce(self, kafka: Kafka, topic: str) -> None:
        """Send what was done."""
        producer = kafka.producer()
        for key, value in self.messages:
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0
        self.messages = []

    def expected(self) -> list[Row]:
        return [self.rows[id] for id in sorted(self.rows)]

    def _made(self, id: int) -> Row:
        number = self.random.randrange(10**6)
        noon = dt.datetime(2026, 11, 21, 12, microsecond=number, tzinfo=dt.UTC)
        row: Row = {"id": id, "name": f"name {number}", "zoned": noon}
        row |= {"day": EPOCH + dt.timedelta(number % 30_000), "at": noon.replace(tzinfo=None)}
        row |= {"price": Decimal(number - 500_000).scaleb(-2)}
        if number % 7 == 0:
            row |= {"name": None, "day": None, "price": None}
        return row

    def _send(self, id: int, operation: str, before: Row | None, after: Row | None) -> None:
        rows = {"before": _encoded(before, self.shape), "after": _encoded(after, self.shape)}
        payload = {**rows, "source": {"lsn": 1}, "op": operation, "ts_ms": 1}
        self.messages.append((self._key(id), self._value(payload)))

    def _key(self, id: int) -> bytes:
        if self.shape == "avro":
            return _avro(AVRO_KEY, {"id": id}, KEY_NUMBER)
        key = {"schema": {}, "payload": {"id": id}} if "schema" in self.shape else {"id": id}
        return json.dumps(key).encode()

    def _value(self, payload: Row) -> bytes:
        if self.shape == "avro":
            return _avro(AVRO_ENVELOPE, payload, VALUE_NUMBER)
        wrapped = {"schema": CONNECT, "payload": payload} if "schema" in self.shape else payload
        return json.dumps(wrapped).encode()


def _encoded(row: Row | None, shape: str) -> Row | None:
    """Return a row as Debezium writes its values; deletes with a key only have nulls."""
    if row is None:
        return None
    price, day, at, zoned = row["price"], row["day"], row["at"], row["zoned"]
    micros = None
    if at is not None:
        micros = (at - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    if price is not None and shape != "avro":
        whole = int(price.scaleb(2)).to_bytes(5, "big", signed=True)
        price = base64.b64encode(whole).decode()
    return row | {
        "day": None if day is None else (day - EPOCH).days,
        "at": micros,
        "zoned": None if zoned is None else zoned.isoformat().replace("+00:00", "Z"),
        "price": price,
    }


def _avro(schema: Any, record: Row, number: int) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), record)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()
