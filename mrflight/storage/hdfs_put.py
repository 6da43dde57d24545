"""Create a file in HDFS only if it does not exist, through hdfs-native.

deltalake's client cannot do that: it renames a written file over an existing one. Both contain the
same Rust client, without a JVM; hdfs-native exposes more of it to Python.
"""

from __future__ import annotations

import io
import posixpath
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hdfs_native import Client

_SETTINGS = {"dfs.client.failover.max.attempts": "5"}
"""With this, a name node that refuses connections fails after about 10 s, and not minutes."""

_ONCE_MORE = {"dfs.client.failover.max.attempts": "1"}
"""One retry, as the first of two name nodes that is asked may be the standby."""


def is_installed() -> bool:
    """Return whether hdfs-native is installed."""
    from importlib.util import find_spec

    return find_spec("hdfs_native") is not None


def put_if_absent(url: str, path: str, data: bytes, settings: Mapping[str, str]) -> None:
    """Write the file ``path`` of the cluster ``url``; see `PutIfAbsentStore.put_if_absent`."""
    from hdfs_native import WriteOptions

    client = _client(url, settings)
    folder, name = posixpath.split(path)
    # The temporary name that deltalake's client would use.
    staged = posixpath.join(folder, f".{name}.tmp.{random.randrange(10**12)}")
    with _one_line_errors(f"{url}{path}"):
        try:
            file = client.create(staged, WriteOptions(overwrite=False))
            try:
                file.write(data)
                # Not after a failed write: it would retry for 15 s, and report only that.
                file.close()
            finally:
                io.RawIOBase.close(file)  # otherwise Python does it when it collects the object
            client.rename(staged, path, overwrite=False)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                _client(url, {**settings, **_ONCE_MORE}).delete(staged)
            raise


def _client(url: str, settings: Mapping[str, str]) -> Client:
    """Return a new client, in 0.5 ms: one that was made before a fork hangs after it."""
    from hdfs_native import Client

    return Client(url, {**_SETTINGS, **settings})


@contextmanager
def _one_line_errors(url: str) -> Iterator[None]:
    """Raise the client's errors, OSError or RuntimeError, without the name node's Java stack."""
    try:
        yield
    except FileExistsError as error:
        raise FileExistsError(f"{url} already exists") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url}: {_first_line(error)}") from error
    except PermissionError as error:
        raise PermissionError(f"{url}: {_first_line(error)}") from error
    except Exception as error:
        raise OSError(f"{url}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Return the text before the stack, which may be in a quoted string."""
    return str(error).partition("\n")[0].partition("\\n")[0]
