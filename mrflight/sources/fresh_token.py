"""The token of a fresh read: what it has read, so that it can be read again or waited for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mrflight.errors import InputError

TOKEN_KEY = b"mrflight.token"
"""The key of the token among the metadata of a table's schema."""

AtLeast = str | Mapping[str, int]
"""A token, or the offsets by ``topic/partition`` below which all events are wanted."""


class FreshToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A version of a table, and how far each live stream was read beyond it."""

    version: int
    streams: dict[str, dict[str, int]]
    """The offsets by the name of the stream, and by source partition."""

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def parse(cls, text: str, key: str) -> FreshToken:
        """Return the token in a text; raise InputError, which names ``key``."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{key}: {text[:60]!r} is not a token of a fresh read: {error}; pass on what "
                "mrflight.fresh_token gave"
            ) from error


def offsets_wanted(at_least: AtLeast | None) -> dict[str, int]:
    """Return the offsets that are to be reached, by ``topic/partition``, or by whole names."""
    if at_least is None:
        return {}
    if not isinstance(at_least, str):
        return {str(name): int(offset) for name, offset in at_least.items()}
    token = FreshToken.parse(at_least, "at_least")
    return {name: offset for each in token.streams.values() for name, offset in each.items()}


def short_name(name: str) -> str:
    """Return ``topic/partition`` of the name under which a table records a partition."""
    _, topic, _, number = name.split("/")
    return f"{topic}/{number}"
