"""Adds a principal with a token to the access file of servers, which has only its hash."""

from __future__ import annotations

import fcntl
import os
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path

from mrflight.errors import JobFileError
from mrflight.security.hashed_tokens import access_entry, new_bearer_token
from mrflight.security.names import check_name
from mrflight.security.principal import Role

_FOR_OTHERS = 0o077


def add_token(access: Path, name: str, roles: Sequence[Role]) -> str:
    """Append a principal to an access file, which is made if it is not there; return its token.

    The token is random, of 256 bits, and nowhere else. Two that write at a time wait for each
    other. Raises JobFileError if the file cannot be written, others may read it, or it has a
    principal of this name.
    """
    check_name(name)
    token = new_bearer_token()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        with open(os.open(access, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _FOR_OTHERS:
                raise JobFileError(
                    f"{access} may be read or written by others (mode {mode:04o}); run chmod 600 "
                    f"{access}"
                )
            before, addition = file.readall(), access_entry(name, roles, token).encode()
            _check(access, before, addition, name)
            _append(file.fileno(), len(before), addition)
    except OSError as error:
        raise JobFileError(f"{access} cannot be written: {error.strerror}") from error
    return token


def _check(access: Path, before: bytes, addition: bytes, name: str) -> None:
    """Raise JobFileError unless the file is an access file without this name, and stays one."""
    try:
        principals = tomllib.loads(before.decode()).get("principals", [])
        tomllib.loads((before + addition).decode())
        names = [each["name"] for each in principals]
    except (ValueError, TypeError, KeyError) as error:
        raise JobFileError(f"{access} is no access file: {error}") from error
    if name in names:
        raise JobFileError(
            f"{access} has a principal {name!r} already; remove it there, or take another name"
        )


def _append(number: int, size: int, addition: bytes) -> None:
    """Write all of it, or nothing."""
    try:
        while addition:
            addition = addition[os.write(number, addition) :]
        os.fsync(number)
    except OSError:
        os.ftruncate(number, size)
        raise
