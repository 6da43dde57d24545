"""The formats of timestamps in text: they are checked, and applied to strings of json."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.errors import JobFileError

ISO8601 = "ISO8601"
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_KNOWN_DIRECTIVES = "YymdejbBhaAHIklMSpTRDFsznt%"
"""The directives that pyarrow parses. It reads any zone of %Z as UTC, and has no %f."""


def check_timestamp_formats(formats: Sequence[str], key: str) -> None:
    """Raise JobFileError, with the key of the job file, for a format that cannot be parsed."""
    for format in formats:
        if format != ISO8601:
            _check_format(format, key)


def _check_format(format: str, key: str) -> None:
    directives = _DIRECTIVE.findall(format)
    for directive in directives:
        if not directive or directive not in _KNOWN_DIRECTIVES:
            raise JobFileError(
                f"{key}: {format!r} has %{directive}, which cannot be parsed; fractions of a "
                'second are only read with "ISO8601", and zones with %z'
            )
    if not directives:
        raise JobFileError(
            f'{key} must have formats like "%d.%m.%Y %H:%M", or "{ISO8601}", not {format!r}'
        )


def parse_timestamps(texts: pa.Array, kind: pa.TimestampType, formats: Sequence[str]) -> pa.Array:
    """Return the times of texts; raise ArrowInvalid for one in none of the formats.

    As in csv, a format with a zone is only for a type with one.
    """
    found = pa.nulls(len(texts), kind)
    for format in formats:
        if format != ISO8601 and ("%z" in format) == (kind.tz is not None):
            parsed = pc.strptime(texts, format, kind.unit, error_is_null=True)
            found = pc.coalesce(found, parsed.cast(kind))
    is_left = pc.and_(pc.is_valid(texts), pc.is_null(found))
    left = texts.filter(is_left)
    if len(left) and ISO8601 not in formats:
        raise pa.ArrowInvalid(f"{left[0].as_py()!r} is a timestamp in none of the formats")
    return pc.replace_with_mask(found, is_left, left.cast(kind)) if len(left) else found
