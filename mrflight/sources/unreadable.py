"""The one place where what pyarrow and the disk raise on a read becomes an InputError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from mrflight.errors import InputError, MrflightError
from mrflight.storage import Location


@contextmanager
def reading(format: str, location: Location) -> Iterator[None]:
    """Raise InputError, naming the file, for whatever shows that it cannot be read."""
    try:
        yield
    except (MrflightError, MemoryError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise InputError(
            f"{location.url} cannot be read as {format}: {reason}; it is cut short, damaged or of "
            "another format"
        ) from error
