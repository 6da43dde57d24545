"""Whether the servers of a standing cluster answer, and when certificates end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from mrflight.config.identity import ClientOptions
from mrflight.config.locations import is_encrypted
from mrflight.frontend.doctor.certificates import certificate_files, certificate_of_server
from mrflight.frontend.doctor.clock import clock
from mrflight.frontend.doctor.finding import Finding, checked
from mrflight.shuffle.client.cluster import Cluster
from mrflight.system.deadlines import Timeouts
from mrflight.units import format_count

_ADVICE = "start it (mrflight serve metadata), or look for what keeps it from answering"


def cluster(location: str, client: ClientOptions, timeout_s: float) -> Iterator[Finding]:
    """Yield what was found of the cluster whose metadata server is at ``location``."""
    files = [file for file in (client.identity.ca, client.identity.certificate) if file]
    if files:
        yield from checked("certificates", partial(certificate_files, files), timeout_s)
    if is_encrypted(location):
        yield from checked(
            f"certificate of {location}",
            lambda: [certificate_of_server(location, timeout_s)],
            timeout_s,
            _ADVICE,
        )
    waits = client.with_timeouts(Timeouts(call_s=timeout_s, reconnect_s=0.0))
    yield from checked(location, partial(_status, location, waits), 2 * timeout_s, _ADVICE)


def _status(location: str, client: ClientOptions) -> Iterator[Finding]:
    with Cluster(location, client) as connected:
        before = time.time()
        status = connected.status()
        middle = (before + time.time()) / 2
    servers = format_count(len(status.servers), "data server")
    if status.servers:
        yield Finding(location, "ok", f"it answers, and has {servers}")
    else:
        yield Finding(
            location,
            "problem",
            f"it answers, and has {servers}",
            "start one on each machine that is to hold rows: mrflight serve data",
        )
    if status.time_s:
        yield clock(middle - status.time_s, location)
