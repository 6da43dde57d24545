"""Servers as fixtures, for whichever test asks; a plugin of ``tests/conftest.py``.

There is one of each server for a whole run, which all workers of pytest-xdist use: see `shared`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.services.built import (
    NotBuiltError,
    debian_program,
    duckdb_python,
    ducklake_python,
    hdfs_class_path,
    hopsfs_python,
    iceberg_class_path,
    kafka_class_path,
    minio_program,
    postgres_folder,
    spark_python,
    validators,
)
from tests.services.hdfs import Hdfs, running_hdfs
from tests.services.iceberg_rest import IcebergRest, running_iceberg_rest
from tests.services.kafka import SOON_BACK, Kafka, running_kafka
from tests.services.minio import Bucket, Minio, RecordedBucket, running_minio
from tests.services.name_node_proxy import NameNodeProxy, name_node_proxy
from tests.services.postgres import Postgres, running_postgres
from tests.services.shared import await_ends, first_failures, keepers, shared_server
from tests.support.suite.run import is_controller, run_folder


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> Generator[None]:
    """End with the servers of the run, which end as soon as the rest of it has."""
    ending = keepers(run_folder()) if is_controller(config) else []
    yield
    await_ends(ending)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell of servers that did not start at first: that is a fault too."""
    for name, failure in first_failures(run_folder()).items():
        terminalreporter.section(f"{name} failed, and was tried again")
        terminalreporter.write_line(failure)


@pytest.fixture(scope="session")
def needs_minio() -> None:
    """Skip the test if MinIO is not built; fail it in CI."""
    try:
        minio_program()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def needs_hdfs() -> None:
    """Skip the test if HDFS is not installed; fail it in CI."""
    try:
        hdfs_class_path()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def needs_validators() -> Path:
    """Return the environment of the validators; skip the test if it is not built."""
    try:
        return validators()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def promtool() -> str:
    """Return the program of Prometheus that checks metrics; skip the test if there is none."""
    try:
        return debian_program("promtool", "prometheus")
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the browser; skip the test if there is none."""
    try:
        return debian_program("chromium", "chromium")
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def minio(needs_minio: None) -> Minio:
    """For tests that leave it running."""
    return shared_server(run_folder(), running_minio)


@pytest.fixture
def bucket(minio: Minio) -> Iterator[Bucket]:
    """Return an empty bucket for this test alone."""
    with minio.bucket() as bucket:
        yield bucket


@pytest.fixture
def recorded_bucket(minio: Minio) -> Iterator[RecordedBucket]:
    """An empty bucket for one test, whose requests are recorded."""
    with minio.recorded_bucket() as bucket:
        yield bucket


@pytest.fixture(scope="session")
def hdfs(needs_hdfs: None) -> Hdfs:
    """For tests that leave it running, each in a folder of its own."""
    return shared_server(run_folder(), running_hdfs)


@pytest.fixture(scope="session")
def needs_hopsfs() -> None:
    """The environment of HopsFS's client: without it the test is skipped, in CI it fails."""
    try:
        hopsfs_python()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture
def name_node(needs_hopsfs: None, hdfs: Hdfs) -> Iterator[NameNodeProxy]:
    """The HDFS, where HopsFS's client finds it."""
    with name_node_proxy(hdfs.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def needs_kafka() -> None:
    """Skip the test if Apache Kafka is not installed; fail it in CI."""
    pytest.importorskip("confluent_kafka", reason="install mrflight[kafka]")
    try:
        kafka_class_path()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(needs_kafka: None) -> Kafka:
    """For tests that leave it running, each with topics of its own."""
    return shared_server(run_folder(), running_kafka)


@pytest.fixture
def own_kafka(needs_kafka: None) -> Iterator[Kafka]:
    """For one test, which may kill it and start it again."""
    with running_kafka(changes=SOON_BACK) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def needs_spark() -> Path:
    """Return the Python that has PySpark; skip the test without it, and fail it in CI."""
    try:
        return spark_python()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def needs_duckdb() -> Path:
    """Return the Python that has DuckDB's extension for Iceberg; skip the test without it."""
    try:
        return duckdb_python()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def needs_postgres() -> None:
    """Skip the test if PostgreSQL is not installed; fail it in CI."""
    try:
        postgres_folder()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgres(needs_postgres: None) -> Postgres:
    """For tests that leave it running, each with a database of its own."""
    return shared_server(run_folder(), running_postgres)


@pytest.fixture(scope="session")
def needs_iceberg() -> None:
    """Skip the test if Iceberg's REST catalog is not installed; fail it in CI."""
    try:
        iceberg_class_path()
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def iceberg_rest(needs_iceberg: None) -> IcebergRest:
    """For tests that leave it running, each with a namespace of its own."""
    return shared_server(run_folder(), running_iceberg_rest)


@pytest.fixture(scope="session")
def needs_ducklake() -> Path:
    """Return the Python whose DuckDB has the ducklake extension; skip the test without it."""
    try:
        return ducklake_python()
    except NotBuiltError as error:
        pytest.skip(str(error))
