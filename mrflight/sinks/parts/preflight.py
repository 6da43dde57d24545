"""Check that an output can be written before the job has done anything for it."""

from __future__ import annotations

import errno
import os
import posixpath

from mrflight.errors import CommitError, OutputError
from mrflight.storage import Location
from mrflight.storage.failures import is_forbidden

PERMANENT_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ENAMETOOLONG,
    }
)
"""Errors of a write that another attempt would meet again. A full disk may have room by then."""

_LET_WRITE = "let this user write there, or choose another folder"

_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)  # Linux has it


def check_writable(location: Location) -> None:
    """Raise OutputError if files cannot be created in the folder, which need not exist yet.

    This leaves no trace, so that a job which is refused for another reason has created no folder.
    On stores other than disks, the first part file shows whether they can be written.
    """
    if not location.store.is_disk:
        return
    folder = _nearest_existing(location.path)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise _refused(location, folder)
    # To `os.access` root may write everywhere. Only an attempt shows `chattr +i` or the rules of a
    # network file system. The file has no name, so that it is gone even if this process is killed.
    try:
        os.close(os.open(folder, _O_TMPFILE | os.O_WRONLY))
    except OSError as error:
        # File systems without unnamed files give EISDIR or EOPNOTSUPP; the first part file decides.
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise _refused(location, folder, f" ({error.strerror})") from error


def translate_refusal(failure: CommitError) -> CommitError | OutputError:
    """Return the error of a failed commit: OutputError if this user has no permission for it."""
    cause = failure.__cause__
    if cause is None or not is_forbidden(cause):
        return failure
    return OutputError(f"{failure}; {_LET_WRITE}")


def advice(error: OSError) -> str:
    """Return what to do about one of `PERMANENT_ERRNOS` for a file below an output's folder."""
    if error.errno == errno.ENAMETOOLONG:
        return "choose a folder whose name is shorter"
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return "move away what is in its place, or choose another folder"
    return _LET_WRITE


def _nearest_existing(path: str) -> str:
    """Return the path or its nearest parent that exists, which may not be a folder."""
    while not os.path.lexists(path) and path != posixpath.dirname(path):
        path = posixpath.dirname(path)
    return path


def _refused(location: Location, folder: str, why: str = "") -> OutputError:
    below = "" if folder == location.path else f", where {location.url} is to be created"
    return OutputError(
        f"output.table: {folder} is not a folder that this user can write to{why}{below}; "
        "make it one, or choose another"
    )
