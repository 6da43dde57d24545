"""Lets a server know who calls, before and within its handlers.

A bearer token is checked before any handler of any Flight method runs, also of those that the
server does not have. A certificate was checked by TLS even before that; its name is only known
within a handler.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pyarrow import flight

from mrflight.errors import AccessDeniedError, TooManyStreamsError
from mrflight.security.access import Access
from mrflight.security.principal import ALL, EVERYBODY, Principal, Role
from mrflight.shuffle.wire.flight_errors import to_flight
from mrflight.shuffle.wire.secure_client import AUTHORIZATION, BEARER
from mrflight.system.limited_log import LimitedWarnings
from mrflight.units import format_count

log = logging.getLogger(__name__)

MIDDLEWARE = "guard"
MAX_STREAMS = 4096
"""The puts and gets of one caller at the same time. A thousand workers have one each."""

_STREAMS = {flight.FlightMethod.DO_PUT, flight.FlightMethod.DO_GET, flight.FlightMethod.DO_EXCHANGE}


class Guard(flight.ServerMiddlewareFactory):
    """The middleware of a server that asks who calls; without ``access`` it knows everybody."""

    def __init__(
        self,
        access: Access | None = None,
        *,
        trusts_certificates: bool = False,
        streams: int = MAX_STREAMS,
    ) -> None:
        super().__init__()
        self._access = access
        self._trusts_certificates = trusts_certificates
        self._max_streams = streams
        self._refused = LimitedWarnings(log)
        self._lock = threading.Lock()
        self._streams: Counter[str] = Counter()
        self._heard: Callable[[str], None] = lambda peer: None

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self._access is None

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[Any]]) -> _Call:
        """Refuse a call whose token is missing or wrong."""
        is_stream = info.method in _STREAMS
        if self._access is None:
            return _Call(EVERYBODY, is_stream=is_stream, end=self._end_stream)
        try:
            principal = self._by_token(self._access, headers)
        except AccessDeniedError as error:
            self._refused.warn("a call is refused: %s", error)
            raise to_flight(error) from None
        return _Call(principal, is_stream=is_stream, end=self._end_stream)

    def _by_token(self, access: Access, headers: Mapping[str, list[Any]]) -> Principal | None:
        """Return who sends the token, and None if the certificate will say it."""
        sent = headers.get(AUTHORIZATION, [])
        if sent and isinstance(sent[0], str) and sent[0].startswith(BEARER):
            return access.by_token(sent[0].removeprefix(BEARER))
        if self._trusts_certificates and not sent:
            return None
        raise AccessDeniedError(
            "this server wants a bearer token with every call; set cluster.token, or --token"
        )

    def tell(self, heard: Callable[[str], None]) -> None:
        """Call ``heard`` with the peer of each call that is let in."""
        self._heard = heard

    def caller(self, context: Any, allowed: frozenset[Role] = ALL) -> Principal:
        """Return who calls; raise AccessDeniedError unless that caller has an allowed role."""
        call: _Call = context.get_middleware(MIDDLEWARE)
        if call.principal is None:
            assert self._access is not None
            name = bytes(context.peer_identity()).decode(errors="replace")
            call.principal = self._access.by_certificate(name)
        if not call.principal.may(allowed):
            raise AccessDeniedError(
                f"{call.principal.name!r} has the roles {_names(call.principal.roles)} in the "
                f"server's access file, and this call needs one of them: {_names(allowed)}"
            )
        if call.is_stream:
            self._begin_stream(call)
        self._heard(context.peer())
        return call.principal

    def _begin_stream(self, call: _Call) -> None:
        assert call.principal is not None
        name = call.principal.name
        with self._lock:
            if self._streams[name] >= self._max_streams:
                raise TooManyStreamsError(
                    f"{name!r} has {format_count(self._max_streams, 'stream')} at the same time, "
                    "the most that this server allows; try again when some have ended"
                )
            self._streams[name] += 1
            call.counts_as = name

    def _end_stream(self, name: str) -> None:
        with self._lock:
            self._streams[name] -= 1
            if not self._streams[name]:
                del self._streams[name]


class _Call(flight.ServerMiddleware):
    """One call; ``principal`` is None until its certificate was looked at."""

    def __init__(
        self, principal: Principal | None, *, is_stream: bool, end: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.principal = principal
        self.is_stream = is_stream
        self.counts_as: str | None = None
        self._end = end

    def call_completed(self, exception: BaseException | None) -> None:
        if self.counts_as is not None:
            self._end(self.counts_as)


OF_SHUFFLE = (
    "shuffle, which the handle has that created it; pass that handle on, or open_shuffle(name, "
    "token)"
)
OF_TAIL = "tail, which its stream has, and for readers the file beside the table"
"""Of what a caller needs the token, and who has it."""


def check_token(principal: Principal, token: str, of: str = OF_SHUFFLE) -> None:
    """Raise AccessDeniedError if a caller gives no token of a shuffle and needs one.

    Whether it is that of the shuffle is found out where the shuffle is looked up.
    """
    if not token and not principal.knows_all_shuffles:
        raise AccessDeniedError(f"{principal.name!r} needs the token of the {of}")


def _names(roles: frozenset[Role]) -> str:
    return ", ".join(sorted(roles)) or "none"
