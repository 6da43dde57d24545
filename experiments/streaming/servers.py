"""The servers that the chosen systems need, each a process on this machine."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from experiments.datasets import WORK
from experiments.streaming.run_spec import Place
from experiments.streaming.systems import S3, System
from tests.services.iceberg_rest import IcebergRest, running_iceberg_rest
from tests.services.minio import Minio, running_minio
from tests.services.postgres import Postgres, running_postgres
from tests.support.clusters.cluster import server_process


@dataclass(frozen=True)
class Servers:
    """Those that run, and the processes of each."""

    storage: str
    postgres: Postgres | None
    rest: IcebergRest | None
    minio: Minio | None
    metadata: str
    log_servers: tuple[int, ...]

    def processes(self, system: System) -> list[int]:
        """Return the servers that a system uses, whose work counts as its own."""
        found = list(self.log_servers) if system.format == "log" else []
        if self.minio is not None and system.format != "log":
            found.append(self.minio.server.pid)
        if self.rest is not None and system.format == "iceberg":
            found.append(self.rest.server.pid)
        if self.postgres is not None and self._is_in_postgres(system):
            found.append(self.postgres.server.pid)
        return found

    @contextmanager
    def place(self, system: System) -> Iterator[Place]:
        """Yield where one run of a system has its table; it is removed at the end."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=WORK))
            files, storage = f"{folder}/tables", {}
            Path(files).mkdir()
            if self.minio is not None:
                bucket = stack.enter_context(self.minio.bucket())
                files, storage = f"{bucket.url}/tables", bucket.options
            uri = ""
            if self.postgres is not None and self._is_in_postgres(system):
                database = stack.enter_context(self.postgres.database())
                uri = self.postgres.uri(database)
            yield Place(
                folder,
                files,
                storage,
                uri,
                "" if self.rest is None else self.rest.uri,
                self.metadata,
                f"run_{secrets.token_hex(4)}",
            )

    def _is_in_postgres(self, system: System) -> bool:
        return system.format == "ducklake" or (system.format == "iceberg" and self.rest is None)


@contextmanager
def running_servers(systems: Sequence[System], storage: str) -> Iterator[Servers]:
    """Start what the systems need."""
    formats = {system.format for system in systems}
    with ExitStack() as stack:
        minio = stack.enter_context(running_minio()) if storage == S3 else None
        rest = None
        if "iceberg" in formats and storage != S3:
            rest = stack.enter_context(running_iceberg_rest())
        postgres = None
        if "ducklake" in formats or ("iceberg" in formats and rest is None):
            postgres = stack.enter_context(running_postgres(is_durable=True))
        log_servers = _log_servers(stack) if "log" in formats else ("", ())
        yield Servers(storage, postgres, rest, minio, *log_servers)


def _log_servers(stack: ExitStack) -> tuple[str, tuple[int, ...]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=WORK)))
    options = ("--port", "0", "--journal", str(folder / "metadata.journal"))
    metadata, line = stack.enter_context(server_process("metadata", *options))
    address = line.split()[-1]
    where = ("--port", "0", "--log-dir", str(folder / "logs"), "--metadata", address)
    data, _ = stack.enter_context(server_process("data", *where))
    return address, (metadata.pid, data.pid)


def environment() -> dict[str, str]:
    """Return the environment of measured programs: bytecode is kept, and DuckLake is found."""
    from mrflight.storage.ducklake.interpreter import VARIABLE
    from tests.services.built import DUCKLAKE_PYTHON

    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, VARIABLE: str(DUCKLAKE_PYTHON)}
