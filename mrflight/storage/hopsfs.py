"""HopsFS over TLS: check what its client takes from the environment, and set it.

Without certificates the client connects unencrypted without a warning. So if TLS is requested, by
``pem_dir`` or ``PEMS_DIR``, a missing or unusable certificate is an error here.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from mrflight.errors import JobFileError
from mrflight.storage.certificates import check_certificates
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
"""Our own keys of ``[storage]``, and the variables in which the client looks for them. Other keys
are passed to the client as they are."""


class ClientSettings:
    """The settings with which this process's client asks HopsFS; the first ones stay.

    The client (hops-deltalake 1.4) takes them from the environment whenever it connects, and keeps
    connections. With other settings for a second job, each job would do a part as the other's
    user.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        """``variables`` are the settings' variables by their keys in ``[storage]``."""
        self._variables = variables
        self._lock = threading.Lock()
        self._settings: dict[str, str] | None = None
        self._inherited: dict[str, str] = {}
        """The values in the environment before a job set its own."""

    def of_environment(self, variable: str) -> str:
        """Return a variable without what a job has set there; empty if it is not set."""
        value = os.environ.get(variable, "")
        if self._settings is not None and value == self._settings[variable]:
            return self._inherited[variable]
        return value

    def apply(self, found: Mapping[str, str]) -> None:
        """Make the client use these settings, and the environment's for others.

        Raises JobFileError if it already uses other settings.
        """
        with self._lock:
            inherited = self._environment()
            requested = {**inherited, **found}
            if self._settings is None:
                self._settings, self._inherited = requested, inherited
            self._check(requested, self._settings)
            os.environ.update({variable: value for variable, value in requested.items() if value})

    def freeze(self) -> None:
        """Keep the environment's settings for a client that is made before any job sets its own."""
        with self._lock:
            if self._settings is None:
                self._settings = self._inherited = self._environment()

    def _environment(self) -> dict[str, str]:
        return {variable: self.of_environment(variable) for variable in self._variables.values()}

    def _check(self, requested: Mapping[str, str], current: Mapping[str, str]) -> None:
        for key, variable in self._variables.items():
            if requested[variable] != current[variable]:
                raise JobFileError(
                    f"storage.{key} (or {variable} in the environment) cannot change to "
                    f"{_shown(requested[variable])}: this process already uses "
                    f"{_shown(current[variable])} for HopsFS, and its client keeps connections; "
                    "run this in another process"
                )


client_settings = ClientSettings(VARIABLES)
"""The settings of this process."""


def prepare(options: Mapping[str, str], paths: Iterable[str], folder: Path) -> None:
    """Set what the client reads when it connects; call this before deltalake is imported.

    Processes that are started later inherit it. ``folder`` is that of the job file. Raises what
    `client_environment` raises, also for certificates that only the environment names, and
    JobFileError if the client for these ``paths`` and ``options`` is not installed, or this
    process already uses other settings. Logs a connection that will not be encrypted.
    """
    schemes = {scheme_of(path): path for path in paths}
    _check_client(options, schemes)
    now = datetime.now(UTC)
    found = client_environment(options, folder, now)
    if not is_client():
        os.environ.update(found)
        return
    if found or _use_name_nodes(schemes):
        pems = {} if VARIABLES["pem_dir"] in found else _environment_pems(now)
        client_settings.apply({**pems, **found})
    if "hopsfs" in schemes and not os.environ.get(VARIABLES["pem_dir"]):
        log.warning(
            "%s: the connection is not encrypted, because there are no certificates; set "
            "storage.pem_dir to their folder",
            schemes["hopsfs"],
        )


def has_environment_pems(paths: Iterable[str]) -> bool:
    """Return whether the client would take certificates for these paths from ``PEMS_DIR``."""
    if not _use_name_nodes(map(scheme_of, paths)) or not is_client():
        return False
    return bool(client_settings.of_environment(VARIABLES["pem_dir"]))


def _use_name_nodes(schemes: Iterable[str]) -> bool:
    return not NAME_NODES.isdisjoint(schemes)


