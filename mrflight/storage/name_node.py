"""What deltalake's client cannot do in HDFS, by hdfs-native: take a file where there is none.

deltalake moves a file that it has written over what has the name. Both are the same client in
Rust, without a JVM; hdfs-native has more of it for Python.
"""

from __future__ import annotations

import io
import posixpath
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hdfs_native import Client

_SETTINGS = {"dfs.client.failover.max.attempts": "5"}
"""Of its own it asks a name node that refuses connections for minutes; so some 10 s."""

_ONCE_MORE = {"dfs.client.failover.max.attempts": "1"}
"""Where there are two name nodes the one that is asked first may be the one that only stands by."""


def is_installed() -> bool:
    """Whether hdfs-native is."""
    from importlib.util import find_spec

    return find_spec("hdfs_native") is not None


def put_if_absent(url: str, path: str, data: bytes, settings: Mapping[str, str]) -> None:
    """Write the file ``path`` of the cluster ``url``; see `PutIfAbsentStore.put_if_absent`."""
    from hdfs_native import WriteOptions

    client = _client(url, settings)
    folder, name = posixpath.split(path)
    # As deltalake's client calls what it has not moved to its name yet.
    staged = posixpath.join(folder, f".{name}.tmp.{secrets.randbelow(10**12)}")
    with _one_line_errors(f"{url}{path}"):
        try:
            file = client.create(staged, WriteOptions(overwrite=False))
            try:
                file.write(data)
                file.close()  # not where the write failed: it tries for 15 s, and tells only that
            finally:
                io.RawIOBase.close(file)  # or Python would do it whenever it collects the object
            client.rename(staged, path, overwrite=False)
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                _client(url, {**settings, **_ONCE_MORE}).delete(staged)
            raise


def _client(url: str, settings: Mapping[str, str]) -> Client:
    """A new one, in half a millisecond: one that was made before a fork stands still after it."""
    from hdfs_native import Client

    return Client(url, {**_SETTINGS, **settings})


@contextmanager
def _one_line_errors(url: str) -> Iterator[None]:
    """It raises OSError and its kinds, and RuntimeError, with the name node's stack in Java."""
    try:
        yield
    except FileExistsError as error:
        raise FileExistsError(f"{url}: it is there already") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url}: {_first_line(error)}") from error
    except PermissionError as error:
        raise PermissionError(f"{url}: {_first_line(error)}") from error
    except Exception as error:
        raise OSError(f"{url}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """What comes before the stack, which may be in a quoted string."""
    return str(error).partition("\n")[0].partition("\\n")[0]
