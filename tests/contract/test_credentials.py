"""A bucket's credentials are where they were written, and not in what a job says or starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pyarrow as pa
import pyarrow.csv
import pytest

from mrflight.storage import Location, locate
from tests.contract.test_jobs_on_stores import KEYS, job_file, put_inputs, table_of
from tests.services.hdfs import Hdfs
from tests.services.minio import Bucket
from tests.services.postgres import Postgres
from tests.support.commands.driver import drive, driver_command, write_job
from tests.support.commands.mrflight import mrflight
from tests.support.commands.running_command import running_command
from tests.support.faults import place as fault_place
from tests.support.faults.faulty_run import await_that
from tests.support.jobs.job_sections import toml_section
from tests.support.ray.head import RayHead

pytestmark = pytest.mark.runs_on_ray

LOUD = """
import logging, sys
logging.basicConfig(level=logging.NOTSET)
from mrflight.driver import leave, main
leave(main(sys.argv[1:]))
"""
NOTING_CALLS = """
import sys

if "mrflight.driver" in " ".join(sys.orig_argv):
    from pathlib import Path

    from mrflight.runtime import calls
    from mrflight.runtime.ray import shared_payloads

    def note(encoded):
        with (Path(__file__).parent / "calls").open("ab") as file:
            file.write(encoded)
        return encoded

    encode = calls.encode_call
    calls.encode_call = lambda *arguments: note(encode(*arguments))

    class Noting(shared_payloads.CallEncoder):
        def __init__(self, send):
            super().__init__(lambda number, encoded: send(number, note(encoded)))

        def encode(self, *arguments):
            encoded = super().encode(*arguments)
            note(encoded.call)
            return encoded

    shared_payloads.CallEncoder = Noting
"""
WAITING = """
from pathlib import Path

FOLDER = Path(__file__).parent

def wait(batch):
    (FOLDER / "waits").touch()
    (FOLDER / "gate").read_bytes()  # a FIFO
    return batch
"""


def secrets_of(bucket: Bucket) -> list[str]:
    return [bucket.minio.user, bucket.minio.password]


def assert_none_in(text: str, secrets: list[str]) -> None:
    assert [secret for secret in secrets if secret in text] == []


def processes_of(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the arguments and environment of a driver and all processes of its job, also on Ray."""
    driver = psutil.Process(pid)
    for process in {driver, *driver.children(recursive=True), *fault_place.PLACE.processes("")}:
        of = Path(f"/proc/{process.pid}")
        yield (of / "cmdline").read_text(), (of / "environ").read_text(errors="replace")


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_job_tells_no_secret(bucket: Bucket, tmp_path: Path, format: str) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    (tmp_path / "waiting.py").write_text(WAITING)
    os.mkfifo(tmp_path / "gate")
    table = locate(f"{bucket.url}/table", tmp_path, bucket.options)
    job = job_file(tmp_path, "in.csv", table)
    settings = [f"output.format={format}", "inputs.rows.map=waiting:wait"]
    options = [word for setting in settings for word in ("--set", setting)]
    command = driver_command(job, *options, command=[sys.executable, "-c", LOUD])
    with running_command(command, {"RUST_LOG": "trace"}) as process:
        await_that((tmp_path / "waits").exists, "the map")
        found = list(processes_of(process.pid))
        (tmp_path / "gate").write_bytes(b"")
        stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert len(found) > 2
    assert "DEBUG" in stderr
    texts = [text for pair in found for text in pair]
    assert_none_in("\n".join([stdout, *texts]), secrets_of(bucket))
    # What deltalake traces for who asks for it has the key's id, and stars for the secret.
    assert_none_in(stderr, [bucket.minio.password])
    small = [table.at(info.path) for info in table.walk() if info.base_name.endswith(".json")]
    assert small
    assert_none_in("\n".join(str(file.read_bytes()) for file in small), secrets_of(bucket))


def test_a_job_finds_secrets_where_its_file_says_that_they_are(
    bucket: Bucket, tmp_path: Path
) -> None:
    """They are in no file that it leaves, and not in what it sends to its workers."""
    (tmp_path / "key").write_text(bucket.minio.password)
    references = {
        "aws_access_key_id": "env:BACKUP_KEY",
        "aws_secret_access_key": f"file:{tmp_path / 'key'}",
    }
    place = locate(bucket.url, tmp_path, bucket.options)
    put_inputs(place.child("in"))
    named = locate(f"{bucket.url}/table", tmp_path, {**bucket.options, **references})
    job = job_file(tmp_path, place.child("in").url, named)
    (tmp_path / "sitecustomize.py").write_text(NOTING_CALLS)
    variables = {"BACKUP_KEY": bucket.minio.user, "PYTHONPATH": str(tmp_path)}
    done = drive(job, "--set=job.events=history", environment=variables)
    assert done.code == 0, done.stderr
    assert done.result["rows_out"] == KEYS
    (tmp_path / "key").unlink()
    assert list((tmp_path / "history").iterdir())
    assert (tmp_path / "calls").stat().st_size > 1000
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts = [path.read_bytes().decode(errors="replace") for path in left]
    assert_none_in("\n".join([done.stdout, done.stderr, *texts]), secrets_of(bucket))


