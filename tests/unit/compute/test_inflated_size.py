"""What messages inflate to, as they say, is what Arrow then allocates for them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import types

from mrflight.compute.inflated_size import declared
from tests.support.faults.inflating import inflating_stream
from tests.support.suite.messages import refused

WORDS = pa.array(["a", None, "b" * 100] * 20)
COLUMNS: dict[str, pa.Array] = {
    "numbers": pa.array(range(60)),
    "nulls": pa.array([1, None, 3] * 20),
    "booleans": pa.array([True, False, None] * 20),
    "words": WORDS,
    "views": pa.array(["a word that is longer than a view", "", None] * 20, pa.string_view()),
    "dictionary": WORDS.dictionary_encode(),
    "lists": pa.array([[1, 2], None, []] * 20),
    "lists of dictionaries": pa.array(
        [["x"], None, ["y", "y"]] * 20, pa.list_(pa.dictionary(pa.int8(), pa.string()))
    ),
    "structs": pa.array([{"a": 1, "b": ["z"]}, None, {"a": None, "b": []}] * 20),
    "nothing": pa.nulls(60),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([20, 60], pa.int32()), pa.array([1, 2])),
}


def stream_of(column: pa.Array, compression: str | None, **more: object) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, **more)
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def allocated(array: pa.Array) -> Iterator[int]:
    """Yield the sizes of buffers that are no parts of the stream."""
    yield from (each.size for each in array.buffers() if each and each.parent is None)
    if types.is_dictionary(array.type):
        yield from allocated(array.dictionary)
    elif types.is_list(array.type) and types.is_dictionary(array.type.value_type):
        yield from allocated(array.values.dictionary)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("name", COLUMNS)
def test_all_buffers_of_all_messages_are_counted(name: str, compression: str | None) -> None:
    stream = stream_of(COLUMNS[name], compression)
    found = list(declared(stream))
    (read,) = pa.ipc.open_stream(stream).read_next_batch().columns
    assert sum(each.inflated_bytes for each in found) == sum(allocated(read))
    assert [each.rows for each in found if each.message.type == "record batch"] == [60]


def test_one_plain_buffer_hides_no_others() -> None:
    rows = 2**20
    stream = inflating_stream(rows)
    assert stream.size < 2_000
    assert [each.inflated_bytes for each in declared(stream)] == [0, 12 * rows + 4]


def test_what_older_writers_write() -> None:
    older = {"metadata_version": pa.ipc.MetadataVersion.V4, "use_legacy_format": True}
    assert [each.inflated_bytes for each in declared(stream_of(WORDS, None, **older))] == [0, 0]
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"a": [1]})
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    with refused(pa.ArrowInvalid):
        list(declared(sink.getvalue()))


def test_a_header_cut_anywhere_is_refused_or_has_no_more_bytes_than_before() -> None:
    """Or it would lead out of the message: Arrow has verified only what it reads itself."""
    stream = inflating_stream(1_000).to_pybytes()
    most = sum(each.inflated_bytes for each in declared(pa.py_buffer(stream)))
    for cut in range(len(stream)):
        try:
            found = list(declared(pa.py_buffer(stream[:cut])))
        except (pa.ArrowException, OSError):
            continue
        assert sum(each.inflated_bytes for each in found) in (0, most)
