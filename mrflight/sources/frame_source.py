"""Rows in the driver's process as a source, until a job writes them to a file for its workers.

The plan of a job needs only their schema and size. Before the first task, each frame is written
once to an Arrow file in the job's scratch folder, which is read like any other file. So maps can be
retried, and read parts of it at the same time, although a stream gives its rows once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import describe_difference
from mrflight.config.input_frame import InputFrame
from mrflight.config.input_spec import InputSpec
from mrflight.errors import ColumnNotFoundError, InputError, JobFailedError, MrflightError
from mrflight.sources.arrow_source import slices
from mrflight.sources.base import Reader, Source, Split
from mrflight.sources.packed_reader import join_batches
from mrflight.sources.schema_check import check_column_types
from mrflight.system.deadlines import Deadline
from mrflight.system.progress import ProgressReport, Work
from mrflight.units import format_bytes, format_count

_UNKNOWN = sys.maxsize
"""The number of rows of a stream."""


class FrameSplit(Split, frozen=True):
    """Rows of a frame, or of the file that it was written to."""

    input_name: str = ""

    @property
    def place(self) -> str:
        return f"the frame {self.input_name!r} from {self.start}"


@dataclass(frozen=True)
class FrameReader(Reader):
    """Reads rows in this process, and leaves them for the job. No worker can use it.

    The units of its splits are rows.
    """

    name: str
    frame: InputFrame
    schema: pa.Schema
    """The columns that are read, in the canonical layout, which their file will have."""

    def select(self, columns: Sequence[str]) -> FrameReader:
        return with_fields(self, schema=pa.schema([self.schema.field(name) for name in columns]))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        rows = _rows_between(self.frame.look(), split.start, split.stop)
        return _canonical(self.name, self.frame, rows, self.schema)

    def count_rows(self, piece: Split) -> int | None:
        return None if self.frame.rows is None else piece.stop - piece.start


def open_frame(name: str, spec: InputSpec) -> Source:
    """Return the source of rows in this process.

    Raises InputError for columns that cannot be read, and for a stream that a job has taken;
    ColumnNotFoundError for a missing column.
    """
    frame = spec.frame
    assert frame is not None, "this input has files"
    key = f"inputs.{name}"
    if frame.is_taken:
        raise InputError(
            f"{key}: a job has taken the rows of this {frame.kind} before, and it gives them only "
            "once; make a new one for each job, or read a table: mrflight.read(reader.read_all())"
        )
    names: list[str] = frame.schema.names
    if not names:
        raise InputError(f"{key}: this {frame.kind} has no columns")
    if len(set(names)) < len(names):
        twice = next(column for column in names if names.count(column) > 1)
        raise InputError(f"{key}: two columns of this {frame.kind} are named {twice!r}; rename one")
    check_column_types(frame.schema, key)
    for column in spec.columns or ():
        if column not in names:
            raise ColumnNotFoundError.among(column, names, f"{key}.columns: this {frame.kind}")
    schema = canonical_schema(frame.schema)
    reader = FrameReader(name, frame, schema)
    rows = _UNKNOWN if frame.rows is None else frame.rows
    split = FrameSplit("", 0, rows, frame.size_bytes, input_name=name)
    source = Source(name, reader, (), frame.size_bytes, (split,), rows=frame.rows)
    return source.select(spec.columns) if spec.columns else source


def write_frame(
    reader: FrameReader, path: Path, progress: ProgressReport, deadline: Deadline
) -> None:
    """Write all rows of a frame, with all of its columns, to an Arrow file.

    The rows are read in this thread, because some can only be read where they were made. Raises
    InputError if that fails, and JobFailedError if the file cannot be written.
    """
    frame = reader.frame
    schema = canonical_schema(frame.schema)
    progress.begin(f"read {reader.name}", 1, frame.size_bytes)
    rows = 0
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in join_batches(_canonical(reader.name, frame, frame.take(), schema)):
                writer.write_batch(batch)
                rows += batch.num_rows
                progress.advance(Work(batch.num_rows, batch.nbytes), tasks=0)
                deadline.check(f"rows of inputs.{reader.name} not read yet")
    except OSError as error:
        raise JobFailedError(
            f"the rows of inputs.{reader.name} cannot be written to {path.parent}: {error}; "
            "make room there, or choose another folder with cluster.spill_dir"
        ) from error
    progress.advance()
    progress.end(f"{format_count(rows, 'row')}, {format_bytes(path.stat().st_size)}")


def read_written(source: Source, name: str) -> Source:
    """Return the source of a written file, whose splits are named by the input in messages."""
    return replace(source, splits=tuple(_named(split, name) for split in source.splits))


def _named(split: Split, name: str) -> FrameSplit:
    assert type(split) is Split, "one file is not packed"
    values = {field: getattr(split, field) for field in split.__struct_fields__}
    return FrameSplit(**values, input_name=name)


def _rows_between(
    batches: Iterator[pa.RecordBatch], start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    passed = 0
    for batch in batches:
        first = min(max(0, start - passed), batch.num_rows)
        yield batch.slice(first, max(0, stop - passed - first))
        passed += batch.num_rows
        if passed >= stop:
            return


def _canonical(
    name: str, frame: InputFrame, batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of ``schema``, which is canonical, in batches of a few MiB."""
    for batch in _reading(name, frame, batches):
        if difference := describe_difference(frame.schema, batch.schema):
            raise InputError(
                f"inputs.{name}: the rows of this {frame.kind} have changed: {difference}"
            )
        for piece in slices(batch.select(schema.names)):
            yield to_canonical(piece, schema)


def _reading(
    name: str, frame: InputFrame, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise InputError for whatever the user's object raises."""
    rows = 0
    while True:
        try:
            batch = next(batches, None)
        except MrflightError:
            raise
        except Exception as error:  # it may be a generator of the user
            raise InputError(
                f"inputs.{name}: this {frame.kind} failed after {format_count(rows, 'row')}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if batch is None:
            return
        rows += batch.num_rows
        yield batch