def test_a_driver_on_ray_sends_names_of_secrets(
    bucket: Bucket, ray_head: RayHead, tmp_path: Path
) -> None:
    """The variables are in its environment only, and not in that of Ray."""
    options = {key: value for key, value in bucket.options.items() if "access_key" not in key}
    assert options.keys() < bucket.options.keys()
    place = locate(bucket.url, tmp_path, bucket.options)
    put_inputs(place.child("in"))
    named = locate(f"{bucket.url}/table", tmp_path, options)
    job = job_file(tmp_path, place.child("in").url, named)
    (tmp_path / "sitecustomize.py").write_text(NOTING_CALLS)
    variables = {
        "AWS_ACCESS_KEY_ID": bucket.minio.user,
        "AWS_SECRET_ACCESS_KEY": bucket.minio.password,
        "PYTHONPATH": str(tmp_path),
    }
    words = [f"--set={option}" for option in (*ray_head.options, "job.events=history")]
    done = drive(job, *words, environment=variables)
    assert done.code == 0, done.stderr
    assert done.result["rows_out"] == KEYS
    assert b"env:AWS_SECRET_ACCESS_KEY" in (tmp_path / "calls").read_bytes()
    session = Path(ray_head.process.cmdline()[-2])
    places = [tmp_path, *session.glob("session_*/logs")]
    left = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert any(session in path.parents for path in left)
    texts = [path.read_bytes().decode(errors="replace") for path in left]
    texts += [" ".join(process.cmdline()) for process in ray_head.workers("")]
    assert_none_in("\n".join([done.stdout, done.stderr, *texts]), secrets_of(bucket))


NEEDLE = "qzxneedle"
PASSWORD = f"it's/a%\\w@rd-{NEEDLE}"
_ENCODED = quote(PASSWORD, safe="")
CATALOGS = {
    "encoded": f"postgresql://USER:{_ENCODED}@HOST/DATABASE",
    "as it is": f"postgresql://USER:{PASSWORD.replace('%', '%25')}@HOST/DATABASE",
    "in the query": f"postgresql://HOST/DATABASE?user=USER&password={_ENCODED}",
}


def catalog_job(folder: Path, format: str, catalog: str) -> Path:
    place = {"iceberg": {"warehouse": "warehouse"}, "ducklake": {"data_path": "data"}}[format]
    output = {"table": "ns.t", "format": format, "catalog": catalog, "mode": "append", **place}
    sections: dict[str, dict[str, Any]] = {
        "job": {"name": "planted", "events": "history"},
        "inputs.rows": {"path": "in.csv", "key": ["k"], "map": "waiting:wait"},
        "output": output,
        "cluster": {"workers": 1},
    }
    text = "\n".join(toml_section(title, keys) for title, keys in sections.items())
    return write_job(folder, text)


@pytest.mark.slow_but("iceberg-as it is", "ducklake-in the query")
@pytest.mark.parametrize("written", CATALOGS)
@pytest.mark.parametrize("format", ["iceberg", "ducklake"])
def test_a_job_tells_no_password_of_its_catalog(
    postgres: Postgres, ducklake_python: Path, tmp_path: Path, format: str, written: str
) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    (tmp_path / "waiting.py").write_text(WAITING)
    os.mkfifo(tmp_path / "gate")
    with postgres.role(PASSWORD) as user, postgres.database(user) as database:
        uri = CATALOGS[written].replace("HOST", postgres.host).replace("DATABASE", database)
        uri = uri.replace("USER", user)
        job = catalog_job(tmp_path, format, uri)
        (tmp_path / "sitecustomize.py").write_text(NOTING_CALLS)
        environment = {"RUST_LOG": "trace", "PYTHONPATH": str(tmp_path)}
        command = driver_command(job, "--report", str(tmp_path / "report.html"))
        with running_command(command, environment) as process:
            await_that((tmp_path / "waits").exists, "the map")
            found = list(processes_of(process.pid))
            (tmp_path / "gate").write_bytes(b"")
            stdout, stderr = process.communicate()
        assert process.returncode == 0, stderr
        explained = mrflight("explain", job)
        assert f"postgresql://{postgres.host}/{database}" in explained.stdout
    gone = drive(catalog_job(tmp_path, format, uri.replace(postgres.host, "127.0.0.1:1")))
    assert gone.code == 1
    assert f"postgresql://127.0.0.1:1/{database}" in gone.message
    job.unlink()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"report.html", "calls"} <= {path.name for path in left}
    assert len(list((tmp_path / "history").iterdir())) == 2
    texts = [path.read_bytes().decode(errors="replace") for path in left]
    texts += [text for pair in found for text in pair]
    said = [stdout, stderr, explained.stdout, explained.stderr, gone.stdout, gone.stderr]
    assert_none_in("\n".join([*said, *texts]), [NEEDLE])


