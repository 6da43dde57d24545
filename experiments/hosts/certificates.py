"""The certificates of a cluster's servers and callers, and who may do what."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path

from experiments.hosts.host import RunningHost
from mrflight.security.authority import Authority, issue, new_authority

FOLDER = "/tmp/tls"
"""Where each host has its own certificates, and no others."""
JOB, OPERATOR, NODE = "job", "operator", "node"
_DAYS = 1.0
_ACCESS = """
[[principals]]
name = "server-*"
roles = ["server"]
[[principals]]
name = "job"
roles = ["job"]
[[principals]]
name = "operator"
roles = ["admin"]
"""


class CertificateFolders:
    """Writes certificates into the folders of the hosts that need them."""

    def __init__(self) -> None:
        self._authority: Authority = new_authority("hosts", _DAYS)

    def give_server(self, running: RunningHost, address: IPv4Address) -> list[str]:
        """Give a host the certificate of a server, and return the server's options."""
        name = f"server-{str(address).replace('.', '-')}"
        folder = self._give(running, name, [str(address)])
        access = folder / "access.toml"
        access.touch(mode=0o600)
        access.write_text(_ACCESS)
        return [*files(name), "--verify-client", "--access", f"{FOLDER}/access.toml"]

    def give_caller(self, running: RunningHost, name: str) -> list[str]:
        """Give a host the certificate of a caller, and return the options of a command."""
        self._give(running, name, [])
        return files(name)

    def give_node(self, running: RunningHost) -> Mapping[str, str]:
        """Give a host the certificate of a node of Ray, and return the environment of the node."""
        self._give(running, NODE, [str(running.host.address), "127.0.0.1"])
        return {
            "RAY_USE_TLS": "1",
            "RAY_TLS_SERVER_CERT": paths(NODE)["certificate"],
            "RAY_TLS_SERVER_KEY": paths(NODE)["key"],
            "RAY_TLS_CA_CERT": paths(NODE)["ca"],
        }

    def _give(self, running: RunningHost, name: str, addresses: list[str]) -> Path:
        folder = running.path(FOLDER)
        folder.mkdir(mode=0o700, exist_ok=True)
        issued = issue(self._authority, name, addresses, days=_DAYS)
        (folder / "ca.pem").write_bytes(self._authority.certificate_pem)
        (folder / f"{name}.pem").write_bytes(issued.certificate_pem)
        key = folder / f"{name}.key"
        key.touch(mode=0o600)
        key.write_bytes(issued.key_pem)
        return folder


def files(name: str) -> list[str]:
    """Return the options that name the files of a certificate."""
    return [f"--tls-{what}={path}" for what, path in paths(name).items()]


def settings(name: str) -> list[str]:
    """Return the settings of a job that calls by this name."""
    return [f"cluster.tls.{what}={path}" for what, path in paths(name).items()]


def paths(name: str) -> Mapping[str, str]:
    return {
        "ca": f"{FOLDER}/ca.pem",
        "certificate": f"{FOLDER}/{name}.pem",
        "key": f"{FOLDER}/{name}.key",
    }
