"""Warns before the certificate of a server ends."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from mrflight.errors import JobFileError

log = logging.getLogger(__name__)

WARN_BEFORE_S = 14 * 24 * 3600.0


class ExpiryWarning:
    """When a certificate ends; it is logged once that is in 14 days or less."""

    def __init__(self, certificate: str) -> None:
        """``certificate`` is its file; empty if there is none."""
        self._certificate = certificate
        self._is_said = False
        self.ends_at = _ends_at(certificate)
        """In seconds since 1970; None if there is no certificate, or cryptography is missing."""

    def warn_once(self) -> None:
        """Log that the certificate ends soon, if it does and that was not said before."""
        if self.ends_at is None or self._is_said:
            return
        left_s = self.ends_at - time.time()
        if left_s <= WARN_BEFORE_S:
            self._is_said = True
            when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.ends_at))
            ends = "ends on" if left_s > 0 else "has ended on"
            log.warning(
                "the certificate in %s %s %s; replace it and its key, which the server then reads",
                self._certificate,
                ends,
                when,
            )


def _ends_at(certificate: str) -> float | None:
    if not certificate:
        return None
    try:
        from mrflight.security.authority import expires

        return expires(Path(certificate).read_bytes()).timestamp()
    except (JobFileError, OSError) as error:
        log.info("it is not known when the certificate in %s ends: %s", certificate, error)
        return None
