"""An S3 server dies or loses requests while a job writes or reads: all is committed, or nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mrflight.config.formats import OutputFormat
from mrflight.config.output_section import OutputSection
from mrflight.errors import CommitError, InputError, JobFailedError
from mrflight.sinks import open_sink
from mrflight.sinks.commit.base import Commit
from mrflight.storage import Location, locate, s3
from mrflight.storage.part_name import PartId
from tests.services.minio import Bucket, restarted, running_minio
from tests.support.faults.failing_reads import (
    FILES,
    ROWS,
    check_reads_tell,
    check_told,
    put_formats,
    reading_job,
)
from tests.support.faults.failing_reads import opened as opened_input
from tests.support.faults.lossy_proxy import Loss, LossyProxy, lossy_proxy
from tests.support.faults.stepped_jobs import (
    LARGE_ROWS,
    SCHEMA,
    large_batches,
    left_of,
    opened,
    remove_left,
    rows_of,
    run,
)
from tests.support.tables import outputs
from tests.support.tables.commits import commit_and_cleanup
from tests.support.tables.outputs import NEW, written

pytestmark = [pytest.mark.runs_on_ray, pytest.mark.slow]

MANY = 100
"""Attempts, more than there are while a server starts."""


@pytest.fixture
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as a job does, but for less time, for a server that does not come back."""
    monkeypatch.setattr(s3, "_RETRY_TIMEOUT", timedelta(milliseconds=300))


def behind(table: Location, proxy: LossyProxy) -> Location:
    options = {**table.options, "aws_endpoint_url": f"http://127.0.0.1:{proxy.port}"}
    return locate(table.url, Path("/"), options)


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
    """The answer to the commit is lost, so the job looks it up, and commits once."""
    table = locate(f"{bucket.url}/table", Path("/"), bucket.options)
    before = [] if entry.endswith("0.json") else [1]
    if before:
        run(table, format, "old", 1)
    message = ""
    with lossy_proxy(bucket.minio.port, f"PUT /{bucket.name}/table/{entry}", loss) as proxy:
        try:
            run(behind(table, proxy), format, "new", 2, "monday")
        except CommitError as error:
            message = str(error)
        assert proxy.end() == 1
    has_landed = rows_of(table) == [*before, 2]
    assert has_landed == (message == "")
    if message:
        assert loss == "request"
        assert table.url in message
        assert "error sending request" in message
    run(table, format, "again", 2, "monday")
    assert rows_of(table) == [*before, 2]
    remove_left(table)
    assert rows_of(table) == [*before, 2]
    assert left_of(table) == set()


def test_a_part_whose_upload_is_cut_is_whole_all_the_same(bucket: Bucket) -> None:
    table = locate(f"{bucket.url}/table", Path("/"), bucket.options)
    with lossy_proxy(bucket.minio.port, "partNumber=2", "answer") as proxy:
        sink = opened(behind(table, proxy), "csv", "job")
        written = sink.part_writer.write(PartId(0, 0), SCHEMA, large_batches(lambda: None))
        commit_and_cleanup(sink, Commit(tuple(written), SCHEMA))
        assert proxy.end() == 1
    assert rows_of(table) == list(range(LARGE_ROWS))


@pytest.mark.usefixtures("short_retries")
def test_a_server_that_is_killed_as_a_part_is_written(needs_minio: None) -> None:
    with running_minio() as minio, minio.bucket() as bucket:
        table = locate(f"{bucket.url}/table", Path("/"), bucket.options)
        run(table, "csv", "old", -1)
        sink = opened(table, "csv", "killed", "monday")
        with pytest.raises(JobFailedError) as raised:
            sink.part_writer.write(PartId(0, 0), SCHEMA, large_batches(minio.server.kill))
        sink.abort()
        assert f"{table.url}/part-00000-0-20260101T000000-killed" in str(raised.value)
        assert "Connection refused" in str(raised.value)
        with restarted(minio):
            assert rows_of(table) == [-1]
            assert left_of(table) == set()
            for job in ("again", "and-again"):
                run(table, "csv", job, 5, "monday")
            assert rows_of(table) == [-1, 5]


