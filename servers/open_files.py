"""How many files and connections a server may have open."""

from __future__ import annotations

import resource

MOST = 65_536
"""Of a cluster's workers each has a connection to each server; with the usual 1,024 of Linux a
server would refuse those of more workers."""


def allow_connections() -> None:
    """Raise this process's limit to `MOST`, or as far as the system lets it; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
