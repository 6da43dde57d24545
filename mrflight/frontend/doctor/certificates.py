"""When certificates end: those in files, and the one that a server shows."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from mrflight.errors import JobFileError, ServerUnavailableError
from mrflight.frontend.doctor.finding import Finding

SOON = timedelta(days=14)
_ADVICE = "renew it where it came from; one for a trial by mrflight certificates issue"


def certificate(check: str, ends: datetime, now: datetime) -> Finding:
    """Return what is to be said of a certificate that ends then."""
    if ends <= now:
        return Finding(check, "problem", f"it ended on {ends:%Y-%m-%d}", _ADVICE)
    if ends - now <= SOON:
        left = (ends - now) / timedelta(days=1)
        return Finding(check, "warning", f"it ends on {ends:%Y-%m-%d}, in {left:.1f} days", _ADVICE)
    return Finding(check, "ok", f"valid until {ends:%Y-%m-%d}")


def certificate_files(paths: Iterable[str | Path]) -> Iterator[Finding]:
    """Yield when the certificates of these files end; of several in one, when the first one does.

    Raises JobFileError if there is none, or it cannot be read.
    """
    from mrflight.security.authority import expires

    for path in paths:
        try:
            pem = Path(path).read_bytes()
        except OSError as error:
            raise JobFileError(f"{path} cannot be read: {error.strerror}") from error
        yield certificate(f"certificate {path}", expires(pem), datetime.now(UTC))


def certificate_of_server(location: str, timeout_s: float) -> Finding:
    """Return when the certificate of a server at ``grpc+tls://host:port`` ends.

    Whether it can be trusted is seen when the server is called.
    """
    from mrflight.security.authority import expires

    parts = urlsplit(location)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((parts.hostname, parts.port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname) as encrypted,
        ):
            shown = encrypted.getpeercert(binary_form=True)
    except OSError as error:
        raise ServerUnavailableError(
            f"no server that encrypts answers at {location}: {error}; is it running?"
        ) from error
    pem = ssl.DER_cert_to_PEM_cert(shown or b"").encode()
    return certificate(f"certificate of {location}", expires(pem), datetime.now(UTC))
