"""HopsFS over TLS: what its client takes from the environment, checked first.

Without certificates the client connects unencrypted and says nothing of it. So where TLS is
asked for, by ``pem_dir`` or ``PEMS_DIR``, a certificate that is not there, or of no use, is an
error here.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from mrflight.errors import JobFileError
from mrflight.storage.certificates import check_certificates
from mrflight.storage.hopsfs_settings import ClientSettings
from mrflight.storage.option_names import NAME_NODES, scheme_of

log = logging.getLogger(__name__)

_PROJECT_USER = re.compile(r"[A-Za-z0-9_]+?__[A-Za-z0-9_-]+")
_HOST = re.compile(r"[A-Za-z0-9.\-]+|\[[0-9A-Fa-f:]+\]")

HOPS_PORT = 8020

VARIABLES = {
    "pem_dir": "PEMS_DIR",
    "user": "LIBHDFS_DEFAULT_USER",
    "datanode_host": "HOPSFS_CLOUD_DATANODE_HOSTNAME_OVERRIDE",
    "datanode_port": "HOPSFS_CLOUD_DATANODE_PORT_OVERRIDE",
}
"""Keys of ``[storage]`` that are ours, and where the client looks for them; the others go to the
client as they are."""

client_settings = ClientSettings(VARIABLES)
"""Of this process."""


def prepare(options: Mapping[str, str], paths: Iterable[str], folder: Path) -> None:
    """Set what the client reads when it connects: before deltalake is imported.

    Processes that are started later inherit it; ``folder`` is the job file's. Raises as
    `client_environment` does, also of certificates that only the environment names, and
    JobFileError where another client than that of these ``paths`` and ``options`` is installed, or
    this process's client was told other settings. A connection that will not be encrypted is
    logged.
    """
    schemes = {scheme_of(path): path for path in paths}
    _check_client(options, schemes)
    now = datetime.now(UTC)
    found = client_environment(options, folder, now)
    if not is_client():
        os.environ.update(found)
        return
    if found or _use_name_nodes(schemes):
        around = {} if VARIABLES["pem_dir"] in found else _environment_pems(now)
        client_settings.tell({**around, **found})
    if "hopsfs" in schemes and not os.environ.get(VARIABLES["pem_dir"]):
        log.warning(
            "%s: the connection is not encrypted, as there are no certificates: name their folder "
            "in storage.pem_dir",
            schemes["hopsfs"],
        )


def has_environment_pems(paths: Iterable[str]) -> bool:
    """Whether the client, asked for these, would look for certificates where ``PEMS_DIR`` says."""
    if not _use_name_nodes(map(scheme_of, paths)) or not is_client():
        return False
    return bool(client_settings.of_environment(VARIABLES["pem_dir"]))


def _use_name_nodes(schemes: Iterable[str]) -> bool:
    return not NAME_NODES.isdisjoint(schemes)


def _environment_pems(now: datetime) -> dict[str, str]:
    """The folder that ``PEMS_DIR`` of the environment names, checked.

    Options are taken from the environment by commands only. This adds none: the client itself
    looks there, whoever asks and however a URL is spelled, and has no TLS where it finds nothing.
    """
    variable = VARIABLES["pem_dir"]
    named = client_settings.of_environment(variable)
    if not named:
        return {}
    try:
        return client_environment({"pem_dir": named}, Path.cwd(), now)
    except JobFileError as error:
        raise JobFileError(
            f"{error}; {variable} of the environment names that folder: mend it, or unset "
            f"{variable} where no TLS is wanted"
        ) from error


def client_environment(options: Mapping[str, str], folder: Path, now: datetime) -> dict[str, str]:
    """What the client reads from the environment, of these settings.

    ``folder`` is where a relative ``pem_dir`` begins. JobFileError, with the key path, for what
    cannot be used: a certificate that is missing, unreadable, not valid ``now``, or that the key
    does not belong to; a user that is none of a project; a host or port that cannot be one.
    """
    found = {VARIABLES[key]: value for key, value in options.items() if key in VARIABLES}
    if "pem_dir" in options:
        pems = folder / options["pem_dir"]
        check_certificates(pems, now)
        found[VARIABLES["pem_dir"]] = str(pems.resolve())
    if "user" in options and not _PROJECT_USER.fullmatch(options["user"]):
        raise _wrong("user", f"{options['user']!r} is not of the form <project>__<name>")
    if "datanode_host" in options and not _HOST.fullmatch(options["datanode_host"]):
        raise _wrong("datanode_host", f"{options['datanode_host']!r} is no host's name")
    if "datanode_port" in options:
        port = options["datanode_port"]
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise _wrong("datanode_port", f"{port!r} is no port: it is a number up to 65535")
    return found


def is_client() -> bool:
    """Whether what is imported as deltalake is hops-deltalake."""
    return _is_installed("hops-deltalake")


def check_one_client() -> None:
    """JobFileError where deltalake and hops-deltalake are both installed."""
    if _is_installed("hops-deltalake") and _is_installed("deltalake"):
        raise JobFileError(
            "deltalake and hops-deltalake are both installed, as the same files, and nobody knows "
            "whose are there: pip uninstall deltalake hops-deltalake, then pip install "
            "'mrflight[hopsfs]' for HopsFS, or 'mrflight[delta]' for other stores"
        )


def _check_client(options: Mapping[str, str], schemes: Mapping[str, str]) -> None:
    """JobFileError where the installed deltalake is not the one for these URLs, by their schemes.

    What is not installed at all is told where it is imported, unless it is HopsFS's.
    """
    if not _use_name_nodes(schemes):
        return
    check_one_client()
    is_hops = is_client()
    if not is_hops:
        if "hopsfs" in schemes:
            raise _needs_client(schemes["hopsfs"])
        for key in VARIABLES:
            if key in options:
                raise _needs_client(f"storage.{key}, of a connection to {schemes['hdfs']},")
        return
    if "hopsfs" in schemes and _other_port(schemes["hopsfs"]):
        raise JobFileError(
            f"{schemes['hopsfs']}: hops-deltalake asks port {HOPS_PORT} whatever a URL says; leave "
            "the port out"
        )
    if "hdfs" in schemes and _other_port(schemes["hdfs"]):
        raise JobFileError(
            f"{schemes['hdfs']}: hops-deltalake asks port {HOPS_PORT} whatever a URL says; pip "
            "uninstall hops-deltalake, then pip install 'mrflight[delta]'"
        )


def _needs_client(what: str) -> JobFileError:
    install = "pip install 'mrflight[hopsfs]'"
    if find_spec("deltalake") is None:
        return JobFileError(f"{what} needs hops-deltalake, which is not installed: {install}")
    return JobFileError(
        f"{what} needs hops-deltalake, which takes the place of deltalake: pip uninstall "
        f"deltalake, then {install}"
    )


def _other_port(url: str) -> bool:
    try:
        return urlsplit(url).port not in (None, HOPS_PORT)
    except ValueError:  # it is no number
        return True


@cache  # it looks through folders
def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _wrong(key: str, what: str) -> JobFileError:
    return JobFileError(f"storage.{key}: {what}")
