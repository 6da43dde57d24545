"""Tests of the number of requests to S3 for inputs, tables and folders; no change is missed.

A proxy in front of MinIO counts them. The audit log of MinIO, which counted them before, drops the
records of connections that a client closes: a merge was then counted with 20, 21 or 22 GETs.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.errors import InputError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit, Sink
from mrflight.sources import open_source
from mrflight.sources.base import Source
from mrflight.sources.packing import pack
from mrflight.storage import Location, locate
from mrflight.storage.part_name import PartId
from tests.services.minio import RecordedBucket
from tests.support.tables.commits import commit_and_cleanup

FILES, ROWS = 3, 3000
SPLIT_BYTES = 10 << 10
TABLE = pa.table({"k": list(range(ROWS)), "v": list(range(ROWS))})


T = TypeVar("T")


@pytest.fixture
def bucket(recorded_bucket: RecordedBucket) -> RecordedBucket:
    return recorded_bucket


def encoded(format: str, table: pa.Table = TABLE) -> bytes:
    data = io.BytesIO()
    if format == "csv":
        pa.csv.write_csv(table, data)
    else:
        pa.parquet.write_table(table, data, row_group_size=ROWS // 3)
    return data.getvalue()


def put_inputs(bucket: RecordedBucket, format: str) -> Location:
    folder = locate(f"{bucket.url}/in", Path("/"), bucket.options)
    for number in range(FILES):
        write(folder.child(f"{number}.{format}"), encoded(format))
    return folder


def write(location: Location, data: bytes) -> None:
    with location.create() as out:
        out.write(data)


def opened(folder: Location, name: str = "") -> Source:
    spec = InputSpec(path=f"{folder.url}/{name}".rstrip("/"))
    return open_source("rows", spec, Path("/"), folder.options, SPLIT_BYTES)


def rows_of(source: Source) -> int:
    return sum(batch.num_rows for split in source.splits for batch in source.reader.read(split))


def count_requests(bucket: RecordedBucket, act: Callable[[], T], expected: Counter[str]) -> T:
    """Return the result of ``act``, which must send exactly these requests."""
    before = bucket.mark()
    result = act()
    assert Counter(request.api for request in bucket.requests(before)) == expected
    return result


@pytest.mark.parametrize(("format", "to_open", "to_read"), [("csv", 6, 24), ("parquet", 3, 27)])
def test_the_size_and_version_of_a_file_are_not_requested_again(
    bucket: RecordedBucket, format: str, to_open: int, to_read: int
) -> None:
    """Without this it took 14 and 5 HEADs to open them, and 36 and 27 to read the 9 splits."""
    folder = put_inputs(bucket, format)
    for name, lists in (("", 3), (f"*.{format}", 2)):
        opening = Counter(HeadObject=1, ListObjectsV2=lists, GetObject=to_open)
        source = count_requests(bucket, partial(opened, folder, name), opening)
        assert len(source.splits) == 3 * FILES
        rows = count_requests(bucket, partial(rows_of, source), Counter(GetObject=to_read))
        assert rows == FILES * ROWS


@pytest.mark.parametrize(("format", "to_open"), [("csv", 60), ("parquet", 40)])
def test_a_small_file_of_a_packed_split_is_one_request(
    bucket: RecordedBucket, format: str, to_open: int
) -> None:
    """To open csv, all headers are read, and then the first lines of up to 64 files."""
    folder = locate(f"{bucket.url}/in", Path("/"), bucket.options)
    files = 40 if format == "parquet" else 30
    for number in range(files):
        write(folder.child(f"{number:02}.{format}"), encoded(format, TABLE.slice(number, 2)))
    before = bucket.mark()
    source = opened(folder)
    reads = [request for request in bucket.requests(before) if request.api == "GetObject"]
    assert len(reads) == to_open
    (packed,) = pack(source.splits, 1 << 40)
    before = bucket.mark()
    rows = pa.Table.from_batches(source.reader.read(packed))
    assert Counter(request.api for request in bucket.requests(before)) == {"GetObject": files}
    assert rows["k"].to_pylist() == [n for number in range(files) for n in (number, number + 1)]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_read_of_a_changed_file_fails(bucket: RecordedBucket, format: str) -> None:
    folder = put_inputs(bucket, format)
    source = opened(folder)
    file = folder.child(f"1.{format}")
    was = len(encoded(format))
    write(file, encoded(format, TABLE.slice(1)))
    now = len(encoded(format, TABLE.slice(1)))
    message = f"{file.url} changed while the job ran: it had {was:,} bytes .*, and has {now:,} now"
    with pytest.raises(InputError, match=message):
        rows_of(source)
    file.delete_file()
    with pytest.raises(InputError, match=f"{file.url} changed .*, and is gone now"):
        rows_of(source)


def test_an_empty_file_that_gets_rows_is_a_changed_file(bucket: RecordedBucket) -> None:
    folder = put_inputs(bucket, "parquet")
    empty = folder.child("0.parquet")
    write(empty, encoded("parquet", TABLE.slice(0, 0)))
    source = opened(folder)
    write(empty, encoded("parquet"))
    with pytest.raises(InputError, match=f"{empty.url} changed while the job ran"):
        rows_of(source)


def opened_table(bucket: RecordedBucket, mode: Literal["append", "overwrite"], job: int) -> Sink:
    output = OutputSection(table=f"{bucket.url}/table", mode=mode)
    return open_sink(output, Path("/"), bucket.options, f"20260101T000000-{job:012x}", None)


def committed(sink: Sink) -> int | None:
    written = sink.part_writer.write(PartId(0, 0), TABLE.schema, TABLE.to_batches())
    return commit_and_cleanup(sink, Commit(tuple(written), TABLE.schema, has_stale_files=False))


def requests_of_deltalake(bucket: RecordedBucket, mode: Literal["append", "overwrite"]) -> int:
    """Return how many requests `write_deltalake` makes for the same rows."""
    before = bucket.mark()
    write_deltalake(f"{bucket.url}/theirs", TABLE, mode=mode, storage_options=bucket.options)
    return len(bucket.requests(before))


def test_an_append_reads_each_log_entry_twice(
    bucket: RecordedBucket,
) -> None:
    """deltalake reads them twice to load a table, which a job does once.

    Before, a job loaded the table five times, and five more times for the commit.
    """
    for number in range(5):
        before = bucket.mark()
        assert committed(opened_table(bucket, "append", number)) == number
        requests = Counter(request.api for request in bucket.requests(before))
        if number == 0:
            assert requests == {"ListObjectsV2": 3, "HeadObject": 1, "PutObject": 2}
        else:
            wanted = {"ListObjectsV2": 2, "HeadObject": 3, "PutObject": 2}
            assert requests == {**wanted, "GetObject": 1 + 2 * number}
        assert requests.total() < requests_of_deltalake(bucket, "append")


def test_an_overwrite_loads_the_log_once(bucket: RecordedBucket) -> None:
    """Before, it was loaded twice, and once more to see which job committed: 24 requests."""
    for number in range(2):
        committed(opened_table(bucket, "append", number))
    before = bucket.mark()
    assert committed(opened_table(bucket, "overwrite", 2)) == 2
    requests = Counter(request.api for request in bucket.requests(before))
    assert requests == {"ListObjectsV2": 5, "HeadObject": 3, "GetObject": 4 + 4, "PutObject": 2}


def test_the_slower_of_two_appends_reads_only_new_entries(bucket: RecordedBucket) -> None:
    """It puts its entry only if absent, so neither of two appends is lost."""
    committed(opened_table(bucket, "append", 0))
    slow = opened_table(bucket, "append", 1)
    assert committed(opened_table(bucket, "append", 2)) == 1
    before = bucket.mark()
    assert committed(slow) == 2
    requests = Counter(request.api for request in bucket.requests(before))
    # It puts the part, the entry that exists already, and the next one. deltalake reads the other
    # append's entry twice, and we read it once.
    assert requests == {"PutObject": 3, "HeadObject": 3, "ListObjectsV2": 1, "GetObject": 3}
    table = DeltaTable(f"{bucket.url}/table", storage_options=bucket.options)
    assert table.to_pyarrow_table().num_rows == 3 * ROWS


@pytest.mark.parametrize(
    ("interval", "of"), [("3", (2, 5)), ("0", ()), ("-2", ()), ("often", ())], ids=str
)
def test_log_entries_that_we_put_skip_no_checkpoint(
    bucket: RecordedBucket, interval: str, of: Sequence[int]
) -> None:
    """A commit for which a checkpoint is due is left to deltalake, which then makes it.

    It makes none if the table's property is not a number of versions.
    """
    DeltaTable.create(
        f"{bucket.url}/table",
        TABLE.schema,
        configuration={"delta.checkpointInterval": interval},
        storage_options=bucket.options,
    )
    for number in range(1, 6):
        assert committed(opened_table(bucket, "append", number)) == number
    log = locate(f"{bucket.url}/table/_delta_log", Path("/"), bucket.options)
    made = {info.base_name for info in log.walk() if info.base_name.endswith(".parquet")}
    assert made == {f"{version:020}.checkpoint.parquet" for version in of}
    table = DeltaTable(f"{bucket.url}/table", storage_options=bucket.options)
    assert table.to_pyarrow_table().num_rows == 5 * ROWS


def test_a_new_folder_costs_nine_requests_and_each_further_part_one(
    bucket: RecordedBucket,
) -> None:
    for parts in (1, 4):
        folder = locate(f"{bucket.url}/out{parts}", Path("/"), bucket.options)
        before = bucket.mark()
        output = OutputSection(table=folder.url, format="parquet", mode="error")
        sink = open_sink(output, Path("/"), folder.options, "20260101T000000-one", None)
        written = [
            part
            for number in range(parts)
            for part in sink.part_writer.write(PartId(number, 0), TABLE.schema, TABLE.to_batches())
        ]
        commit_and_cleanup(sink, Commit(tuple(written), TABLE.schema, has_stale_files=False))
        requests = Counter(request.api for request in bucket.requests(before))
        assert requests == {"ListObjectsV2": 6, "PutObject": 1 + parts, "GetObject": 1}
