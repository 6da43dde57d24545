"""A bucket whose server dies, or loses requests, as a job writes to it: all of it, or nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import CommitError, JobFailedError
from mrflight.sinks import open_sink
from mrflight.sinks.base import Commit, Sink
from mrflight.sinks.leftovers import find_leftovers, remove_leftovers
from mrflight.sources import open_source
from mrflight.spec import InputSpec, OutputFormat, OutputSection
from mrflight.storage import Location, locate, s3
from tests.services.minio import Bucket, restarted, running_minio
from tests.support.lossy_proxy import Loss, LossyProxy, lossy_proxy

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
LARGE_ROWS = 20_000  # of a kilobyte: a file in parts
DEADLINE_S = 60.0
SOON = datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the job's, but for their time."""
    monkeypatch.setattr(s3, "_RETRY_TIMEOUT", timedelta(milliseconds=300))


def behind(table: Location, proxy: LossyProxy) -> Location:
    options = {**table.options, "aws_endpoint_url": f"http://127.0.0.1:{proxy.port}"}
    return locate(table.url, Path("/"), options)


def opened(table: Location, format: OutputFormat, job: str, run_id: str | None = None) -> Sink:
    output = OutputSection(table=table.url, format=format, mode="append")
    return open_sink(output, Path("/"), table.options, f"20260101T000000-{job}", run_id)


def parts(sink: Sink, *numbers: int) -> Commit:
    rows = pa.record_batch([list(numbers), ["x"] * len(numbers)], schema=SCHEMA)
    return Commit(tuple(sink.part_writer.write(0, 0, SCHEMA, [rows])), SCHEMA)


def run(table: Location, format: OutputFormat, job: str, number: int, run_id: str = "") -> None:
    sink = opened(table, format, job, run_id or None)
    if sink.was_committed():
        return
    try:
        sink.commit(parts(sink, number))
    finally:
        sink.abort()


def rows_of(table: Location) -> list[int]:
    source = open_source("t", InputSpec(path=table.url), Path("/"), table.options, 1 << 30)
    batches = [batch for split in source.splits for batch in source.reader.read(split)]
    return sorted(n for batch in batches for n in batch.column("n").to_pylist())


def left_of(table: Location) -> set[str]:
    left = find_leftovers(table, SOON)
    return {file.path for file in left.files}


@pytest.mark.parametrize(
    ("format", "entry"),
    [
        ("delta", f"_delta_log/{0:020}.json"),
        ("delta", f"_delta_log/{1:020}.json"),
        ("csv", "_mrflight/00000000.json"),
        ("csv", "_mrflight/00000001.json"),
    ],
)
@pytest.mark.parametrize("loss", ["answer", "request"])
def test_a_commit_whose_put_is_lost(
    bucket: Bucket, format: OutputFormat, entry: str, loss: Loss
) -> None:
    """Whether it was made nobody has told us: it is looked up, and counts once."""
    table = locate(f"{bucket.url}/table", Path("/"), bucket.options)
    before = [] if entry.endswith("0.json") else [1]
    if before:
        run(table, format, "old", 1)
    told = ""
    with lossy_proxy(bucket.minio.port, f"PUT /{bucket.name}/table/{entry}", loss) as proxy:
        try:
            run(behind(table, proxy), format, "new", 2, "monday")
        except CommitError as error:
            told = str(error)
        assert proxy.end() == 1
    has_landed = rows_of(table) == [*before, 2]
    assert has_landed == (told == "")
    if told:
        assert loss == "request"
        assert table.url in told
        assert "error sending request" in told
    run(table, format, "again", 2, "monday")
    assert rows_of(table) == [*before, 2]
    remove_leftovers(table, find_leftovers(table, SOON))
    assert rows_of(table) == [*before, 2]
    assert left_of(table) == set()


def test_a_part_whose_upload_is_cut_is_whole_all_the_same(bucket: Bucket) -> None:
    table = locate(f"{bucket.url}/table", Path("/"), bucket.options)
    with lossy_proxy(bucket.minio.port, "partNumber=2", "answer") as proxy:
        sink = opened(behind(table, proxy), "csv", "job")
        written = sink.part_writer.write(0, 0, SCHEMA, large_batches(lambda: None))
        sink.commit(Commit(tuple(written), SCHEMA))
        assert proxy.end() == 1
    assert rows_of(table) == list(range(LARGE_ROWS))


def large_batches(half_way: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    chance = random.Random(7)
    for start in range(0, LARGE_ROWS, LARGE_ROWS // 4):
        if start == LARGE_ROWS // 2:
            half_way()
        numbers = range(start, start + LARGE_ROWS // 4)
        texts = [chance.randbytes(500).hex() for _ in numbers]
        yield pa.record_batch([list(numbers), texts], schema=SCHEMA)


def test_a_server_that_is_killed_as_a_part_is_written(needs_minio: None) -> None:
    with running_minio() as minio, minio.bucket() as bucket:
        table = locate(f"{bucket.url}/table", Path("/"), bucket.options)
        run(table, "csv", "old", -1)
        sink = opened(table, "csv", "killed", "monday")
        began_s = time.monotonic()
        with pytest.raises(JobFailedError) as told:
            sink.part_writer.write(0, 0, SCHEMA, large_batches(minio.server.kill))
        sink.abort()
        assert time.monotonic() - began_s < DEADLINE_S
        assert f"{table.url}/part-00000-0-20260101T000000-killed" in str(told.value)
        assert "Connection refused" in str(told.value)
        with restarted(minio):
            assert rows_of(table) == [-1]
            assert left_of(table) == set()
            for job in ("again", "and-again"):
                run(table, "csv", job, 5, "monday")
            assert rows_of(table) == [-1, 5]