@pytest.mark.parametrize("format", ["delta", "csv"])
def test_a_store_that_refuses_is_told_without_secrets(
    bucket: Bucket, tmp_path: Path, format: str
) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    wrong = {**bucket.options, "aws_secret_access_key": "a-secret-that-is-wrong"}
    table: Location = locate(f"{bucket.url}/table", tmp_path, wrong)
    done = drive(job_file(tmp_path, "in.csv", table), "--set", f"output.format={format}")
    assert done.code == 1
    assert table.url in done.message
    assert "SignatureDoesNotMatch" in done.message
    assert "Traceback" not in done.stderr
    assert_none_in(done.stdout + done.stderr, [*secrets_of(bucket), "a-secret-that-is-wrong"])


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_the_jobs_own_key_and_endpoint_are_not_mixed_with_those_of_the_environment(
    bucket: Bucket, tmp_path: Path, format: str
) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    table = locate(f"{bucket.url}/table", tmp_path, bucket.options)
    done = drive(
        job_file(tmp_path, "in.csv", table),
        f"--set=output.format={format}",
        environment={"AWS_SESSION_TOKEN": "of-another", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
    )
    assert done.code == 0, done.stderr
    assert done.result["rows_out"] == KEYS


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_what_one_client_alone_takes_does_not_keep_a_job_from_a_bucket(
    bucket: Bucket, tmp_path: Path, format: str
) -> None:
    """obstore would refuse what is deltalake's."""
    options = {**bucket.options, "max_retries": "3", "aws_s3_locking_provider": "none"}
    options |= {"AWS_CONDITIONAL_PUT": "etag", "connect_timeout": "120s", "aws_user_agent": "tests"}
    place = locate(bucket.url, tmp_path, options)
    put_inputs(place.child("in"))
    job = job_file(tmp_path, place.child("in").url, place.child("table"))
    done = drive(job, f"--set=output.format={format}")
    assert done.code == 0, done.stderr
    assert done.result["rows_out"] == KEYS


def test_a_property_of_hadoops_does_not_keep_a_job_from_a_bucket(
    bucket: Bucket, hdfs: Hdfs, tmp_path: Path
) -> None:
    source = locate(hdfs.folder(), tmp_path).child("in")
    put_inputs(source)
    job = job_file(tmp_path, source.url, locate(f"{bucket.url}/table", tmp_path, bucket.options))
    of_hadoop = '[storage]\n"dfs.client.failover.max.attempts" = 5'
    job.write_text(job.read_text().replace("[storage]", of_hadoop))
    done = drive(job)
    assert done.code == 0, done.stderr
    assert done.result["rows_out"] == KEYS


def test_a_secret_that_is_an_argument_is_refused_and_not_shown(tmp_path: Path) -> None:
    job = job_file(tmp_path, "in.csv", locate("table", tmp_path))
    done = drive(job, "--set=storage.aws_secret_access_key=a-secret")
    assert done.code == 2
    assert done.message.startswith("--set storage.aws_secret_access_key: ")
    assert_none_in(done.stdout + done.stderr, ["a-secret"])


@pytest.mark.parametrize("key", ["inputs.rows.path", "output.table"])
def test_a_misspelled_option_is_told_before_anything_is_looked_at(tmp_path: Path, key: str) -> None:
    job = job_file(tmp_path, "none.csv", locate("table", tmp_path))
    job.write_text(job.read_text().replace("[storage]", '[storage]\naws_acces_key_id = "a-secret"'))
    done = drive(job, f"--set={key}=s3://bucket/t")
    assert done.code == 2
    message = "storage.aws_acces_key_id: unknown key; did you mean 'aws_access_key_id'? All are in"
    assert done.message.startswith(message)
    assert done.stderr.count("\n") == 1
    assert_none_in(done.stdout + done.stderr, ["a-secret"])


@pytest.mark.parametrize("key", ["inputs.rows.path", "output.table"])
def test_a_url_with_credentials_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    pa.csv.write_csv(table_of(0), tmp_path / "in.csv")
    job = job_file(tmp_path, "in.csv", locate("table", tmp_path))
    done = drive(job, f"--set={key}=s3://a-key:a-secret@bucket/t")
    assert done.code == 2
    assert "[storage]" in done.message
    assert_none_in(done.stdout + done.stderr, ["a-key", "a-secret"])
