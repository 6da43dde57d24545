"""Who a client is to the servers of a cluster, and whom it trusts: files and references only."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from mrflight.config.locations import is_encrypted
from mrflight.config.transport import Transport
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Timeouts


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a client proves who it is. It holds no secret, so it may be pickled and logged.

    Every process that uses it reads the files itself, when it connects.
    """

    ca: str = ""
    """The file of the certificates that servers' certificates must be signed by."""
    certificate: str = ""
    """The file of the client's own certificate, if it has one; ``key`` is that of its key."""
    key: str = ""
    token: str = ""
    """A reference to the client's bearer token: see `mrflight.config.secret_reference`."""
    given: str = ""
    """The name of credentials that a process is given in memory, in place of all others. A job on
    several nodes of Ray does that: see `mrflight.security.job_certificates`."""
    giver: Literal["", "ray"] = ""
    """Where a process gets them that has not been given them; empty for nowhere."""
    encrypted: bool = False
    """Whether plain TCP connections are refused: see `at`. A ``ca`` refuses them as well."""

    def at(self, location: str) -> Identity:
        """Return the identity of a client whose first server, which tells of others, is there."""
        if not is_encrypted(location):
            return self
        return msgspec.structs.replace(self, encrypted=True)


ANONYMOUS = Identity()


class Endpoint(NamedTuple):
    """A server, and who its caller is to it."""

    location: str
    identity: Identity = ANONYMOUS


class ClientOptions(msgspec.Struct, frozen=True):
    """How the clients of one job, or of one program, talk to the servers of a cluster."""

    timeouts: Timeouts = DEFAULT_TIMEOUTS
    transport: Transport = "auto"
    identity: Identity = ANONYMOUS
    logs: tuple[str, ...] = ()
    """Handles of event logs, or references to them, for logs that are named without a token."""

    def with_timeouts(self, timeouts: Timeouts) -> ClientOptions:
        """Return these options with other timeouts."""
        return msgspec.structs.replace(self, timeouts=timeouts)

    def at(self, location: str) -> ClientOptions:
        """Return these options for a client whose first server is there: see `Identity.at`."""
        return msgspec.structs.replace(self, identity=self.identity.at(location))


class ClusterAccess(msgspec.Struct, frozen=True):
    """A standing cluster, and how its caller talks to it."""

    location: str
    """That of the metadata server."""
    client: ClientOptions = ClientOptions()
