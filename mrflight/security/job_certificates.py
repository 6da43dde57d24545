"""The certificates of a job's own servers and workers on several nodes: an authority of one job.

Its key is in the driver's memory and nowhere else. The processes of the job are given certificates
by the channel over which Ray starts them, and nobody has to configure anything.
"""

from __future__ import annotations

import os

from mrflight.config.identity import Identity
from mrflight.security.credentials import Credentials

SERVER_NAME = "mrflight-server"
"""What the certificate of every server of a job says besides its own name. Ray chooses the nodes of
servers, so that their addresses are not known before. Workers' certificates do not say this, so
that a worker cannot answer in the place of a server."""

_DAYS = 30.0
"""The longest job. The certificates are forgotten with its processes."""


class JobAuthority:
    """Issues certificates to the processes of one job."""

    def __init__(self) -> None:
        """Raise JobFileError if cryptography is not installed, which ``mrflight[ray]`` includes."""
        from mrflight.security.authority import new_authority  # takes 50 ms

        self.identity = Identity(given=os.urandom(8).hex())
        """Who each process is that has been given its certificate."""
        self._authority = new_authority("mrflight-job", _DAYS)

    def issue(self, name: str, *, is_server: bool = False) -> Credentials:
        """Return the certificate of a process and its key, with the name of the servers."""
        from mrflight.security.authority import issue

        hosts = (SERVER_NAME,) if is_server else ()
        issued = issue(self._authority, name, hosts, days=_DAYS)
        ca = self._authority.certificate_pem
        return Credentials(
            ca, issued.certificate_pem, issued.key_pem, "", SERVER_NAME, self.identity.given
        )
