"""A MinIO on loopback: S3 with one drive, which tells what it was asked."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.services.audit import Audit, Request, audit
from tests.services.built import minio_program
from tests.services.get import get
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import (
    ServerProcess,
    server_process,
    wait_for,
)
from tests.services.service_folder import service_folder
from tests.services.signed import put_signed

START_TIMEOUT_S = 30.0
_SETTLE_TIMEOUT_S = 30.0
_MARKS = "marks"  # a bucket that is not there: asking for something in it is refused, and recorded


@dataclass(frozen=True)
class Minio:
    """One that runs."""

    port: int
    user: str
    password: str
    data: Path
    server: ServerProcess
    audit: Audit
    command: Sequence[str]
    environment: Mapping[str, str]

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """The keys of the object_store crate: of deltalake's ``storage_options``, and obstore's."""
        return {
            "aws_access_key_id": self.user,
            "aws_secret_access_key": self.password,
            "aws_endpoint_url": self.endpoint,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    @contextmanager
    def bucket(self) -> Iterator[Bucket]:
        """A new one, whose objects go at the end."""
        name = f"bucket-{secrets.token_hex(6)}"
        folder = self.data / name
        folder.mkdir()  # with one drive a bucket is a folder
        try:
            yield Bucket(name, self)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def requests(self) -> list[Request]:
        """All that were answered so far; those under way are waited for.

        Records are queued when a handler returns, which is after the client has read a long
        answer; one sender then posts them in the queue's order. So once no handler runs, all are
        queued, and a request of our own comes after them.
        """
        wait_for(lambda: self._under_way() == 0, [self.server], _SETTLE_TIMEOUT_S)
        mark = secrets.token_hex(8)
        get(self.port, f"/{_MARKS}/{mark}")
        requests = self.audit.up_to(mark, _SETTLE_TIMEOUT_S)
        return [request for request in requests if request.bucket != _MARKS]

    def _under_way(self) -> float:
        status, metrics = get(self.port, "/minio/metrics/v3/api/requests")
        assert status == 200, metrics
        lines = metrics.decode().splitlines()
        gauges = [line for line in lines if line.startswith("minio_api_requests_inflight_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in gauges)


@dataclass(frozen=True)
class Bucket:
    """One of a test's own."""

    name: str
    minio: Minio

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    @property
    def options(self) -> dict[str, str]:
        return self.minio.options

    def let_anyone_read(self, and_write: Sequence[str] = ()) -> dict[str, str]:
        """The options of somebody without a key, who may list and read, and not write.

        But for objects whose keys are like one of ``and_write``, which may be removed as well.
        """
        minio, arn = self.minio, f"arn:aws:s3:::{self.name}"
        everyone = {"Effect": "Allow", "Principal": {"AWS": ["*"]}}
        told = [
            {**everyone, "Action": ["s3:GetBucketLocation", "s3:ListBucket"], "Resource": [arn]},
            {**everyone, "Action": ["s3:GetObject"], "Resource": [f"{arn}/*"]},
        ]
        if and_write:
            written = [f"{arn}/{keys}" for keys in and_write]
            told.append(
                {**everyone, "Action": ["s3:PutObject", "s3:DeleteObject"], "Resource": written}
            )
        policy = json.dumps({"Version": "2012-10-17", "Statement": told}).encode()
        status, answer = put_signed(
            minio.port, f"/{self.name}", "policy=", policy, minio.user, minio.password
        )
        assert status == 204, answer
        keys = ("aws_access_key_id", "aws_secret_access_key")
        options = {name: value for name, value in self.options.items() if name not in keys}
        return {**options, "aws_skip_signature": "true"}

    def mark(self) -> int:
        """Now, for ``requests``."""
        return len(self.requests())

    def requests(self, since: int = 0) -> list[Request]:
        """What was asked of this bucket since a mark, in the order of the answers."""
        ours = [request for request in self.minio.requests() if request.bucket == self.name]
        return ours[since:]


@contextmanager
def running_minio(port: int = 0) -> Iterator[Minio]:
    """One that is ready; port 0 stands for any.

    Raises NotBuiltError, PortTakenError, StartFailedError.
    """
    program = minio_program()
    user, password = secrets.token_hex(8), secrets.token_hex(16)
    with reserved_port(port) as port, audit() as records, service_folder("minio") as folder:
        data = folder / "data"
        command = [str(program), "server", "--quiet", "--anonymous", f"--address={LOOPBACK}:{port}"]
        command += [f"--certs-dir={folder / 'certs'}", str(data)]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MINIO_ROOT_USER": user,
            "MINIO_ROOT_PASSWORD": password,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",  # it asks nobody for newer versions
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",  # of the metrics
            "MINIO_AUDIT_WEBHOOK_ENABLE_TESTS": "on",
            "MINIO_AUDIT_WEBHOOK_ENDPOINT_TESTS": records.endpoint,
        }
        with server_process("minio", command, folder, environment) as server:
            _await(port, server)
            yield Minio(port, user, password, data, server, records, command, environment)


@contextmanager
def restarted(minio: Minio) -> Iterator[Minio]:
    """The same again, with what it has stored, after it was killed."""
    folder = minio.data.parent
    with server_process("minio-again", minio.command, folder, minio.environment) as server:
        _await(minio.port, server)
        yield replace(minio, server=server)


def _await(port: int, server: ServerProcess) -> None:
    wait_for(lambda: get(port, "/minio/health/cluster")[0] == 200, [server], START_TIMEOUT_S)
