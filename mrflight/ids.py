"""Names of jobs, shuffles and attempts."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import NamedTuple

from mrflight.errors import ProtocolError

_SHUFFLE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WRITER_ID = re.compile(r"[A-Za-z0-9]{0,32}")

MAX_PARTITIONS = 100_000
"""Of one shuffle: every map may hold a block for each, and every server an entry."""
MAX_MAPS = 10_000_000
MAX_ATTEMPTS = 1_000


class MapAttempt(NamedTuple):
    """One attempt of one map task; what it wrote counts only once it is committed.

    ``writer`` tells two writers of the same attempt apart, a duplicate that
    somebody sent again, say: the blocks of one never count as the other's.
    """

    map_id: int
    attempt: int
    writer: str = ""


def new_job_id() -> str:
    """A job id that sorts by time and that no other job will ever have."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"


def check_shuffle_id(shuffle_id: str) -> str:
    """The id itself, where it is one; ProtocolError otherwise."""
    if not _SHUFFLE_ID.fullmatch(shuffle_id):
        raise ProtocolError(
            f"{shuffle_id[:140]!r} is not a shuffle id: up to 128 letters, digits, '.', '_', '-'"
        )
    return shuffle_id


def new_writer_id() -> str:
    """What one writer has that no other has."""
    return secrets.token_hex(8)


def check_attempt(map_id: int, attempt: int, writer: str = "") -> MapAttempt:
    """The attempt, where its numbers are in bounds; ProtocolError otherwise."""
    if not (0 <= map_id < MAX_MAPS and 0 <= attempt < MAX_ATTEMPTS):
        raise ProtocolError(f"map {map_id}, attempt {attempt}: out of bounds")
    if not _WRITER_ID.fullmatch(writer):
        raise ProtocolError(f"{writer[:40]!r} is not a writer's id: up to 32 letters and digits")
    return MapAttempt(map_id, attempt, writer)
