"""Finds the files of a job to send to the nodes of Ray, and checks those that must be shared."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path

import msgspec

from mrflight.config.input_spec import InputSpec
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError, MrflightError
from mrflight.runtime.ray.executor import RayExecutor
from mrflight.runtime.ray.messages import Connected, Node
from mrflight.storage import locate
from mrflight.storage.disk import Disk
from mrflight.units import format_bytes

_FINGERPRINT_TIMEOUT_S = 60.0
"""How long a node may take. It starts a process, which loads what tasks need."""

_MAX_FILE_BYTES = 8 * 2**20
"""The largest file beside a job file that is sent to the nodes. Larger files are data."""

_MAX_FOLDER_BYTES = 64 * 2**20

_NEVER_SENT = "__pycache__"
"""Hidden files are never sent, either. (The pattern ".*" would exclude everything, because Ray
calls the folder itself ".".)"""

_MARKER_FILES = ("CACHEDIR.TAG", "pyvenv.cfg")
"""A folder with such a file is never sent: a cache, as that of cargo, or a Python environment.

Ray does not send what ``.gitignore`` names, either. But it is counted here, because only Ray reads
these patterns.
"""

_GLOB = frozenset("*?[")


def exclude_patterns(spec: JobSpec, folder: Path) -> tuple[str, ...]:
    """Return what is not sent of the job's folder, as patterns of gitignore.

    These are inputs, the output and other large files. What remains are the modules, and the small
    files that they read. Raises JobFileError if that is too much.
    """
    apart = {path for _, path in _local_paths(spec, folder)}
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
            if path in apart or name.startswith(".") or size > _MAX_FILE_BYTES:
                patterns.append(_pattern(path, folder))
            else:
                sent_bytes += size
    if sent_bytes > _MAX_FOLDER_BYTES:
        raise JobFileError(
            f"{folder} would be sent to the nodes of Ray, for the modules in it, and has "
            f"{format_bytes(sent_bytes)} besides inputs and output; put the job file and its "
            f"modules into a folder of at most {format_bytes(_MAX_FOLDER_BYTES)}"
        )
    return tuple(patterns)


def _is_never_sent(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name == _NEVER_SENT:
        return True
    return any((folder / name).is_file() for name in _MARKER_FILES)


def _pattern(path: Path, folder: Path) -> str:
    inside = str(path.relative_to(folder))
    return "/" + "".join(f"\\{c}" if c in "*?[]!#\\ " else c for c in inside)


class PathFingerprint(msgspec.Struct, frozen=True):
    """A path of this machine that every node must see in the same way."""

    key_path: str
    path: str
    fingerprint: str
    """What this machine sees there."""
    advice: str = (
        "name a place that all nodes reach: s3://, hdfs://, or a folder that all have mounted"
    )


def fingerprint(path: str) -> str:
    """Describe what is at a path: the size of a file, or the entries of a folder."""
    try:
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                found = sorted(
                    (each.name, each.stat().st_size if each.is_file() else "") for each in entries
                )
            listing = repr(found).encode(errors="surrogateescape")
            return f"a folder of {blake2b(listing, digest_size=8).hexdigest()}"
        return f"a file of {os.stat(path).st_size} bytes"
    except OSError as error:
        return f"nothing ({error.strerror})"


def fingerprint_all(paths: tuple[str, ...], scratch_root: str) -> tuple[str, ...]:
    """Return, on a node, the fingerprints of paths, and what is wrong with its scratch folder."""
    usable = os.path.isdir(scratch_root) and os.access(scratch_root, os.W_OK | os.X_OK)
    return (
        *map(fingerprint, paths),
        "" if usable else f"no folder {scratch_root} that can be written to",
    )


def verify_shared_paths(
    spec: JobSpec, folder: Path, scratch_root: Path, ray: Connected, executor: RayExecutor
) -> None:
    """Raise JobFileError if a node does not see a path of the job as this machine does."""
    with ExitStack() as stack:
        expected = list(_fingerprints(spec, folder, stack))
        if spec.has_frames:
            expected.append(_of_frames(scratch_root, stack))
        paths = tuple(each.path for each in expected)
        answers = {
            node: executor.on_node(node.id, fingerprint_all, paths, str(scratch_root))
            for node in ray.nodes
        }
        for node, seen in answers.items():
            _check(expected, node, seen)


def _check(expected: list[PathFingerprint], node: Node, answer: Future[tuple[str, ...]]) -> None:
    try:
        *seen, no_scratch = answer.result(_FINGERPRINT_TIMEOUT_S)
    except TimeoutError:
        raise JobFileError(
            f"cluster.ray_address: node {node.address} of Ray did not answer for "
            f"{_FINGERPRINT_TIMEOUT_S:.0f} s"
        ) from None
    except MrflightError as error:
        raise JobFileError(
            f"cluster.ray_address: nothing can be run on node {node.address} of Ray: {error}; is "
            "this version of mrflight installed there?"
        ) from error
    if no_scratch:
        raise JobFileError(f"cluster.spill_dir: node {node.address} of Ray has {no_scratch}")
    for here, there in zip(expected, seen, strict=True):
        if there != here.fingerprint:
            raise JobFileError(
                f"{here.key_path}: {here.path} is on a disk of this machine that node "
                f"{node.address} of Ray does not see (there it is {there}, here "
                f"{here.fingerprint}); {here.advice}"
            )


def _fingerprints(spec: JobSpec, folder: Path, stack: ExitStack) -> Iterator[PathFingerprint]:
    """Yield the paths to check. A probe file stands for what is written, until the stack closes."""
    for key_path, path in _local_paths(spec, folder):
        if not key_path.endswith(".path"):
            while not path.is_dir():
                path = path.parent
            if os.access(path, os.W_OK):  # otherwise the job reports it
                probe = _make_probe(path, stack)
                yield PathFingerprint(key_path, probe, fingerprint(probe))
        else:
            yield PathFingerprint(key_path, str(path), fingerprint(str(path)))


def _of_frames(scratch_root: Path, stack: ExitStack) -> PathFingerprint:
    """Return what stands for the files to which the rows of this process will be written."""
    probe = _make_probe(scratch_root, stack)
    advice = "the job writes the tables in memory there; name a folder that all nodes have mounted"
    return PathFingerprint("cluster.spill_dir", probe, fingerprint(probe), advice)


def _make_probe(folder: Path, stack: ExitStack) -> str:
    """Make an empty file, which is there until the stack is closed."""
    number, probe = tempfile.mkstemp(prefix=".mrflight-probe-", dir=folder)
    stack.callback(os.unlink, probe)
    os.close(number)
    return probe


def _local_paths(spec: JobSpec, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the paths on disks: those of inputs, up to a pattern, and those that are written."""
    read = [(f"{key}.path", path) for key, each in _inputs(spec) for path in each.paths]
    for key_path, given in read:
        location = locate(given, folder, spec.storage)
        if isinstance(location.store, Disk):
            path = Path(location.path)
            while _GLOB & set(str(path)):
                path = path.parent
            yield key_path, path
    for key_path, given in _written(spec):
        location = locate(given, folder, spec.storage)
        if isinstance(location.store, Disk):
            yield key_path, Path(location.path)


def _written(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the key paths and the paths of the output, and of folders of bad rows."""
    for key, each in _inputs(spec):
        if each.bad_rows_folder is not None:
            yield f"{key}.bad_rows", each.bad_rows_folder
    if not spec.has_output:
        return
    output = spec.output
    if not output.in_catalog:
        yield "output.table", output.table
    elif (folder := output.warehouse or output.data_path) is not None:
        yield f"output.{'warehouse' if output.warehouse else 'data_path'}", folder


def _inputs(spec: JobSpec) -> Iterator[tuple[str, InputSpec]]:
    """Yield the keys of all inputs, and what they say."""
    stages = {f"stages.{name}.": stage.inputs for name, stage in spec.stages.items()}
    for section, inputs in {**stages, "": spec.inputs}.items():
        for name, each in inputs.items():
            yield f"{section}inputs.{name}", each
