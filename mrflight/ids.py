"""Ids of jobs, shuffles and attempts, and what each identity of the protocol protects against.

A shuffle has a name, its data servers have locations, and a map has a number. Each of these can be
used again by something else, so seven identities tell one use from the next:

===========  ======================  =============================================================
identity     assigned by             protects against
===========  ======================  =============================================================
token        the client that         A shuffle that is dropped and created again under its name. A
             creates the shuffle,    late writer of the first one commits nothing into the second,
             or the metadata         and a create request that is repeated gets the same shuffle.
             server                  On a cluster that knows its callers it is a secret, without
                                     which nobody writes, reads or drops the shuffle.
incarnation  a data server, when it  A data server that was declared lost and is back, or another
             starts and each time    process at its location. It has dropped its blocks, so what
             it registers again      the metadata server knows about the one before is void.
attempt      the scheduler           Several runs of a map: retries and speculative attempts. The
                                     metadata server commits one of them, and readers get only the
                                     blocks of that one.
writer id    the client that opens   Two writers of the same attempt, such as a task that the
             the writer              executor has run twice by itself. Their blocks do not mix.
epoch        the metadata server:    Commits while a partition is read. A reader gets the blocks
             the number of commits   of exactly the first ``epoch`` commits, from every replica,
             so far                  and checks their number of rows.
version      the metadata server:    Writers that started before partitions were moved: their
             the number of changes   blocks are not on the servers that hold these partitions now,
             of the placement        so their commit is refused.
generation   the metadata server,    Rows that were lost with a data server, and rows that are read
             per partition: the      twice. A commit counts for partitions whose generation is not
             version in which it     above the version that the map was written to, and is above
             was placed without      the version that an earlier commit of the map was written to
             its rows, or 0          (`mrflight.shuffle.wire.partition_info.MapCommit`).
===========  ======================  =============================================================

Every one of them is in the wire contract (docs/reference/wire-contract.md), and no two can be one
there. A generation is a version, so that placements have one counter and not two. An epoch is not a
version: commits do not change the placement. The attempt could be part of the writer id, but plain
Flight clients name it in a path and choose no writer id. A token and an incarnation do the same for
a shuffle and for a server, and are both random.
"""

from __future__ import annotations

import hmac
import os
import re
from datetime import UTC, datetime
from typing import NamedTuple

from mrflight.errors import ProtocolError

MAX_JOB_NAME = 128
"""The characters of a job's name that metadata servers keep."""

_SHUFFLE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_JOB_STARTED = "%Y%m%dT%H%M%S"
_WRITER_ID = re.compile(r"[A-Za-z0-9]{0,32}")
_DERIVED = "r-"
_TOKEN = re.compile(rf"(?:{_DERIVED})?[A-Za-z0-9]{{1,32}}")

MAX_PARTITIONS = 100_000
"""The partitions of one shuffle. Every map may hold a block for each, and every server an entry."""
MAX_MAPS = 10_000_000
MAX_ATTEMPTS = 1_000


class MapAttempt(NamedTuple):
    """One attempt of one map task, by one writer; its blocks count only once it is committed."""

    map_id: int
    attempt: int
    writer: str = ""


class ShuffleKey(NamedTuple):
    """A shuffle's id, and its token; without a token, whichever shuffle has this id now.

    In paths and tickets it is written ``<id>`` or ``<id>:<token>``.
    """

    id: str
    token: str = ""

    def __str__(self) -> str:
        return f"{self.id}:{self.token}" if self.token else self.id

    @classmethod
    def parse(cls, text: str) -> ShuffleKey:
        """Return the key that is written like this; raises ProtocolError."""
        name, colon, token = text.partition(":")
        if colon and not _TOKEN.fullmatch(token):
            raise ProtocolError("a shuffle is named <id> or <id>:<token>, of 1 to 32 characters")
        return cls(check_shuffle_id(name), token)


def new_job_id() -> str:
    """Return a new job id, which is unique and sorts by time."""
    return f"{datetime.now(UTC).strftime(_JOB_STARTED)}-{os.urandom(6).hex()}"


def job_started(job_id: str) -> datetime:
    """Return when a job started, which its id says; for other ids the current time."""
    try:
        return datetime.strptime(job_id.split("-")[0], _JOB_STARTED).replace(tzinfo=UTC)
    except ValueError:
        return datetime.now(UTC)


def shown_job_name(name: str) -> str:
    """Return the name of a job as metadata servers take it: short, and all of it printable."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:MAX_JOB_NAME])


def check_shuffle_id(shuffle_id: str) -> str:
    """Return the id; raise ProtocolError if it is not a valid shuffle id."""
    if not _SHUFFLE_ID.fullmatch(shuffle_id):
        raise ProtocolError(
            f"{shuffle_id[:140]!r} is not a shuffle id: up to 128 letters, digits, '.', '_', '-'"
        )
    return shuffle_id


def new_writer_id() -> str:
    """Return a new random writer id."""
    return os.urandom(8).hex()


def new_token() -> str:
    """Return a new token of a shuffle: 128 random bits, which nobody guesses."""
    return os.urandom(16).hex()


def derived_token(digest: str) -> str:
    """Return the token for fewer rights that a hash of a secret gives; see `check_secret`."""
    return _DERIVED + digest[:32]


def check_secret(token: str) -> str:
    """Return the token with which somebody makes a thing, which gives all rights to it.

    Raises ProtocolError for one that was derived from another secret. Otherwise whoever was given
    that could make the next thing of the same name, and others would take it for the one before.
    """
    if token.startswith(_DERIVED):
        raise ProtocolError(
            f"a token that begins with {_DERIVED!r} gives some of the rights to a thing that "
            "another one has made, and nothing is made with it; choose a token of letters and "
            "digits, or none"
        )
    return token


def same_token(one: str, other: str) -> bool:
    """Return whether two tokens are equal, in a time that does not tell how many letters are."""
    return hmac.compare_digest(one.encode(), other.encode())


def check_attempt(map_id: int, attempt: int, writer: str = "") -> MapAttempt:
    """Return the attempt; raise ProtocolError if a number or the writer id is not valid."""
    if not (0 <= map_id < MAX_MAPS and 0 <= attempt < MAX_ATTEMPTS):
        raise ProtocolError(f"map {map_id}, attempt {attempt}: out of bounds")
    if not _WRITER_ID.fullmatch(writer):
        raise ProtocolError(f"{writer[:40]!r} is not a writer's id: up to 32 letters and digits")
    return MapAttempt(map_id, attempt, writer)
