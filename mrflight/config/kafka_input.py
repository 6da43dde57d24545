"""Checks which keys of ``[inputs.NAME]`` go together if the input is from Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mrflight.config.change_events import CHANGE_COLUMNS
from mrflight.config.input_spec import InputSpec
from mrflight.config.secret_options import holds_secret
from mrflight.config.secret_reference import check_reference, is_reference
from mrflight.errors import JobFileError

KAFKA_FORMATS = ("json", "avro", "protobuf", "csv", "arrow", "raw")
KAFKA_KEYS = (
    "topic",
    "topics",
    "topic_pattern",
    "start",
    "registry",
    "message",
    "envelope",
    "metadata",
    "client",
)
"""The keys of an input that only apply to Kafka."""

METADATA_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers")
"""The columns that ``metadata = true`` adds, also to those that ``columns`` selects."""

_FILE_SCHEMAS = ("strict", "union")
_KEYS_OF_FILES = (
    *("path", "stage", "log", "frame", "hive"),
    *("version", "timestamp", "sample", "fresh"),
)
_SUBJECTS = ("topic", "topics", "topic_pattern")
_OWN_SETTINGS = {
    "bootstrap.servers": "set inputs.NAME.kafka",
    "metadata.broker.list": "set inputs.NAME.kafka",
    "group.id": "the offsets are kept in the table, and no consumer group is used",
    "group.instance.id": "no consumer group is used",
    "enable.auto.commit": "the offsets are kept in the table",
    "enable.auto.offset.store": "the offsets are kept in the table",
    "auto.offset.reset": "set inputs.NAME.start",
    "isolation.level": "only committed messages are read",
    "enable.partition.eof": "it has to be true",
    "queued.max.messages.kbytes": "it follows from cluster.memory",
    "fetch.max.bytes": "it follows from cluster.memory",
}
"""Settings of librdkafka that an input cannot change, and why or what to do."""

_SECRET_SETTINGS = ("ssl.key.pem", "sasl.oauthbearer.config")
"""Secrets whose names do not tell."""

_SCHEMA_FORMATS = ("json", "csv", "avro", "protobuf")


def with_client_texts(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document with times of ``start`` and values of ``client`` as text.

    If ``columns`` selects some, those of the metadata and of change events are added.
    """
    changed = dict(document)
    if isinstance(inputs := document.get("inputs"), Mapping):
        changed["inputs"] = {name: _with_texts(section) for name, section in inputs.items()}
    if isinstance(stages := document.get("stages"), Mapping):
        changed["stages"] = {
            name: with_client_texts(stage) if isinstance(stage, Mapping) else stage
            for name, stage in stages.items()
        }
    return changed


def _with_texts(section: Any) -> Any:
    if not isinstance(section, Mapping) or "kafka" not in section:
        return section
    changed = dict(section)
    if isinstance(start := section.get("start"), datetime):
        changed["start"] = start.isoformat()
    if isinstance(client := section.get("client"), Mapping):
        changed["client"] = {name: _text(value) for name, value in client.items()}
    if isinstance(columns := section.get("columns"), list):
        added = _added_columns(section)
        changed["columns"] = [*columns, *(c for c in added if c not in columns)]
    return changed


def _added_columns(section: Mapping[str, Any]) -> list[str]:
    """Return the columns that an input has beside those of its messages' values."""
    changes = CHANGE_COLUMNS if section.get("envelope") == "debezium" else ()
    metadata = METADATA_COLUMNS if section.get("metadata") is True else ()
    return list(dict.fromkeys((*changes, *metadata)))


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def check_input_keys(key: str, section: InputSpec) -> None:
    """Raise JobFileError for keys of Kafka and of others that exclude or need each other."""
    if section.kafka is None:
        _check_others(key, section)
        return
    if not all(each.strip() for each in section.kafka.split(",")):
        raise JobFileError(f'{key}.kafka must name the brokers, such as "broker1:9092"')
    _check_exclusive(key, section)
    _check_topics(key, section)
    _check_format(key, section)
    _check_start(key, section)
    _check_client(key, section)


def _check_others(key: str, section: InputSpec) -> None:
    unset = InputSpec()
    for name in KAFKA_KEYS:
        if getattr(section, name) != getattr(unset, name):
            raise JobFileError(
                f"{key}.{name} is only for messages of Kafka; set {key}.kafka to the brokers, or "
                f"remove {name}"
            )
    if section.format in ("avro", "protobuf", "raw"):
        raise JobFileError(
            f"{key}.format: {section.format!r} is only for messages of Kafka; files are 'csv', "
            "'parquet', 'arrow', 'json' or 'delta'"
        )
    if section.schema not in _FILE_SCHEMAS:
        raise JobFileError(f"{key}.schema: {section.schema!r} is not 'strict' or 'union'")


