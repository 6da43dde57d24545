"""The one place where what pyarrow and stores raise on a read becomes an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from mrflight.errors import InputError, MrflightError
from mrflight.storage import Location
from mrflight.storage.failures import is_store_failure, read_failure


@contextmanager
def reading(format: str, location: Location) -> Iterator[None]:
    """Raise InputError, naming the file, for whatever shows that it cannot be read.

    StoreError where that is no fault of the file: its store failed, and may be well again later.
    """
    try:
        yield
    except (MrflightError, MemoryError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and is_store_failure(error):
            raise read_failure(f"{location.url} cannot be read", error, location.store) from error
        reason = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise InputError(
            f"{location.url} cannot be read as {format}: {reason}; it is cut short, damaged or of "
            "another format"
        ) from error
