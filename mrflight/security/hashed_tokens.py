"""Bearer tokens, and their hashes, which access files have in their place.

A token has 256 random bits, so that nobody finds it by its hash, and the hash needs no salt.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from mrflight.security.principal import Role

_TOKEN_BYTES = 32


def new_bearer_token() -> str:
    """Return a new random token."""
    return os.urandom(_TOKEN_BYTES).hex()


def token_hash(token: str) -> str:
    """Return ``sha256:`` and the hash in hexadecimal, also of a token that is no UTF-8."""
    hashed = hashlib.sha256(token.encode(errors="surrogateescape"))
    return f"sha256:{hashed.hexdigest()}"


def access_entry(name: str, roles: Iterable[Role], token: str) -> str:
    """Return the table of a principal, whose name has no character that TOML would quote."""
    listed = ", ".join(f'"{role}"' for role in dict.fromkeys(roles))
    return f'\n[[principals]]\nname = "{name}"\nroles = [{listed}]\ntoken = "{token_hash(token)}"\n'
