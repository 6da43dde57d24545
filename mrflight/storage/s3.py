"""S3 and compatible stores, through obstore, which has the object_store of deltalake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mrflight.config.secret_reference import resolved
from mrflight.errors import JobError
from mrflight.storage.failures import failure_of, is_forbidden, reason
from mrflight.storage.option_names import DELTALAKE_ONLY
from mrflight.storage.store import ChangedFileError, FileVersion, PutIfAbsentStore
from mrflight.storage.streams import RangedFile, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import S3Store
    from pyarrow import fs

_RETRY_TIMEOUT = timedelta(minutes=1)
"""The time for retries of a request. A refused connection fails after 10 retries, some seconds."""

PART_BYTES = 8 << 20
"""A smaller file takes one request; a larger one takes one for each part, and two more."""

PARTS_AT_ONCE = 1
"""The number of parts of a file that are being sent, beside the one that is being filled."""


@dataclass(frozen=True)
class Bucket(PutIfAbsentStore):
    """The objects of one bucket; ``/a/b`` is the key ``a/b``."""

    name: str
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """``[storage]``, with object_store's names, ``aws_...``."""

    failure_hint = (
        "check that its server runs, and that every host of the job reaches it "
        "(storage.aws_endpoint_url, unless it is Amazon's)"
    )
    has_folders = False
    puts_log_entries = True
    reads_check_version = True
    open_file_bytes = (1 + PARTS_AT_ONCE) * PART_BYTES
    requests_at_once = 16
    slow_close = True

    def __post_init__(self) -> None:
        """Raise JobError if obstore is not installed, which every call needs."""
        if find_spec("obstore") is None:
            raise JobError(
                f"s3://{self.name} needs obstore, which is not installed: pip install "
                "'mrflight[s3]'"
            )

    @property
    def options(self) -> Mapping[str, str]:
        return dict(self.given)

    def url(self, path: str) -> str:
        return f"s3://{self.name}{path}"

    def info(self, path: str) -> fs.FileInfo:
        from obstore import head
        from pyarrow import fs

        try:
            with _as_os_errors(self.url(path)):
                if key := _key(path):
                    return _file_info(head(self._client, key))
        except FileNotFoundError:
            pass
        kind = fs.FileType.Directory if self.is_folder(path) else fs.FileType.NotFound
        return fs.FileInfo(path, kind)

    def is_folder(self, path: str) -> bool:
        return not _key(path) or self._has_any(_key(path))

    def list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        from obstore import list as list_all
        from obstore import list_with_delimiter
        from pyarrow import fs

        with _as_os_errors(self.url(folder)):
            if not recursive:
                found = list_with_delimiter(self._client, _key(folder))
                below = [
                    fs.FileInfo(f"/{prefix}".rstrip("/"), fs.FileType.Directory)
                    for prefix in found["common_prefixes"]
                ]
                return below + [_file_info(meta) for meta in found["objects"]]
            files = [
                _file_info(meta)
                for chunk in list_all(self._client, _key(folder), chunk_size=1000)
                for meta in chunk
            ]
        folders = {above for info in files for above in _folders_between(folder, info.path)}
        return [fs.FileInfo(path, fs.FileType.Directory) for path in sorted(folders)] + files

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa
        from obstore import get_range, head

        client, key = self._client, _key(path)
        with _as_os_errors(self.url(path)):
            size = head(client, key)["size"]

        def read(start: int, stop: int) -> Any:
            with _as_os_errors(self.url(path)):
                return get_range(client, key, start=start, end=stop)

        return pa.PythonFile(RangedFile(size, read), mode="r")

    def open_version(self, path: str, version: FileVersion) -> pa.NativeFile:
        """Open without a request: the size is known, and each answer tells the version."""
        import pyarrow as pa
        from obstore import get

        client, key, url = self._client, _key(path), self.url(path)

        def read(start: int, stop: int) -> Any:
            with _as_os_errors(url):
                answer = get(client, key, options={"range": (start, stop)})
            if not version.is_of(_file_info(answer.meta)):
                raise ChangedFileError(url)
            with _as_os_errors(url):
                return answer.bytes()

        return pa.PythonFile(RangedFile(version.size_bytes, read), mode="r")

    def read_bytes(self, path: str) -> bytes:
        from obstore import get

        with _as_os_errors(self.url(path)):
            return bytes(get(self._client, _key(path)).bytes())

    def create(self, path: str) -> pa.NativeFile:
        import pyarrow as pa
        from obstore import open_writer

        url = self.url(path)
        with _as_os_errors(url):
            writer = open_writer(
                self._client, _key(path), buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )

        def write(data: bytes) -> None:
            with _as_os_errors(url):
                writer.write(data)

        def close() -> None:
            with _as_os_errors(url):
                writer.close()

        return pa.PythonFile(WrittenFile(write, close), mode="w")

    def put_if_absent(self, path: str, data: bytes) -> None:
        from obstore import put

        with _as_os_errors(self.url(path)):
            put(self._client, _key(path), data, mode="create")

    def delete_file(self, path: str, below: str | None = None) -> None:
        from obstore import delete

        try:
            with _as_os_errors(self.url(path)):
                delete(self._client, _key(path))
        except FileNotFoundError:
            return

    def _has_any(self, key: str) -> bool:
        from obstore import list as list_all

        with _as_os_errors(self.url(f"/{key}")):
            return any(len(chunk) for chunk in list_all(self._client, key, chunk_size=1))

    @property
    def _client(self) -> S3Store:
        return _client(self)


