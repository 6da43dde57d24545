"""The one place where deltalake is imported, and where what it raises becomes ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from mrflight.errors import CommitError, MrflightError, OutputError


def import_deltalake() -> ModuleType:
    """The deltalake module; OutputError where it is not installed."""
    try:
        import deltalake
        import deltalake.transaction
    except ImportError as error:
        raise OutputError(
            "output.format is delta, and deltalake is not installed: pip install 'mrflight[delta]'"
        ) from error
    return deltalake


@contextmanager
def delta_errors(what: str) -> Iterator[None]:
    """Raise CommitError, saying that ``what`` failed and why, for anything deltalake raises."""
    try:
        yield
    except MrflightError:
        raise
    # deltalake raises DeltaError, OSError, ValueError, and for some causes a bare Exception
    # (python/src/error.rs, the last arm of arrow_to_py).
    except Exception as error:
        reason = " ".join(str(error).split())
        raise CommitError(f"{what}: {reason}") from error
