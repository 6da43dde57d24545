"""The columns in the names of ``key=value`` folders, as Hive, Spark and others write them.

``year=2024/month=01/a.csv`` has the columns ``year`` and ``month``. Keys and values are
percent-decoded, and `NULL_FOLDER` is null. A column has integers or dates if all of its values are
such, and strings otherwise, unless ``types`` sets another type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from datetime import date
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.errors import JobFileError
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import FileReader, Source, Split
from mrflight.storage.store import Store

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null."""

PartitionTexts = tuple[tuple[str, str | None], ...]
"""The keys of the folders of a file, and the texts of their values; None for null."""

_FOLDER = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def partition_of(folders: Iterable[str]) -> PartitionTexts:
    """Return the keys and values of those folder names that are ``key=value``, in their order."""
    found = [match for match in map(_FOLDER.fullmatch, folders) if match is not None]
    return tuple((unquote(match[1]), _text(match[2])) for match in found)


def _text(value: str) -> str | None:
    return None if value == NULL_FOLDER else unquote(value)


def infer_type(texts: Iterable[str | None]) -> pa.DataType:
    """Return the type that all texts of a column have: int64, date32, or else string."""
    given = {text for text in texts if text is not None}
    if given and all(map(_INTEGER.fullmatch, given)):
        return pa.int64()
    return pa.date32() if given and all(map(_is_date, given)) else pa.string()


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def parse_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of texts in the names of folders, or in a Delta log.

    Timestamps with a time zone are written in UTC, without the zone. Raises ArrowInvalid for a text
    that is no value of the type, and ArrowNotImplementedError for a type that no text has.
    """
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return texts.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    return texts.cast(kind)


class PartitionColumns(msgspec.Struct, frozen=True):
    """The columns of an input that are in the names of its folders."""

    input_name: str
    types: Mapping[str, pa.DataType]

    def parse(self, partitions: Sequence[PartitionTexts]) -> pa.RecordBatch:
        """Return the values of some partitions, which have these columns in this order.

        Raises JobFileError for a text that is no value of the column's type.
        """
        columns = []
        for number, (name, kind) in enumerate(self.types.items()):
            texts = pa.array([texts[number][1] for texts in partitions], pa.string())
            try:
                columns.append(parse_texts(texts, kind))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise JobFileError(
                    f"inputs.{self.input_name}.types.{name} is {kind}, but the folders {name}=... "
                    f"have other values: {error}; set another type"
                ) from error
        return pa.RecordBatch.from_arrays(columns, list(self.types))

    def add_to(
        self, source: Source, partitions: Mapping[str, PartitionTexts], columns: list[str] | None
    ) -> Source:
        """Return the source of the files with these columns.

        ``partitions`` are by the path of a file. ``columns`` are those to read, in this order. By
        default it is those of the files and then these. Raises JobFileError as `parse` does.
        """
        stored = source.reader.schema
        assert stored is not None, "files have a schema"
        distinct = list(dict.fromkeys(partitions.values()))
        rows = self.parse(distinct).to_pylist()
        constants = dict(zip(distinct, (tuple(row.items()) for row in rows), strict=True))
        types = {**dict(zip(stored.names, stored.types, strict=True)), **self.types}
        selected = columns or list(types)
        files = source.reader
        assert isinstance(files, FileReader), files
        whole = PartitionedReader(files, pa.schema(list(types.items())), root=files.root)
        return replace(
            source,
            reader=whole.select(selected),
            splits=tuple(
                replace(split, constants=constants[partitions[split.path]])
                for split in source.splits
            ),
            partitioned_by=tuple(self.types),
        )


@dataclass(frozen=True)
class PartitionedReader(FileReader):
    """Adds the columns of their folders' names to the rows that another reader reads of files."""

    files: FileReader
    schema: pa.Schema

    def select(self, columns: Sequence[str]) -> PartitionedReader:
        assert self.files.schema is not None, "files have a schema"
        stored = self.files.schema.names
        # Without any column of the files the number of rows would be lost.
        needed = [name for name in stored if name in columns] or stored[:1]
        schema = pa.schema([self.schema.field(name) for name in columns])
        return with_fields(self, files=self.files.select(needed), schema=schema)

    def in_store(self, store: Store) -> PartitionedReader:
        return with_fields(self, files=self.files.in_store(store))

    def with_bad_rows(self, log: BadRowLog) -> PartitionedReader:
        return with_fields(self, files=self.files.with_bad_rows(log))

    def count_rows(self, piece: Split) -> int | None:
        return self.files.count_rows(piece)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._with_constants(self.files.read(split), split, pa.repeat)

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._with_constants(self.files.read_encoded(split), split, _repeat_encoded)

    def _with_constants(
        self,
        batches: Iterator[pa.RecordBatch],
        split: Split,
        repeat: Callable[[pa.Scalar, int], pa.Array],
    ) -> Iterator[pa.RecordBatch]:
        constants = {
            name: pa.scalar(value, self.schema.field(name).type)
            for name, value in split.constants
            if name in self.schema.names
        }
        for batch in batches:
            columns = [
                repeat(constants[name], batch.num_rows) if name in constants else batch.column(name)
                for name in self.schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, self.schema.names)


def _repeat_encoded(value: pa.Scalar, rows: int) -> pa.Array:
    """Return a column with one value; strings become a dictionary."""
    if not pa.types.is_string(value.type) or not value.is_valid:
        return pa.repeat(value, rows)
    indices = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value.as_py()], value.type))
