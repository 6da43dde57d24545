"""Who is calling, and what that caller may do."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What a caller may do."""

    SERVER = "server"
    """A data server: registers, reports what it holds, and copies blocks to other data servers."""
    JOB = "job"
    """Creates shuffles, and writes, reads and drops those whose tokens it has."""
    READER = "reader"
    """Reads shuffles whose tokens it has."""
    ADMIN = "admin"
    """Sees all shuffles and drops them, without their tokens."""


JOBS = frozenset({Role.JOB, Role.ADMIN})
SERVERS = frozenset({Role.SERVER})
JOBS_AND_SERVERS = JOBS | SERVERS
READERS = frozenset({Role.JOB, Role.READER, Role.ADMIN})
ALL = frozenset(Role)
_FOR_ALL_SHUFFLES = frozenset({Role.SERVER, Role.ADMIN})


class Principal(msgspec.Struct, frozen=True):
    """A caller that is known: by its certificate, or by its token."""

    name: str
    roles: frozenset[Role]

    def may(self, allowed: frozenset[Role]) -> bool:
        """Return whether the caller has one of the roles."""
        return not self.roles.isdisjoint(allowed)

    @property
    def knows_all_shuffles(self) -> bool:
        """Whether the caller needs no token of a shuffle."""
        return self.may(_FOR_ALL_SHUFFLES)


EVERYBODY = Principal("", ALL)
"""The caller of a server that does not ask who calls."""
