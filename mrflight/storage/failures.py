"""A store that fails as it is read, told from a file that is not what it should be."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from mrflight.errors import InputError, MrflightError, StoreError
from mrflight.storage.reasons import reason

if TYPE_CHECKING:
    from mrflight.storage.store import Store

_FAILED = re.compile(r"\bGeneric \w+ error\b")
"""How object_store begins to tell of all but what is not there, is there already, or forbidden."""

_ANSWERED = re.compile(r"status code: 4(?!08|29)\d\d")
"""The server has understood, and will say the same again; but of 408 and 429 it will not."""

_FORBIDDEN = re.compile(
    r"org\.apache\.hadoop\.security\.AccessControlException"  # a name node
    r"|The operation lacked (the necessary privileges|valid authentication)"  # S3's 403 and 401
    r"|\(os error (1|13|30)\)"  # object_store, of a disk: EPERM, EACCES, EROFS
)
"""In what clients say that raise no PermissionError."""

_OF_A_DISK = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.EHOSTDOWN, errno.ENOTCONN}
)
"""Of the medium, or of the server behind what is mounted like one."""


class StoreCallError(OSError):
    """What a store's client told, where that is not that a file is not there, or is forbidden.

    Stores raise it themselves: pyarrow raises OSError of its own for a file that is damaged, which
    nobody could tell from that of a store later.
    """

    def __init__(self, url: str, told: str, may_pass: bool) -> None:
        super().__init__(f"{url}: {told}")
        self.url = url
        self.told = told
        self.may_pass = may_pass
        """Whether the same call may succeed later: nothing was answered, or that it failed."""

    def __reduce__(self) -> tuple[type[StoreCallError], tuple[str, str, bool]]:
        return type(self), (self.url, self.told, self.may_pass)  # a worker's comes to the driver


def failure_of(url: str, error: Exception) -> StoreCallError:
    """Of what a client built on object_store raised that says nothing more by its type."""
    told = reason(error)
    is_failure = _FAILED.search(told) is not None
    return StoreCallError(url, told, is_failure and _ANSWERED.search(told) is None)


def is_forbidden(error: BaseException) -> bool:
    """Whether this user may not do it, in another attempt neither."""
    return isinstance(error, PermissionError) or _FORBIDDEN.search(str(error)) is not None


def has_failed(error: BaseException) -> bool:
    """Whether a store, or a disk, could not be read just then, and the file may be as it should."""
    if isinstance(error, StoreCallError):
        return error.may_pass
    return isinstance(error, OSError) and error.errno in _OF_A_DISK


def is_of_store(error: BaseException) -> bool:
    """Whether it was raised for the store's answer, or want of one, and not for a file's bytes."""
    return isinstance(error, StoreCallError | FileNotFoundError | PermissionError) or has_failed(
        error
    )


def unread(what: str, error: OSError, store: Store) -> MrflightError:
    """The error for ``what``, "... cannot be read": StoreError where the store has failed."""
    if not has_failed(error):
        return InputError(f"{what}: {reason(error)}")
    told = error.told if isinstance(error, StoreCallError) else reason(error)
    return StoreError(f"{what}, as its store failed: {told}; {store.look_at}, and try again")
