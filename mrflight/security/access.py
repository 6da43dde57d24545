"""The callers that a server knows: the names in certificates, hashed tokens, and JSON web tokens.

They are in an access file, which is TOML and readable by its owner only::

    [[principals]]
    name = "data-*"              # in the client's certificate; * stands for any characters
    roles = ["server"]

    [[principals]]
    name = "alice@example.com"   # the subject of a web token
    credential = "jwt"
    roles = ["reader"]

    [[principals]]
    name = "etl"
    roles = ["job"]
    token = "sha256:9f86d08..."  # of the token that this caller sends

    [jwt]
    jwks = "keys.json"           # beside the access file

An entry is for one kind of credential. Otherwise whoever may choose the subject of a web token
would become a data server by the look of its name.

`mrflight certificates token` adds a token. The hashes are compared in constant time, all of them
for every call.
"""

from __future__ import annotations

import hmac
import logging
import os
import stat
import threading
import time
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from mrflight.errors import AccessDeniedError, JobFileError
from mrflight.security.hashed_tokens import token_hash
from mrflight.security.principal import Principal, Role
from mrflight.security.web_tokens import WebTokens
from mrflight.system.file_version import FileVersion, file_version

log = logging.getLogger(__name__)

_AGAIN_S = 1.0
"""How long a file that cannot be used is left alone before it is read again."""
_MAX_TOKEN = 8192
"""Characters. A web token with many claims has 2,000, and gRPC takes 8,000 bytes of headers."""

_FORM = (
    f"each of [[principals]] has a name, roles ({', '.join(Role)}), and for a token its hash, "
    'which `mrflight certificates token` writes, or for a web token credential = "jwt"'
)

Credential = Literal["certificate", "jwt"]
_PATTERN = frozenset("*?[")
_NAMED_IN_FULL = (Role.SERVER, Role.ADMIN)
"""The roles that no web token has by a pattern: subjects come from elsewhere."""

