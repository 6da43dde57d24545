"""HDFS and HopsFS through the client of deltalake or hops-deltalake, without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import msgspec

from mrflight.errors import JobError, MrflightError
from mrflight.storage import hdfs_put, hopsfs
from mrflight.storage.failures import failure_of, is_forbidden, reason
from mrflight.storage.store import PutIfAbsentStore
from mrflight.storage.streams import RangedFile, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import fs


_NOT_IN_URLS = "".join(chr(code) for code in range(128) if chr(code) not in "%?#")
"""The characters that need no encoding. Letters outside ASCII may be encoded as well."""

_PORT = re.compile(r":(\d*)$")
"""The port of an authority; an IPv6 address ends with a bracket."""

_BEING_WRITTEN = re.compile(r"\.(.+)\.tmp\.\d+")
"""The client's temporary name of a file; it renames the file when it is closed."""


@dataclass(frozen=True)
class NameNode(PutIfAbsentStore):
    """The files of one cluster."""

    authority: str
    """``host:port`` of the name node, or its name in the client's configuration."""
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    failure_hint = (
        "check that its name node and data nodes run, and that every host of the job reaches the "
        "data nodes at the addresses that the name node has for them (for HopsFS at "
        "storage.datanode_host)"
    )
    names_host = True
    open_file_bytes = 8 << 20
    requests_at_once = 8
    slow_close = True

    @property
    def identity(self) -> str:
        """See `Store.identity`: the case of a host is ignored, and the port may be left out."""
        found = _PORT.search(self.authority)
        port = hopsfs.HOPS_PORT if found is None or hopsfs.is_client() else found[1]
        return f"hdfs://{_PORT.sub('', self.authority).lower()}:{port}/"

    def final_name(self, name: str) -> str:
        written = _BEING_WRITTEN.fullmatch(name)
        return name if written is None else written[1]

    def lock_name(self, path: str) -> str | None:
        """See `Store.lock_name`. HopsFS needs it: its client looks for a file, then replaces it."""
        if not hopsfs.is_client():
            return None
        host = urlsplit(self.url("/")).hostname
        return f"hopsfs://{host}:{hopsfs.HOPS_PORT}{path}"  # whatever port the URL has

    @property
    def options(self) -> Mapping[str, str]:
        return dict(self.given)

    def url(self, path: str) -> str:
        return f"hdfs://{self.authority}{path}"

    def await_answer(self, path: str) -> None:
        """See `Store.await_answer`: most calls of deltalake (1.6) hold the GIL while they wait.

        They could still hang if the name node stopped between this call and the next one.
        """
        self.info(path)

    def info(self, path: str) -> fs.FileInfo:
        from pyarrow import fs

        if path == "/":  # hops-deltalake (1.4) asks for it like for a file, and fails
            return fs.FileInfo(path, fs.FileType.Directory)
        try:
            with _as_os_errors(self.url(path)):
                (found,) = _handler(self).get_file_info([_below_root(path)])
        except OSError as error:
            if _IS_FOLDER not in str(error):
                raise
            # It lists a folder, and asks for a file if there is nothing in it. Another writer has
            # created the folder in between.
            return fs.FileInfo(path, fs.FileType.Directory)
        return _at(path, found)

    def list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        from pyarrow import fs

        # hops-deltalake would take the names of folders for URLs.
        at_once = recursive and not hopsfs.is_client()
        self.await_answer(folder)
        with _as_os_errors(self.url(folder)):
            selector = _Selector(_below_root(folder), at_once)
            found = _handler(self).get_file_info_selector(selector)
        infos = [_at(f"/{info.path.lstrip('/')}", info) for info in found]
        if recursive and not at_once:
            below = [info.path for info in infos if info.type == fs.FileType.Directory]
            infos += [info for path in below for info in self.list(path, recursive=True)]
        return infos

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        url = self.url(path)
        self.await_answer(path)
        with _as_os_errors(url):
            stream: Any = _handler(self)._handler.open_input_file(_below_root(path))
            size = stream.size()

        def read(start: int, stop: int) -> Any:
            with _as_os_errors(url):
                stream.seek(start)
                return stream.read(stop - start)

        return pa.PythonFile(RangedFile(size, read), mode="r")

    def create(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        url = self.url(path)
        self.await_answer(path)
        with _as_os_errors(url):
            stream: Any = _handler(self)._handler.open_output_stream(_below_root(path), None)

        def write(data: bytes) -> None:
            with _as_os_errors(url):
                stream.write(data)

        def close() -> None:
            with _as_os_errors(url):
                stream.close()

        return pa.PythonFile(WrittenFile(write, close), mode="w")

    @property
    def why_no_put_if_absent(self) -> str | None:
        if hopsfs.is_client():
            return "only hops-deltalake supports HopsFS's TLS, and it replaces an existing file"
        if not hdfs_put.is_installed():
            return "that needs hdfs-native, which is not installed: pip install 'mrflight[hdfs]'"
        return None

    def put_if_absent(self, path: str, data: bytes) -> None:
        hdfs_put.put_if_absent(self.url("/").rstrip("/"), path, data, dict(self.given))

    def delete_file(self, path: str, below: str | None = None) -> None:
        self.await_answer(path)
        try:
            with _as_os_errors(self.url(path)):
                _handler(self).delete_file(_below_root(path))
        except FileNotFoundError:
            return
        except OSError:  # hops-deltalake (1.4) only says that it failed
            if self.info(path).is_file:
                raise


_IS_FOLDER = "Head must be called on a file"
"""What hops-deltalake (1.4) says of a folder of which it has asked as of a file."""


class _Selector(msgspec.Struct, frozen=True):
    """Stands in for a `pyarrow.fs.FileSelector`, which takes no relative path."""

    base_dir: str
    recursive: bool
    allow_not_found: bool = True


@lru_cache(maxsize=16)
def _handler(store: NameNode) -> DeltaStorageHandler:
    """Return the client of this process. It keeps connections, to HopsFS with `client_settings`."""
    try:
        from deltalake.fs import DeltaStorageHandler
    except ImportError as error:
        raise JobError(
            f"{store.url('/')} is read through deltalake, which is not installed: pip install "
            "'mrflight[delta]'"
        ) from error
    if hopsfs.is_client():
        hopsfs.client_settings.freeze()
    with _as_os_errors(store.url("/")):
        return DeltaStorageHandler(store.url("/"), dict(store.given) or None)


def _below_root(path: str) -> str:
    """Return the path for the client; hops-deltalake (1.4) takes it as part of a URL."""
    below = path.lstrip("/")
    return quote(below, safe=_NOT_IN_URLS) if hopsfs.is_client() else below


def _at(path: str, info: Any) -> fs.FileInfo:
    from pyarrow import fs

    if info.type != fs.FileType.File:
        return fs.FileInfo(path, info.type)
    return fs.FileInfo(path, info.type, size=info.size, mtime_ns=info.mtime_ns)


@contextmanager
def _as_os_errors(url: str) -> Iterator[None]:
    """Raise our errors for the client's: OSError, FileNotFoundError or a bare Exception.

    What the name node forbids is a plain OSError of the client.
    """
    try:
        yield
    except MrflightError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url}: no such file") from error
    except Exception as error:
        if is_forbidden(error):
            raise PermissionError(f"{url}: {reason(error)}") from error
        raise failure_of(url, error) from error
