"""Checks that the columns of a format of text have types that text can be read as."""

from __future__ import annotations

import pyarrow as pa

from mrflight.errors import JobFileError
from mrflight.sources.kafka.formats.message_format import MessageFormat


def check_types(name: str, format: MessageFormat, value: bytes) -> None:
    """Raise JobFileError for a column of a type that the text of a value cannot be read as."""
    try:
        format.decode(pa.array([value], pa.binary()))
    except pa.ArrowNotImplementedError as error:
        raise JobFileError(
            f"inputs.{name}: text cannot be read as one of the columns: {error}; give the column "
            "another type, or leave it out with columns"
        ) from error
    except ValueError:
        pass  # the value is no message