def _environment_pems(now: datetime) -> dict[str, str]:
    """Return the folder in ``PEMS_DIR`` of the environment, after checking it.

    Only the commands take options from the environment. This adds none: the client itself looks
    there for every path, and uses no TLS if it finds nothing.
    """
    variable = VARIABLES["pem_dir"]
    named = client_settings.of_environment(variable)
    if not named:
        return {}
    try:
        return client_environment({"pem_dir": named}, Path.cwd(), now)
    except JobFileError as error:
        raise JobFileError(
            f"{error}; {variable} in the environment names that folder: correct it, or unset "
            f"{variable} to connect without TLS"
        ) from error


def client_environment(options: Mapping[str, str], folder: Path, now: datetime) -> dict[str, str]:
    """Return the variables of the client for these options.

    A relative ``pem_dir`` starts from ``folder``. Raises JobFileError, with the key path, for a
    certificate that is missing, unreadable, not valid ``now``, or does not belong to the key; for
    a user without a project; and for an invalid host or port.
    """
    found = {VARIABLES[key]: value for key, value in options.items() if key in VARIABLES}
    if "pem_dir" in options:
        pems = folder / options["pem_dir"]
        check_certificates(pems, now)
        found[VARIABLES["pem_dir"]] = str(pems.resolve())
    if "user" in options and not _PROJECT_USER.fullmatch(options["user"]):
        raise _invalid("user", f"{options['user']!r} must have the form <project>__<name>")
    if "datanode_host" in options and not _HOST.fullmatch(options["datanode_host"]):
        raise _invalid("datanode_host", f"{options['datanode_host']!r} must be the name of a host")
    if "datanode_port" in options:
        port = options["datanode_port"]
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise _invalid("datanode_port", f"{port!r} must be a port, a number from 1 to 65535")
    return found


def is_client() -> bool:
    """Return whether the installed deltalake is hops-deltalake."""
    return _is_installed("hops-deltalake")


def check_one_client() -> None:
    """Raise JobFileError if deltalake and hops-deltalake are both installed."""
    if _is_installed("hops-deltalake") and _is_installed("deltalake"):
        raise JobFileError(
            "deltalake and hops-deltalake are both installed and overwrite each other's files: pip "
            "uninstall deltalake hops-deltalake, then pip install "
            "'mrflight[hopsfs]' for HopsFS, or 'mrflight[delta]' for other stores"
        )


def _check_client(options: Mapping[str, str], schemes: Mapping[str, str]) -> None:
    """Raise JobFileError if the installed deltalake is not the one for these URLs.

    ``schemes`` has a URL for each scheme. A deltalake that is not installed at all is reported when
    it is imported, except for HopsFS.
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
                raise _needs_client(f"storage.{key}, for a connection to {schemes['hdfs']},")
        return
    if "hopsfs" in schemes and _other_port(schemes["hopsfs"]):
        raise JobFileError(
            f"{schemes['hopsfs']}: hops-deltalake always uses port {HOPS_PORT}; leave the port out "
            "of the URL"
        )
    if "hdfs" in schemes and _other_port(schemes["hdfs"]):
        raise JobFileError(
            f"{schemes['hdfs']}: hops-deltalake always uses port {HOPS_PORT}; pip uninstall "
            "hops-deltalake, then pip install 'mrflight[delta]'"
        )


def _needs_client(what: str) -> JobFileError:
    install = "pip install 'mrflight[hopsfs]'"
    if find_spec("deltalake") is None:
        return JobFileError(f"{what} needs hops-deltalake, which is not installed: {install}")
    return JobFileError(
        f"{what} needs hops-deltalake, which replaces deltalake: pip uninstall "
        f"deltalake, then {install}"
    )


def _other_port(url: str) -> bool:
    try:
        return urlsplit(url).port not in (None, HOPS_PORT)
    except ValueError:  # the port is no number
        return True


@cache
def _is_installed(name: str) -> bool:
    """Return whether a distribution is installed, as pip records it.

    ``importlib.metadata`` says the same, but loading it takes 2 % of a job of 1,000 rows.
    """
    record = f"{name.replace('-', '_')}-*.dist-info"
    return any(any(Path(folder).glob(record)) for folder in sys.path)


def _invalid(key: str, what: str) -> JobFileError:
    return JobFileError(f"storage.{key}: {what}")


def _shown(value: str) -> str:
    return repr(value) if value else "none"
