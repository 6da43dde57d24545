"""The MinIO that tests and experiments run against, and how it counts."""

from __future__ import annotations

from collections import Counter

import deltalake
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from tests.services.get import get
from tests.services.minio import Minio, RecordedBucket, running_minio
from tests.support.clusters.service_processes import ended_without_a_trace, somebody_listens
from tests.support.commands.threads import run_threads

ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture
def store(recorded_bucket: RecordedBucket) -> S3Store:
    return S3Store(recorded_bucket.name, config=recorded_bucket.options)


@pytest.mark.smoke
def test_a_delta_table_is_written_and_read_back(recorded_bucket: RecordedBucket) -> None:
    table = f"{recorded_bucket.url}/a folder/table"
    deltalake.write_deltalake(table, ROWS, storage_options=recorded_bucket.options)
    read = deltalake.DeltaTable(table, storage_options=recorded_bucket.options).to_pyarrow_table()
    assert read.equals(ROWS)


def test_each_request_is_told_of(recorded_bucket: RecordedBucket, store: S3Store) -> None:
    assert recorded_bucket.requests() == []
    obstore.put(store, "odd %20=ü", b"x" * 1000)
    (put,) = recorded_bucket.requests()
    assert (put.api, put.bucket, put.key) == ("PutObject", recorded_bucket.name, "odd %20=ü")
    assert (put.status, put.received_bytes) == (200, 1000)

    mark = recorded_bucket.mark()
    obstore.list(store, "x/").collect()
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "nothing")
    listed, got = recorded_bucket.requests(mark)
    assert (listed.api, listed.query["prefix"], listed.status) == ("ListObjectsV2", "x/", 200)
    assert (got.api, got.key, got.status) == ("GetObject", "nothing", 404)


def test_only_one_creates_an_object(recorded_bucket: RecordedBucket, store: S3Store) -> None:
    obstore.put(store, "once", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "once", b"2", mode="create")
    assert [(request.api, request.status) for request in recorded_bucket.requests()] == [
        ("PutObject", 200),
        ("PutObject", 412),
    ]


def test_a_delta_commit_is_two_puts(recorded_bucket: RecordedBucket) -> None:
    table = f"{recorded_bucket.url}/table"
    deltalake.write_deltalake(table, ROWS, storage_options=recorded_bucket.options)
    requests = recorded_bucket.requests()
    part, log = [request.key for request in requests if request.api == "PutObject"]
    assert part.startswith("table/part-")
    assert log == "table/_delta_log/00000000000000000000.json"
    assert {request.api for request in requests} == {"PutObject", "GetObject", "ListObjectsV2"}


def test_none_is_missed_of_many_at_a_time(recorded_bucket: RecordedBucket, store: S3Store) -> None:
    def put(writer: int) -> None:
        for number in range(25):
            obstore.put(store, f"{writer}/{number}", b"x")

    run_threads([lambda writer=writer: put(writer) for writer in range(8)])
    counted = Counter(request.key for request in recorded_bucket.requests())
    assert counted == {f"{writer}/{number}": 1 for writer in range(8) for number in range(25)}


def test_a_request_is_recorded_whose_client_closes_the_connection(
    recorded_bucket: RecordedBucket, store: S3Store
) -> None:
    """MinIO's own audit missed 20 of 200 of these."""
    obstore.put(store, "x", bytes(64 << 10))
    recorded_bucket.let_anyone_read()
    mark = recorded_bucket.mark()
    for _ in range(200):
        status, body = get(recorded_bucket.recorder.port, f"/{recorded_bucket.name}/x")
        assert (status, len(body)) == (200, 64 << 10)
    assert [request.api for request in recorded_bucket.requests(mark)] == ["GetObject"] * 200


def test_buckets_know_nothing_of_each_other(minio: Minio) -> None:
    with minio.recorded_bucket() as one, minio.recorded_bucket() as other:
        obstore.put(S3Store(one.name, config=one.options), "x", b"1")
        assert len(one.requests()) == 1
        assert other.requests() == []


def test_nothing_is_left_of_it(needs_minio: None) -> None:
    with running_minio() as minio:
        servers = [minio.server]
    ended_without_a_trace(servers)


def test_a_port_that_is_taken_is_named(needs_minio: None) -> None:
    with somebody_listens() as (port, refused), refused, running_minio(port):
        pytest.fail("it listens to somebody else's port")
