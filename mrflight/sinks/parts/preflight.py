"""Whether an output can be written, told before the job has done anything for it."""

from __future__ import annotations

import errno
import os
import posixpath

from mrflight.errors import CommitError, OutputError
from mrflight.storage import Location
from mrflight.storage.failures import is_forbidden

ALWAYS_MET = frozenset(
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
"""What a write fails with that another attempt would meet again; a full disk may have room then."""

_LET_WRITE = "let this user write there, or choose another folder"

_WITHOUT_NAME: int = getattr(os, "O_TMPFILE", 0)  # Linux has it


def check_writable(location: Location) -> None:
    """OutputError where files cannot be made in the folder, be it there or still to be made.

    Leaves no trace: a job that is refused for something else has made no folder. Of a store that
    is no disk that is told by the first part file.
    """
    if not location.store.is_disk:
        return
    folder = _nearest(location.path)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise _refused(location, folder)
    # Root may write everywhere but for what a real attempt tells: `chattr +i`, a network's disk.
    # The file has no name, so that nothing is left of it, not even by who is killed meanwhile.
    try:
        os.close(os.open(folder, _WITHOUT_NAME | os.O_WRONLY))
    except OSError as error:
        # EISDIR and EOPNOTSUPP are of systems without such files: they tell when it is time.
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise _refused(location, folder, f" ({error.strerror})") from error


def refused_commit(failure: CommitError) -> CommitError | OutputError:
    """The error for a commit that was not made: OutputError where this user may not make it."""
    cause = failure.__cause__
    if cause is None or not is_forbidden(cause):
        return failure
    return OutputError(f"{failure}; {_LET_WRITE}")


def what_to_do(error: OSError) -> str:
    """Of an error that is `ALWAYS_MET` by a file below an output's folder."""
    if error.errno == errno.ENAMETOOLONG:
        return "choose a folder whose name is shorter"
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return "move away what is in its place, or choose another folder"
    return _LET_WRITE


def _nearest(path: str) -> str:
    """The folder, or of those above it the first that is there; what is in its place, if so."""
    while not os.path.lexists(path) and path != posixpath.dirname(path):
        path = posixpath.dirname(path)
    return path


def _refused(location: Location, folder: str, why: str = "") -> OutputError:
    below = "" if folder == location.path else f", where {location.url} is to be made"
    return OutputError(
        f"output.table: {folder} is no folder that this user can write to{why}{below}; "
        "make it one, or choose another"
    )