def _check_exclusive(key: str, section: InputSpec) -> None:
    unset = InputSpec()
    for name in _KEYS_OF_FILES:
        if getattr(section, name) != getattr(unset, name):
            raise JobFileError(
                f"{key}.{name} does not apply to messages of Kafka; remove it, or remove "
                f"{key}.kafka"
            )


def _check_topics(key: str, section: InputSpec) -> None:
    given = [name for name in _SUBJECTS if getattr(section, name) is not None]
    if not given:
        raise JobFileError(f'{key}.topic is missing; write topic = "..." in [{key}]')
    if len(given) > 1:
        raise JobFileError(f"{key}.{given[0]} and {key}.{given[1]} exclude each other; keep one")
    if getattr(section, given[0]) in ("", []):
        raise JobFileError(f"{key}.{given[0]} must not be empty")
    if section.topic_pattern is not None:
        try:
            re.compile(section.topic_pattern)
        except re.error as error:
            raise JobFileError(
                f"{key}.topic_pattern: {section.topic_pattern!r} is not a regular expression: "
                f"{error}"
            ) from error


def _check_format(key: str, section: InputSpec) -> None:
    if section.format is None:
        raise JobFileError(
            f"{key}.format is missing; messages have no suffix that tells it: write one of "
            f"{', '.join(KAFKA_FORMATS)}"
        )
    if section.format not in KAFKA_FORMATS:
        raise JobFileError(
            f"{key}.format: messages of Kafka cannot be {section.format}; use one of "
            f"{', '.join(KAFKA_FORMATS)}"
        )
    if section.envelope == "debezium" and section.format not in ("json", "avro"):
        raise JobFileError(
            f"{key}.envelope: change events of Debezium are read from json and avro, not from "
            f"{section.format}; set {key}.format to one of them"
        )
    for format, name in (("avro", "registry"), ("protobuf", "message")):
        if getattr(section, name) is not None and section.format != format:
            raise JobFileError(f"{key}.{name} is only for the format {format}; remove it")
    has_schema = section.schema != "strict"
    if section.schema == "union":
        raise JobFileError(
            f"{key}.schema: 'union' is only for files; name the file of the messages' schema"
        )
    if has_schema and section.format not in _SCHEMA_FORMATS:
        raise JobFileError(
            f"{key}.schema is for {', '.join(_SCHEMA_FORMATS)}; {section.format} needs none"
        )
    if has_schema and section.registry is not None:
        raise JobFileError(f"{key}.schema and {key}.registry exclude each other; keep one of them")
    if section.registry is not None and holds_secret("registry", section.registry):
        check_reference(section.registry, f"{key}.registry")
    if section.format == "avro" and not has_schema and section.registry is None:
        raise JobFileError(
            f'{key}.schema is missing: avro messages need a schema; write schema = "FILE.avsc" or '
            f'registry = "http://..."'
        )
    if section.format == "protobuf" and not (has_schema and section.message):
        raise JobFileError(
            f"{key}.{'message' if has_schema else 'schema'} is missing: protobuf needs "
            'schema = "FILE", made by protoc --descriptor_set_out=FILE --include_imports, and '
            'message = "package.Type"'
        )
    if section.types and section.format not in ("json", "csv"):
        raise JobFileError(
            f"{key}.types is for json and csv; {section.format} messages have types of their own"
        )
    if section.types and has_schema:
        raise JobFileError(f"{key}.schema has the types; remove {key}.types")


def _check_start(key: str, section: InputSpec) -> None:
    start = section.start
    if isinstance(start, dict):
        if section.topic is None:
            raise JobFileError(
                f"{key}.start: offsets of partitions are for one topic; set {key}.topic"
            )
        for partition, offset in start.items():
            if not partition.isdecimal() or offset < 0:
                raise JobFileError(
                    f"{key}.start must have the offset of each partition, such as {{ 0 = 120 }}, "
                    f"not {{ {partition} = {offset} }}"
                )
        return
    if start in ("earliest", "latest"):
        return
    parse_start_time(start, key)


def parse_start_time(text: str, key: str) -> datetime:
    """Return the time of ``start``, in UTC if it has no zone; raises JobFileError."""
    from datetime import UTC

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise JobFileError(
            f"{key}.start must be 'earliest', 'latest', a time such as '2026-11-21T10:00:00Z', or "
            f"the offsets of the partitions, {{ 0 = 120 }}, not {text!r}"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _check_client(key: str, section: InputSpec) -> None:
    for name, value in section.client.items():
        if name in _OWN_SETTINGS:
            why = _OWN_SETTINGS[name].replace("inputs.NAME", key)
            raise JobFileError(f"{key}.client.{name} cannot be set: {why}")
        is_secret = name in _SECRET_SETTINGS or holds_secret(name, value)
        if is_secret and not is_reference(value):
            check_reference(value, f"{key}.client.{name}")