@pytest.mark.usefixtures("short_retries")
@pytest.mark.parametrize(
    "keys",
    [
        {"table": "URL/table"},
        {"table": "a.b", "format": "iceberg", "catalog": "sqlite:///lake.db", "warehouse": "URL"},
        {"table": "a.b", "format": "ducklake", "catalog": "sqlite:///lake.db", "data_path": "URL"},
    ],
    ids=["delta", "iceberg", "ducklake"],
)
def test_a_server_that_is_killed_before_a_commit_is_an_outage(
    request: pytest.FixtureRequest, needs_minio: None, tmp_path: Path, keys: dict[str, Any]
) -> None:
    if keys.get("format") == "ducklake":
        request.getfixturevalue("ducklake_python")
    with running_minio() as minio, minio.bucket() as bucket:
        given = {name: value.replace("URL", bucket.url) for name, value in keys.items()}
        spec = OutputSection(mode="append", **given)
        sink = open_sink(spec, tmp_path, bucket.options, "job", None)
        parts = tuple(written(sink, NEW, outputs.SCHEMA))
        minio.server.kill()
        with pytest.raises(CommitError, match=bucket.name) as raised:
            sink.commit(Commit(parts, outputs.SCHEMA))
        assert raised.value.retryable
        assert not sink.outcome_unknown
        minio.server.start_again()
        minio.await_ready()
        commit_and_cleanup(sink, Commit(parts, outputs.SCHEMA))


@pytest.mark.usefixtures("short_retries")
def test_a_server_that_is_killed_is_told_by_who_reads(needs_minio: None) -> None:
    with running_minio() as minio, minio.bucket() as bucket:
        inputs = put_formats(locate(f"{bucket.url}/in", Path("/"), bucket.options))
        table = inputs[-1]
        hasty = {**table.options, "max_retries": "0"}  # deltalake's client, and no other
        inputs[-1] = locate(table.url, Path("/"), hasty)
        sources = [opened_input(place) for place in inputs]
        minio.server.kill()
        check_reads_tell(sources, inputs, "Connection refused", r"storage\.aws_endpoint_url")


@pytest.mark.usefixtures("short_retries")
def test_a_server_that_refuses_is_not_asked_again(bucket: Bucket) -> None:
    """It will say the same to the next attempt."""
    wrong = {**bucket.options, "aws_secret_access_key": "x" * 20}
    (inputs := locate(f"{bucket.url}/in", Path("/"), bucket.options)).child(
        "1.csv"
    ).create().close()
    for url, options in ((inputs.url, wrong), ("s3://no-such-bucket/in", bucket.options)):
        with pytest.raises(InputError, match=r"status code: 40[34]") as raised:
            opened_input(locate(url, Path("/"), options))
        assert not raised.value.retryable


def test_a_server_that_is_killed_in_the_middle_of_a_map(needs_minio: None, tmp_path: Path) -> None:
    with running_minio() as minio, minio.bucket() as bucket:
        files = locate(f"{bucket.url}/in", tmp_path, bucket.options)
        with reading_job(tmp_path, files, attempts=2) as job:
            minio.server.kill()
            job.go_on()
            check_told(job, 2, f"{files.url}/", "Connection refused")


def test_a_server_that_comes_back_before_the_last_attempt(
    needs_minio: None, tmp_path: Path
) -> None:
    with running_minio() as minio, minio.bucket() as bucket:
        files = locate(f"{bucket.url}/in", tmp_path, bucket.options)
        with reading_job(tmp_path, files, attempts=MANY) as job:
            minio.server.kill()
            job.go_on()
            assert files.url in job.await_line(f"attempt 1 of {MANY} failed and is retried")
            with restarted(minio):
                done = job.end()
        assert done.code == 0, done.stderr
        assert done.result["rows_out"] == FILES * ROWS.num_rows
