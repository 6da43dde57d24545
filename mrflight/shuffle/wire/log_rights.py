"""The rights that a handle of an event log gives, and the public id of a log.

The maker of a log has its secret, with which everything may be done. A handle for less has another
token, which servers derive from the secret as the maker does, and which is never the secret of a
log. A log's id is a hash of its secret.
It may be known to everybody, and stands in tables, folders and messages: nobody gets rights by it.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from mrflight.errors import AccessDeniedError, EventLogNotFoundError, ProtocolError
from mrflight.ids import ShuffleKey, check_shuffle_id, derived_token, same_token

_ID = "id-"
"""No token begins like this; see `ShuffleKey`."""


class LogRight(StrEnum):
    """What may be done with an event log."""

    READ = "read"
    APPEND = "append"
    DROP = "drop"
    """Delete rows: trim the log, or drop it."""


ALL_RIGHTS = frozenset(LogRight)


class LogId(NamedTuple):
    """A log as everybody may know it; it is written ``<name>:<id>``."""

    name: str
    id: str

    def __str__(self) -> str:
        return f"{self.name}:{self.id}"

    @classmethod
    def of(cls, key: ShuffleKey) -> LogId:
        """Return that of a log whose secret is known."""
        return cls(key.id, log_id(key.token))

    @classmethod
    def parse(cls, text: str) -> LogId:
        """Return the log that is written like this, also as it was before: with its secret."""
        name, _, found = text.partition(":")
        if not found:
            raise ProtocolError(f"{text[:140]!r} is not the name and the id of an event log")
        return cls(check_shuffle_id(name), found if found.startswith(_ID) else log_id(found))


def log_id(secret: str) -> str:
    """Return the id of the log with this secret."""
    return _ID + hashlib.sha256(b"mrflight event log " + secret.encode()).hexdigest()[:16]


def token_for(secret: str, rights: Collection[LogRight]) -> str:
    """Return the token that gives these rights and no others."""
    if frozenset(rights) == ALL_RIGHTS:
        return secret
    said = ",".join(sorted(rights)).encode()
    return derived_token(hmac.new(secret.encode(), said, hashlib.sha256).hexdigest())


def rights_of(token: str, secret: str) -> frozenset[LogRight]:
    """Return what a token allows on the log with this secret; nothing if it is of another log."""
    found: frozenset[LogRight] = frozenset()
    for count in range(1, len(LogRight) + 1):
        for rights in itertools.combinations(LogRight, count):
            if same_token(token, token_for(secret, rights)):
                found = frozenset(rights)
    return found


def check_rights(key: ShuffleKey, secret: str, *needed: LogRight) -> frozenset[LogRight]:
    """Return what a key allows; a caller who may name the log without a token may do everything.

    Raises EventLogNotFoundError for the token of another log, and AccessDeniedError unless it
    gives one of the rights that are ``needed``.
    """
    rights = rights_of(key.token, secret) if key.token else ALL_RIGHTS
    if not rights:
        raise EventLogNotFoundError(
            f"event log {key.id!r} has been dropped, and another one has its name now"
        )
    if needed and rights.isdisjoint(needed):
        raise AccessDeniedError(
            f"this handle of event log {key.id!r} is to {' and '.join(sorted(rights))}, and this "
            f"call needs one to {' or '.join(needed)}; ask the maker of the log, who makes it with "
            "handle() of what create_log returned"
        )
    return rights