@lru_cache(maxsize=16)
def _client(bucket: Bucket) -> S3Store:
    """Return the client of this process; it keeps connections."""
    from obstore.exceptions import BaseError

    try:
        return _new_client(bucket.name, bucket.options)
    except (BaseError, ValueError) as error:
        key = _refused_option(bucket, str(error))
        raise JobError(
            f"{f'storage.{key}' if key else '[storage]'} cannot be used for s3://{bucket.name}: "
            f"{reason(error)}"
        ) from None  # a traceback would show the cause, whose text has the value


def _refused_option(bucket: Bucket, message: str) -> str | None:
    """Return the option that alone causes this message; None if the environment causes it.

    The client names an unknown key, but for a value that it cannot parse it names only the value.
    """
    if _refusal(bucket.name, {}) == message:
        return None
    alone = ((key, _refusal(bucket.name, {key: value})) for key, value in bucket.given)
    return next((key for key, refusal in alone if refusal == message), None)


def _refusal(name: str, given: Mapping[str, str]) -> str | None:
    from obstore.exceptions import BaseError

    try:
        _new_client(name, given)
    except (BaseError, ValueError) as error:
        return str(error)
    return None


def _new_client(name: str, given: Mapping[str, str]) -> S3Store:
    from obstore.store import S3Store

    known = {key: value for key, value in given.items() if not _is_not_ours(key)}
    options: Any = resolved(known, "storage")
    client: Any = {key: options.pop(key) for key in ("allow_http", "timeout") if key in options}
    if options.get("aws_allow_http", "").lower() == "true":
        client["allow_http"] = True
    return S3Store(
        name,
        config=options,
        client_options=client or None,
        retry_config={"max_retries": 10, "retry_timeout": _RETRY_TIMEOUT},
    )


def _is_not_ours(key: str) -> bool:
    """Return whether only deltalake takes an option, or it is a property of Hadoop."""
    return "." in key or key in DELTALAKE_ONLY


def knows_option(key: str) -> bool:
    """Return whether the client has an option of this name; False if it is not installed."""
    if find_spec("obstore") is None:
        return False
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError
    from obstore.store import S3Store

    options: Any = {key: ""}
    try:
        S3Store("any", config=options)
    except UnknownConfigurationKeyError:
        return False
    except (BaseError, ValueError):  # the key is known, but the empty value is invalid
        return True
    return True


def _key(path: str) -> str:
    return path.strip("/")


def _file_info(meta: Any) -> fs.FileInfo:
    from pyarrow import fs

    changed = meta["last_modified"].replace(microsecond=0)  # HEAD has no more digits
    return fs.FileInfo(f"/{meta['path']}", fs.FileType.File, size=meta["size"], mtime=changed)


def _folders_between(folder: str, path: str) -> Iterator[str]:
    """Yield the folders between ``folder`` and a file."""
    while (path := path.rpartition("/")[0]) and len(path) > len(folder.rstrip("/")):
        yield path


@contextmanager
def _as_os_errors(url: str) -> Iterator[None]:
    from obstore import exceptions

    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        raise FileNotFoundError(f"{url}: no such object") from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(f"{url}: {reason(error)}") from error
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(f"{url} already exists") from error
    except (exceptions.BaseError, OSError) as error:
        # obstore's writer (0.12) raises OSError for every answer of the server.
        if is_forbidden(error):
            raise PermissionError(f"{url}: {reason(error)}") from error
        raise failure_of(url, error) from error
