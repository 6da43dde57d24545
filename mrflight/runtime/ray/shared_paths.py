"""What the nodes of Ray see of this machine's files: what they are sent, and what they must see."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path

import msgspec

from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError, MrflightError
from mrflight.runtime.ray.executor import RayExecutor
from mrflight.runtime.ray.messages import Connected, Node
from mrflight.storage import locate
from mrflight.storage.disk import Disk
from mrflight.units import format_bytes

_LOOK_TIMEOUT_S = 60.0
"""Of a node: it starts a process for it, which loads what tasks need."""

_MOST_FILE_BYTES = 8 * 2**20
"""Of a file that lies beside a job and is sent to the nodes with it; larger ones are data."""

_MOST_FOLDER_BYTES = 64 * 2**20

_NEVER_SENT = "__pycache__"
"""Nor what is hidden. (".*" as a pattern would leave out all, as Ray calls the folder ".".)"""

_TELL_FOLDERS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that tell what is never sent: a cache, as cargo's target, and an environment of Python.

What ``.gitignore`` names is not sent by Ray either, but counted: its patterns are Ray's to read.
"""

_GLOB = frozenset("*?[")


def left_out(spec: JobSpec, folder: Path) -> tuple[str, ...]:
    """What of the job's folder is not sent to the nodes, as patterns of gitignore.

    Inputs, output and other large files: what is left are the modules, and what they read beside
    them. JobFileError where that is too much.
    """
    apart = [path for _, path in _local_paths(spec, folder)]
    patterns = []
    sent_bytes = 0
    for here, folders, files in os.walk(folder):
        for name in sorted(folders):
            path = Path(here, name)
            if path in apart or _is_never_sent(path):
                folders.remove(name)
                patterns.append(_pattern(path, folder))
        for name in files:
            path = Path(here, name)
            size = path.lstat().st_size
            if path in apart or name.startswith(".") or size > _MOST_FILE_BYTES:
                patterns.append(_pattern(path, folder))
            else:
                sent_bytes += size
    if sent_bytes > _MOST_FOLDER_BYTES:
        raise JobFileError(
            f"{folder}: is sent to the nodes of Ray, with the modules in it, and has "
            f"{format_bytes(sent_bytes)} beside inputs and output; put the job file and its "
            f"modules into a folder of at most {format_bytes(_MOST_FOLDER_BYTES)}"
        )
    return tuple(patterns)


def _is_never_sent(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name == _NEVER_SENT:
        return True
    return any((folder / name).is_file() for name in _TELL_FOLDERS)


def _pattern(path: Path, folder: Path) -> str:
    inside = str(path.relative_to(folder))
    return "/" + "".join(f"\\{c}" if c in "*?[]!#\\ " else c for c in inside)


class PathFingerprint(msgspec.Struct, frozen=True):
    """Something of this machine that every node must see the same."""

    key_path: str
    path: str
    told: str
    """What this machine sees of it."""


def look(path: str) -> str:
    """What there is: files by their sizes, folders by what is right in them; nothing is nothing."""
    try:
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                found = sorted(
                    (each.name, each.stat().st_size if each.is_file() else "") for each in entries
                )
            told = repr(found).encode(errors="surrogateescape")
            return f"a folder of {blake2b(told, digest_size=8).hexdigest()}"
        return f"a file of {os.stat(path).st_size} bytes"
    except OSError as error:
        return f"nothing ({error.strerror})"


def fingerprint_all(paths: tuple[str, ...], scratch_root: str) -> tuple[str, ...]:
    """On a node: what it sees of them, and why it has no scratch folder, if it has none."""
    usable = os.path.isdir(scratch_root) and os.access(scratch_root, os.W_OK | os.X_OK)
    return (*map(look, paths), "" if usable else f"no folder {scratch_root} that can be written to")


def verify_shared_paths(
    spec: JobSpec, folder: Path, scratch_root: Path, ray: Connected, executor: RayExecutor
) -> None:
    """Raise JobFileError where a node does not see a path of the job as this machine does."""
    with ExitStack() as stack:
        sights = list(_sights(spec, folder, stack))
        paths = tuple(sight.path for sight in sights)
        looks = {
            node: executor.on_node(node.id, fingerprint_all, paths, str(scratch_root))
            for node in ray.nodes
        }
        for node, seen in looks.items():
            _check(sights, node, seen)


def _check(sights: list[PathFingerprint], node: Node, looking: Future[tuple[str, ...]]) -> None:
    try:
        *seen, no_scratch = looking.result(_LOOK_TIMEOUT_S)
    except TimeoutError:
        raise JobFileError(
            f"cluster.ray_address: node {node.address} of Ray did not answer for "
            f"{_LOOK_TIMEOUT_S:.0f} s"
        ) from None
    except MrflightError as error:
        raise JobFileError(
            f"cluster.ray_address: nothing can be run on node {node.address} of Ray: {error}; has "
            "it this version of mrflight installed?"
        ) from error
    if no_scratch:
        raise JobFileError(f"cluster.spill_dir: node {node.address} of Ray has {no_scratch}")
    for sight, told in zip(sights, seen, strict=True):
        if told != sight.told:
            raise JobFileError(
                f"{sight.key_path}: {sight.path} is on a disk of this machine that node "
                f"{node.address} of Ray does not see (there it is {told}, here {sight.told}); "
                "name a place that all nodes reach: s3://, hdfs://, or a folder that all have "
                "mounted"
            )


def _sights(spec: JobSpec, folder: Path, stack: ExitStack) -> Iterator[PathFingerprint]:
    """What is to be looked at. A probe lies where the output will be, for as long as the stack."""
    for key_path, path in _local_paths(spec, folder):
        if key_path == "output.table":
            while not path.is_dir():
                path = path.parent
            if os.access(path, os.W_OK):  # or the job says so
                number, probe = tempfile.mkstemp(prefix=".mrflight-probe-", dir=path)
                stack.callback(os.unlink, probe)
                os.close(number)
                yield PathFingerprint(key_path, probe, look(probe))
        else:
            yield PathFingerprint(key_path, str(path), look(str(path)))


def _local_paths(spec: JobSpec, folder: Path) -> Iterator[tuple[str, Path]]:
    """The paths of inputs, as far as they have no pattern, and the output's: those on disks."""
    for key_path, given in _inputs(spec):
        location = locate(given, folder, spec.storage)
        if isinstance(location.store, Disk):
            path = Path(location.path)
            while _GLOB & set(str(path)):
                path = path.parent
            yield key_path, path
    output = locate(spec.output.table, folder, spec.storage)
    if isinstance(output.store, Disk):
        yield "output.table", Path(output.path)


def _inputs(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The key paths of all inputs that are files, and what they say."""
    stages = {f"stages.{name}.": stage.inputs for name, stage in spec.stages.items()}
    for section, inputs in {**stages, "": spec.inputs}.items():
        for name, each in inputs.items():
            if each.path is not None:
                yield f"{section}inputs.{name}.path", each.path
