"""A PostgreSQL on loopback, in a temporary folder; it runs as an unprivileged user."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from tests.services.built import postgres_folder
from tests.services.reserved_port import LOOPBACK, reserved_port
from tests.services.server_process import ServerProcess, server_process
from tests.services.service_folder import service_folder
from tests.services.starts import run_to_its_end, wait_for

_USER = "tests"
_UNPRIVILEGED = "nobody"
"""The user of the system as which it runs if the tests are root's, as it refuses to run as root."""


@dataclass(frozen=True)
class Postgres:
    """One that runs."""

    port: int
    password: str
    server: ServerProcess

    @property
    def user(self) -> str:
        return _USER

    @property
    def host(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def uri(self, database: str) -> str:
        """The URI of a database, with the password."""
        return f"postgresql://{_USER}:{self.password}@{self.host}/{database}"

    def kill(self) -> None:
        """Kill all of its processes, as it happens when a machine loses its power."""
        others = psutil.Process(self.server.pid).children(recursive=True)
        self.server.kill()
        for process in others:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def await_ready(self) -> None:
        """Wait until it takes connections."""
        wait_for(lambda: _answers(self), [self.server])

    @contextmanager
    def database(self, owner: str = _USER) -> Iterator[str]:
        """Make a new database, and yield its name; it is removed at the end."""
        name = f"test_{secrets.token_hex(6)}"
        self._execute(f"CREATE DATABASE {name} OWNER {owner}")
        try:
            yield name
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def role(self, password: str) -> Iterator[str]:
        """Make a new user, and yield the name; it is removed at the end."""
        name = f"user_{secrets.token_hex(6)}"
        quoted = password.replace("'", "''")
        self._execute(f"CREATE ROLE {name} LOGIN PASSWORD '{quoted}'")
        try:
            yield name
        finally:
            self._execute(f"DROP ROLE {name}")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.uri("postgres"), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]


@contextmanager
def running_postgres(port: int = 0, *, is_durable: bool = False) -> Iterator[Postgres]:
    """One that is ready; port 0 stands for any.

    It syncs its files only if it ``is_durable``, as what measures it wants. Raises NotBuiltError
    and StartFailedError.
    """
    programs, password = postgres_folder(), secrets.token_hex(16)
    with reserved_port(port) as port, service_folder("postgres") as folder:
        data, secret = folder / "data", folder / "password"
        secret.write_text(password)
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", _USER, "--no-sync"]
        initdb += ["--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--locale=C"]
        run_to_its_end("initdb", _unprivileged(initdb, folder), folder)
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(port)]
        command += [] if is_durable else ["-F"]
        command += ["-c", f"listen_addresses={LOOPBACK}", "-c", "unix_socket_directories="]
        with server_process("postgres", _unprivileged(command, folder), folder) as server:
            postgres = Postgres(port, password, server)
            postgres.await_ready()
            yield postgres


def _answers(postgres: Postgres) -> bool:
    try:
        psycopg.connect(postgres.uri("postgres")).close()
    except psycopg.OperationalError:
        return False
    return True


def _unprivileged(command: Sequence[str], folder: Path) -> list[str]:
    """Return the command as it is run by a user who is not root, who gets the folder."""
    if os.getuid() != 0:
        return list(command)
    user = pwd.getpwnam(_UNPRIVILEGED)
    for path in (folder, *folder.iterdir()):
        if path.suffix != ".log":
            os.chown(path, user.pw_uid, user.pw_gid)
    setpriv = shutil.which("setpriv") or "setpriv"
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # The system takes the signal at the starter's end from who becomes somebody else.
    return [setpriv, *ids, "--pdeathsig=keep", *command]