_Hash = Annotated[str, msgspec.Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A caller: who sends the ``token``, or else whose certificate or web token has the name."""

    name: str
    roles: list[Role]
    token: _Hash | None = None
    credential: Credential = "certificate"


class JwtSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How JSON web tokens are checked."""

    jwks: str
    """The file of the issuer's public keys, relative to the access file."""
    issuer: str | None = None
    audience: str | None = None


class AccessFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an access file."""

    principals: list[Entry]
    jwt: JwtSection | None = None


class Access:
    """Finds the principal of a call. Safe for many threads.

    The access file and that of `JwtSection` are read again if they change. If they cannot be used,
    as while they are being written, callers are those from before, and the log says why. Without a
    file, every certificate that the server's authority has signed may do everything.
    """

    def __init__(self, path: Path | None) -> None:
        """Raise JobFileError if the file cannot be used."""
        self._path = path
        self._lock = threading.Lock()
        self._files: list[Path] = []
        self._seen: list[FileVersion] = []
        self._again_at = 0.0
        self._entries: list[Entry] = []
        self._web_tokens: WebTokens | None = None
        if path is not None:
            self._read(path)

    def by_token(self, token: str) -> Principal:
        """Return who sends this token; raise AccessDeniedError if nobody is known to."""
        entries, web_tokens = self._current()
        if len(token) <= _MAX_TOKEN:
            found = _with_token(entries, token)
            if found is not None:
                return found
            if web_tokens is not None and token.count(".") == 2:
                return _named(entries, "jwt", web_tokens.subject(token))
        raise AccessDeniedError(
            "no caller in the server's access file has this token; was it replaced, or is it for "
            "another cluster? mrflight certificates token makes one"
        )

    def by_certificate(self, name: str) -> Principal:
        """Return whose certificate this is, by its name: its first subject alternative name.

        Raises AccessDeniedError if no entry has the name.
        """
        if self._path is None and name:
            return Principal(name, frozenset(Role))
        return _named(self._current()[0], "certificate", name)

    def _current(self) -> tuple[list[Entry], WebTokens | None]:
        if self._path is not None and self._has_changed():
            with self._lock:
                if self._has_changed():
                    self._read_again(self._path)
        return self._entries, self._web_tokens

    def _has_changed(self) -> bool:
        seen = [file_version(each) for each in self._files]
        return seen != self._seen and time.monotonic() >= self._again_at

    def _read_again(self, path: Path) -> None:
        try:
            self._read(path)
        except JobFileError as error:
            self._again_at = time.monotonic() + _AGAIN_S
            log.warning("who may call stays as it was before a file changed: %s", error)

    def _read(self, path: Path) -> None:
        seen = [file_version(path)]
        file, files, web_tokens = parse_access(path), [path], None
        if file.jwt is not None:
            keys = path.parent / file.jwt.jwks
            files.append(keys)
            seen.append(file_version(keys))
            web_tokens = WebTokens(keys, file.jwt.issuer, file.jwt.audience)
        self._entries, self._web_tokens = file.principals, web_tokens
        self._files, self._seen = files, seen


def parse_access(path: Path) -> AccessFile:
    """Return the content of an access file.

    Raises JobFileError if it cannot be read, is not one, or is readable by other users.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            document = tomllib.load(file)
        if _is_shared(found):
            mode = stat.S_IMODE(found.st_mode)
            raise JobFileError(
                f"{path} can be read by other users (mode {mode:04o}); chmod 600 {path}"
            )
        parsed = msgspec.convert(document, AccessFile)
    except OSError as error:
        raise JobFileError(f"the access file {path} cannot be read: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise JobFileError(f"the access file {path} cannot be used: {error}; {_FORM}") from error
    except ValueError as error:
        raise JobFileError(f"the access file {path} is no TOML: {error}") from error
    if problem := _problem(parsed):
        raise JobFileError(f"the access file {path} cannot be used: {problem}")
    return parsed


def _problem(file: AccessFile) -> str:
    """Return why the entries of a file do not fit together; nothing if they do."""
    of_web_tokens = [entry for entry in file.principals if entry.credential == "jwt"]
    if file.jwt is not None and not of_web_tokens:
        return (
            '[jwt] is for principals with credential = "jwt", and there is none; write it into '
            "those whose name is the subject of a web token"
        )
    for entry in of_web_tokens:
        if entry.token is not None:
            return f"the principal {entry.name!r} has a token, and is not for web tokens as well"
        if file.jwt is None:
            return f"the principal {entry.name!r} is for web tokens, which need [jwt]"
        if _PATTERN & {*entry.name} and not {*entry.roles}.isdisjoint(_NAMED_IN_FULL):
            return (
                f"the principal {entry.name!r} stands for any web token like it, and only one that "
                "is named in full may be a server or an admin"
            )
    return ""


def _is_shared(found: os.stat_result) -> bool:
    """Return whether a file may be read by others than this process's user, or changed.

    What root gives to a server through its group, as Kubernetes and systemd do, is not shared.
    """
    is_given = found.st_uid == 0 and os.geteuid() != 0
    return bool(found.st_mode & (0o037 if is_given else 0o077))


def _with_token(entries: list[Entry], token: str) -> Principal | None:
    hashed = token_hash(token)
    found = None
    for entry in entries:
        if entry.token is not None and hmac.compare_digest(entry.token, hashed):
            found = entry
    return None if found is None else Principal(found.name, frozenset(found.roles))


def _named(entries: list[Entry], credential: Credential, name: str) -> Principal:
    for entry in entries:
        is_of_kind = entry.token is None and entry.credential == credential
        if is_of_kind and name and fnmatchcase(name, entry.name):
            return Principal(name, frozenset(entry.roles))
    how = "" if credential == "certificate" else ' with credential = "jwt"'
    raise AccessDeniedError(
        f"the caller {name[:128]!r} is not known to this server; add it to the access file{how}"
    )
