"""A MinIO on loopback: S3 with one drive, and buckets whose requests are recorded."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.services.built import minio_program
from tests.services.recorder import Recorder, Request, recorder
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import ServerProcess, server_process
from tests.services.service_folder import service_folder
from tests.services.signed import put_signed
from tests.services.starts import answers, wait_for


@dataclass(frozen=True)
class Minio:
    """One that runs."""

    port: int
    user: str
    password: str
    data: Path
    server: ServerProcess
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

    def await_ready(self) -> None:
        """Wait until it answers."""
        _await(self.port, self.server)

    @contextmanager
    def bucket(self) -> Iterator[Bucket]:
        """Make a new bucket, and remove it with its objects at the end."""
        with self._bucket_name() as name:
            yield Bucket(name, self)

    @contextmanager
    def recorded_bucket(self) -> Iterator[RecordedBucket]:
        """Make a new bucket, as `bucket` does, whose requests are recorded."""
        with self._bucket_name() as name, recorder(self.port) as records:
            yield RecordedBucket(name, self, records)

    @contextmanager
    def _bucket_name(self) -> Iterator[str]:
        name = f"bucket-{secrets.token_hex(6)}"
        folder = self.data / name
        folder.mkdir()  # with one drive a bucket is a folder
        try:
            yield name
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Bucket:
    """A bucket that only one test uses."""

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
        statements = [
            {**everyone, "Action": ["s3:GetBucketLocation", "s3:ListBucket"], "Resource": [arn]},
            {**everyone, "Action": ["s3:GetObject"], "Resource": [f"{arn}/*"]},
        ]
        if and_write:
            written = [f"{arn}/{keys}" for keys in and_write]
            statements.append(
                {**everyone, "Action": ["s3:PutObject", "s3:DeleteObject"], "Resource": written}
            )
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements}).encode()
        status, answer = put_signed(
            minio.port, f"/{self.name}", "policy=", policy, minio.user, minio.password
        )
        assert status == 204, answer
        keys = ("aws_access_key_id", "aws_secret_access_key")
        options = {name: value for name, value in self.options.items() if name not in keys}
        return {**options, "aws_skip_signature": "true"}


@dataclass(frozen=True)
class RecordedBucket(Bucket):
    """A bucket that clients reach through a recorder, which they find by its `options`."""

    recorder: Recorder

    @property
    def options(self) -> dict[str, str]:
        endpoint = f"http://{LOOPBACK}:{self.recorder.port}"
        return {**self.minio.options, "aws_endpoint_url": endpoint}

    def mark(self) -> int:
        """Return the present, for ``requests``."""
        return len(self.requests())

    def requests(self, since: int = 0) -> list[Request]:
        """Return the requests since a mark, in the order of the responses."""
        return self.recorder.requests()[since:]


@contextmanager
def running_minio(port: int = 0) -> Iterator[Minio]:
    """One that is ready; port 0 stands for any.

    Raises NotBuiltError, PortTakenError, StartFailedError.
    """
    program = minio_program()
    user, password = secrets.token_hex(8), secrets.token_hex(16)
    with reserved_port(port) as port, service_folder("minio") as folder:
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
        }
        with server_process("minio", command, folder, environment) as server:
            _await(port, server)
            yield Minio(port, user, password, data, server, command, environment)


@contextmanager
def restarted(minio: Minio) -> Iterator[Minio]:
    """The same again, with what it has stored, after it was killed."""
    folder = minio.data.parent
    with server_process("minio-again", minio.command, folder, minio.environment) as server:
        _await(minio.port, server)
        yield replace(minio, server=server)


def _await(port: int, server: ServerProcess) -> None:
    wait_for(lambda: answers(port, "/minio/health/cluster"), [server])
