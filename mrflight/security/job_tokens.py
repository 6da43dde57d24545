"""The tokens of a job's own servers, in files that only the job's user can read.

The servers listen on unix sockets, or on loopback. Other users of the machine could connect there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from mrflight.config.identity import Identity
from mrflight.config.secret_reference import FILE
from mrflight.security.hashed_tokens import access_entry, new_bearer_token
from mrflight.security.principal import Role


class JobTokens(NamedTuple):
    """Where the tokens of a job are."""

    access: Path
    """The access file of the servers."""
    of_servers: Identity
    of_job: Identity
    """The identity of the driver and the workers."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options of the job's servers, as ``mrflight serve`` takes them."""
        return ("--access", str(self.access), "--token", self.of_servers.token)


def make_tokens(folder: Path) -> JobTokens:
    """Write the tokens of a job into its private folder."""
    entries = []
    identities = []
    for role in (Role.SERVER, Role.JOB):
        token, path = new_bearer_token(), folder / f"{role}.token"
        write_private(path, token)
        entries.append(access_entry(role, [role], token))
        identities.append(Identity(token=f"{FILE}{path}"))
    access = folder / "access.toml"
    write_private(access, "".join(entries))
    return JobTokens(access, *identities)


def write_private(path: Path, text: str) -> None:
    """Create a file that only this user can read, in place of one of an earlier cluster."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
