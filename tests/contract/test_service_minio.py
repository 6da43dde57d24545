"""The MinIO that tests and experiments run against, and how it counts."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import deltalake
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from tests.services.minio import Bucket, Minio, running_minio
from tests.support.service_processes import ended_without_a_trace, somebody_listens
from tests.support.threads import WAIT_S, run_threads

ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture
def store(bucket: Bucket) -> S3Store:
    return S3Store(bucket.name, config=bucket.options)


def test_a_delta_table_is_written_and_read_back(bucket: Bucket) -> None:
    table = f"{bucket.url}/a folder/table"
    deltalake.write_deltalake(table, ROWS, storage_options=bucket.options)
    read = deltalake.DeltaTable(table, storage_options=bucket.options).to_pyarrow_table()
    assert read.equals(ROWS)


def test_each_request_is_told_of(bucket: Bucket, store: S3Store) -> None:
    assert bucket.requests() == []
    obstore.put(store, "odd %20=ü", b"x" * 1000)
    (put,) = bucket.requests()
    assert (put.api, put.bucket, put.key) == ("PutObject", bucket.name, "odd %20=ü")
    assert (put.status, put.received_bytes) == (200, 1000)

    mark = bucket.mark()
    obstore.list(store, "x/").collect()
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "nothing")
    listed, got = bucket.requests(mark)
    assert (listed.api, listed.query["prefix"], listed.status) == ("ListObjectsV2", "x/", 200)
    assert (got.api, got.key, got.status) == ("GetObject", "nothing", 404)


def test_only_one_creates_an_object(bucket: Bucket, store: S3Store) -> None:
    obstore.put(store, "once", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "once", b"2", mode="create")
    assert [(request.api, request.status) for request in bucket.requests()] == [
        ("PutObject", 200),
        ("PutObject", 412),
    ]


def test_a_delta_commit_is_two_puts(bucket: Bucket) -> None:
    table = f"{bucket.url}/table"
    deltalake.write_deltalake(table, ROWS, storage_options=bucket.options)
    requests = bucket.requests()
    part, log = [request.key for request in requests if request.api == "PutObject"]
    assert part.startswith("table/part-")
    assert log == "table/_delta_log/00000000000000000000.json"
    assert {request.api for request in requests} == {"PutObject", "GetObject", "ListObjectsV2"}


def test_none_is_missed_of_many_at_a_time(bucket: Bucket, store: S3Store) -> None:
    def put(writer: int) -> None:
        for number in range(25):
            obstore.put(store, f"{writer}/{number}", b"x")

    run_threads([lambda writer=writer: put(writer) for writer in range(8)])
    counted = Counter(request.key for request in bucket.requests())
    assert counted == {f"{writer}/{number}": 1 for writer in range(8) for number in range(25)}


def test_one_that_is_being_answered_is_waited_for(bucket: Bucket, store: S3Store) -> None:
    size = 64 << 20  # more than lies in the buffers of a connection
    obstore.put(store, "long", bytes(size), use_multipart=False)
    mark = bucket.mark()
    with ThreadPoolExecutor(1) as pool:
        answer = obstore.get(store, "long")
        asked = pool.submit(bucket.requests, mark)
        with pytest.raises(TimeoutError):
            asked.result(0.3)
        assert len(answer.bytes()) == size
        (request,) = asked.result(WAIT_S)
    assert (request.api, request.key, request.sent_bytes) == ("GetObject", "long", size)


def test_buckets_know_nothing_of_each_other(minio: Minio) -> None:
    with minio.bucket() as one, minio.bucket() as other:
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
