"""The errors of the stores' clients: classified, and described in one line.

The failure of a store is told from a file that is damaged. The text of an error becomes one line
of a message of ours.
"""

from __future__ import annotations

import errno
import re

from mrflight.config.secret_options import USERINFO
from mrflight.errors import InputError, MrflightError, StoreError
from mrflight.storage.store import ChangedFileError, Store

_FAILED = r"\bGeneric \w+ error\b"
"""The start of an error of object_store, unless a file is missing, exists, or is forbidden."""

_ANSWERED = r"status code: 4(?!08|29)\d\d"
"""The server understood the request and will answer the same again, unlike after 408 and 429."""

_FORBIDDEN = (
    r"org\.apache\.hadoop\.security\.AccessControlException"  # a name node
    r"|The operation lacked (the necessary privileges|valid authentication)"  # S3's 403 and 401
    r"|\(os error (1|13|30)\)"  # object_store, of a disk: EPERM, EACCES, EROFS
)
"""The messages of clients that raise no PermissionError."""

_DISK_FAILURES = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.EHOSTDOWN, errno.ENOTCONN}
)
"""Errors of the medium, or of the server behind a file system that is mounted like a disk."""

_COLOURS = r"\x1b\[[0-9;]*m"
_CHAIN = r"\s*↳\s*"
_ANSWER = (
    r"(?s)<\?xml.*?<Code>(?P<code>.*?)</Code>\s*<Message>(?P<message>.*?)</Message>.*?</Error>"
)
"""An answer of S3. Its other elements may be the key that was used, and what was signed with it."""
_GIVEN = (
    r'(?<=Config error: )(?P<before>[^"]*)".*"'  # to the last quote: a value may have some itself
    r"|(?<=Invalid encryption type: ).*(?=\. Valid values)"
    r'|(?<=failed to parse )\\".*\\"(?= as )'
)
"""The value of an option in a message of object_store or deltalake. It may be a
misplaced secret."""
_DATA_NODES = r"(?<=All DataNodes failed: )\[DatanodeInfoProto.*"
_DATA_NODE = r'ip_addr: "(?P<ip>[^"]*)".*?xfer_port: (?P<port>\d+)'
"""An address in the debug form of a data node, which is two thousand characters long."""
_SYSTEM_MESSAGE = r'\bmessage: "([^"]+)"'
"""The cause in the debug form of an error. obstore leaves it out of the text before that."""


class StoreCallError(OSError):
    """An error that a store's client reported, unless a file is missing or forbidden.

    Stores raise it themselves. pyarrow raises an OSError of its own for a damaged file, and later
    the two could not be told apart.
    """

    def __init__(self, url: str, message: str, is_transient: bool) -> None:
        super().__init__(f"{url}: {message}")
        self.url = url
        self.message = message
        self.is_transient = is_transient
        """Whether the same call may succeed later: there was no answer, or it was a failure."""

    def __reduce__(self) -> tuple[type[StoreCallError], tuple[str, str, bool]]:
        # A worker's error is pickled on its way to the driver.
        return type(self), (self.url, self.message, self.is_transient)


def failure_of(url: str, error: Exception) -> StoreCallError:
    """Return the error for what a client built on object_store raised, if its type says nothing."""
    message = reason(error)
    is_failure = re.search(_FAILED, message) is not None
    return StoreCallError(url, message, is_failure and re.search(_ANSWERED, message) is None)


def is_forbidden(error: BaseException) -> bool:
    """Return whether the user lacks the permission, so that another attempt fails as well."""
    return isinstance(error, PermissionError) or re.search(_FORBIDDEN, str(error)) is not None


def has_failed(error: BaseException) -> bool:
    """Return whether a store or a disk failed for now; the file itself may be intact."""
    if isinstance(error, StoreCallError):
        return error.is_transient
    return isinstance(error, OSError) and error.errno in _DISK_FAILURES


def is_store_failure(error: BaseException) -> bool:
    """Return whether the error is about the store's answer and not about a file's bytes."""
    return isinstance(
        error, StoreCallError | ChangedFileError | FileNotFoundError | PermissionError
    ) or has_failed(error)


def read_failure(what: str, error: OSError, store: Store) -> MrflightError:
    """Return the error for ``what``, "... cannot be read": StoreError if the store has failed."""
    if not has_failed(error):
        return InputError(f"{what}: {reason(error)}")
    message = error.message if isinstance(error, StoreCallError) else reason(error)
    return StoreError(
        f"{what}, as its store failed: {message}; {store.failure_hint}, and try again"
    )


def reason(error: Exception) -> str:
    """Return an error's text in one line, without colours and without its debug form.

    Of an answer of S3 the code and the message are kept. Values of options, the user in a URL, and
    a name node's Java stack are left out.
    """
    text, _, debug = re.sub(_COLOURS, "", str(error)).partition("Debug source")
    text = text.partition("\n\tat ")[0]
    text = re.sub(_ANSWER, lambda answer: f"{answer['code']}: {answer['message']}", text)
    text = " ".join(re.sub(_CHAIN, ": ", text).split())
    text = re.sub(_DATA_NODES, _addresses, text)
    text = re.sub(_GIVEN, lambda given: f"{given['before'] or ''}the value", USERINFO.sub("", text))
    cause = re.search(_SYSTEM_MESSAGE, debug)
    return text if cause is None or cause[1] in text else f"{text}: {cause[1]}"


def _addresses(nodes: re.Match[str]) -> str:
    """Return the addresses at which the name node expects its data nodes."""
    return ", ".join(f"{node['ip']}:{node['port']}" for node in re.finditer(_DATA_NODE, nodes[0]))
