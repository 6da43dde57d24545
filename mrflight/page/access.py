"""Who may read a page: the hosts that requests may name, and the bearer token that they need."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote

import msgspec

from mrflight.security.hashed_tokens import token_hash

_BEARER = "bearer "


class Authorize(Protocol):
    """Decides by the headers of a request, with names in lower case, whether it is answered."""

    def __call__(self, headers: Mapping[str, str]) -> bool: ...


class TokenAccess:
    """Admits requests with ``Authorization: Bearer TOKEN``. It keeps only the token's hash.

    A page has its token in the fragment of its URL, which browsers send to no server, and puts it
    into this header. A cookie would also go to servers of other users on other ports of this host,
    and would come with the requests of other sites.
    """

    def __init__(self, token: str) -> None:
        self._hash = token_hash(token)

    def __call__(self, headers: Mapping[str, str]) -> bool:
        token = bearer_token(headers)
        return token is not None and hmac.compare_digest(self._hash, token_hash(token))


def any_of(*ways: Authorize) -> Authorize:
    """Return what admits requests that one of the ways admits."""
    return lambda headers: any(admits(headers) for admits in ways)


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a request, if it has one."""
    given = headers.get("authorization", "")
    if not given.lower().startswith(_BEARER):
        return None
    return given[len(_BEARER) :].strip()


class HostNames(msgspec.Struct, frozen=True):
    """The hosts that the ``Host`` of a request may name.

    Another site may let its name lead to this address (DNS rebinding), as CVE-2025-62593 did to
    Ray. A browser then takes the page for one of that site, but sends its name. An address as the
    host is one that nobody else can give a name to. The port does not matter, and is another one
    behind a tunnel.
    """

    others: frozenset[str] = frozenset()
    """The names of this machine, in lower case, that are allowed besides ``localhost``."""

    def allow(self, host: str | None, local_address: str) -> bool:
        """Return whether a request that came in at ``local_address`` may name ``host``."""
        if host is None:
            return False
        name = _name(host)
        if name == "localhost" or name in self.others:
            return True
        try:
            address = ipaddress.ip_address(name)
            return address.is_loopback or address == ipaddress.ip_address(local_address)
        except ValueError:
            return False


def _name(host: str) -> str:
    """Return a ``Host`` without its port and the brackets of IPv6, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def page_url(location: str, token: str) -> str:
    """Return the link to a page, with its token in the fragment."""
    return f"{location}/#{quote(token)}"
