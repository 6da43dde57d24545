"""Opens Flight clients that show who they are: with a certificate, a bearer token, or both."""

from __future__ import annotations

import json
from typing import Any

from pyarrow import flight

from mrflight.config.identity import ANONYMOUS, Identity
from mrflight.config.locations import is_encrypted, is_plain_tcp
from mrflight.errors import UnencryptedServerError
from mrflight.security.credentials import Credentials, load

RETRIES = 4
FIRST_PAUSE_S = 0.05
"""Twice as long before each further retry, 0.75 s in all. A server that takes new certificates does
not listen for 2 to 50 ms, or for longer on a busy machine, and refuses calls that come while it
ends. gRPC makes no more than four retries."""

_SERVICE = "arrow.flight.protocol.FlightService"
_RETRIED = ("DoAction", "GetFlightInfo", "DoGet")
"""Methods that may be called again: no answer has come, and all our requests may be repeated. A put
is not among them, because gRPC would send rows again that the server has: see `PutStream`."""

_AGAIN_IF_REFUSED = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    (
        "grpc.service_config",
        json.dumps(
            {
                "methodConfig": [
                    {
                        "name": [{"service": _SERVICE, "method": each} for each in _RETRIED],
                        "retryPolicy": {
                            "maxAttempts": 1 + RETRIES,
                            "initialBackoff": f"{FIRST_PAUSE_S}s",
                            "maxBackoff": "1s",
                            "backoffMultiplier": 2,
                            "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
                        },
                    }
                ]
            }
        ),
    ),
]

AUTHORIZATION = "authorization"
BEARER = "Bearer "


def open_client(
    location: str, identity: Identity, channel_options: list[tuple[str, Any]]
) -> flight.FlightClient:
    """Return a client of a location. It connects with its first call.

    Raises UnencryptedServerError for plain TCP if the identity has a ``ca`` or its first server
    encrypts, JobFileError if a file of the identity cannot be read, and Flight's errors.
    """
    if identity == ANONYMOUS and not is_encrypted(location):
        return flight.FlightClient(location, generic_options=channel_options)
    credentials = load(identity)
    if is_plain_tcp(location) and (identity.encrypted or credentials.ca is not None):
        raise UnencryptedServerError(
            f"{location} does not encrypt, and this client calls only servers that do, because it "
            "has the certificate of an authority, or its metadata server encrypts; nothing was "
            "sent. Start that server with --tls-certificate and --tls-key, and name it grpc+tls://"
        )
    if is_encrypted(location):
        channel_options = [*channel_options, *_AGAIN_IF_REFUSED]
    options: dict[str, Any] = {"generic_options": channel_options}
    if credentials.token:
        options["middleware"] = [_TokenSender(credentials.token)]
    if is_encrypted(location):
        options |= _certificates(credentials)
    return flight.FlightClient(location, **options)


def _certificates(credentials: Credentials) -> dict[str, Any]:
    return {
        "tls_root_certs": credentials.ca,
        "cert_chain": credentials.certificate,
        "private_key": credentials.key,
        "override_hostname": credentials.server_name or None,
    }


class _TokenSender(flight.ClientMiddlewareFactory):
    """Adds a bearer token to every call."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._headers = {AUTHORIZATION: BEARER + token}

    def start_call(self, info: flight.CallInfo) -> flight.ClientMiddleware:
        return _Headers(self._headers)


class _Headers(flight.ClientMiddleware):
    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__()
        self._headers = headers

    def sending_headers(self) -> dict[str, str]:
        return self._headers
