"""JSON web tokens (RFC 7519), checked with the issuer's public keys (RFC 7517) from a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrflight.errors import AccessDeniedError, JobFileError
from mrflight.security.hashed_tokens import token_hash

if TYPE_CHECKING:
    import jwt

ALGORITHMS = ["RS256", "ES256"]
_MAX_CHECKED = 1024


class WebTokens:
    """Checks tokens: their signature, issuer and audience once, and their expiry on every call."""

    def __init__(self, keys: Path, issuer: str | None, audience: str | None) -> None:
        """Raise JobFileError if the file has no keys, or the library for them is missing."""
        self._keys = _read_keys(keys)
        self._issuer = issuer
        self._audience = audience
        self._checked: dict[str, tuple[str, float]] = {}
        """The subject and the end of each token, by its hash."""

    def subject(self, token: str) -> str:
        """Return the subject of a valid token; raises AccessDeniedError."""
        name = token_hash(token)  # looking one up takes a time that tells nothing of the others
        known = self._checked.get(name)
        if known is None:
            known = self._check(token)
            if len(self._checked) >= _MAX_CHECKED:
                self._checked.clear()
            self._checked[name] = known
        subject, expires = known
        if time.time() >= expires:
            raise AccessDeniedError("the web token has expired; get a new one")
        return subject

    def _check(self, token: str) -> tuple[str, float]:
        import jwt

        try:
            number = jwt.get_unverified_header(token).get("kid")
            key = next(key for key in self._keys if number in (None, key.key_id))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                options={"require": ["exp", "sub"], "verify_aud": self._audience is not None},
            )
        except (jwt.PyJWTError, StopIteration, ValueError) as error:
            why = str(error) or "no key of the file has signed it"
            raise AccessDeniedError(f"the web token is not valid: {why}") from None
        return str(claims["sub"]), float(claims["exp"])


def _read_keys(path: Path) -> list[jwt.PyJWK]:
    try:
        import jwt
    except ImportError as error:
        raise JobFileError(
            "jwt needs PyJWT, which is not installed: pip install 'mrflight[tls]'"
        ) from error
    try:
        return list(jwt.PyJWKSet.from_json(path.read_text()).keys)
    except (OSError, ValueError, jwt.PyJWTError) as error:
        raise JobFileError(f"jwt.jwks: the keys in {path} cannot be used: {error}") from error
