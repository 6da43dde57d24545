"""A standing cluster that encrypts, and knows its callers by certificates or tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

import mrflight
from mrflight.config.identity import Identity
from mrflight.security.authority import issue, new_authority
from mrflight.security.hashed_tokens import access_entry, new_bearer_token
from mrflight.security.job_tokens import write_private
from mrflight.security.principal import Role
from tests.support.clusters.cluster import server_process


@dataclass(frozen=True)
class Secured:
    """A cluster, and the identities of its callers by their names."""

    metadata: str
    folder: Path
    callers: dict[str, Identity]
    processes: list[psutil.Process]

    def connect(self, caller: str, *logs: str) -> mrflight.Cluster:
        """Return a client, which has handles of these event logs."""
        return mrflight.connect(self.metadata, identity=self.callers[caller], logs=logs)

    def section(self, caller: str) -> str:
        """The lines of a job's section [cluster] that say who it is, and the section behind it."""
        identity = self.callers[caller]
        lines = [f'metadata = "{self.metadata}"']
        lines += [f'token = "{identity.token}"'] if identity.token else []
        lines += ["[cluster.tls]", f'ca = "{identity.ca}"']
        if identity.certificate:
            lines += [f'certificate = "{identity.certificate}"', f'key = "{identity.key}"']
        return "\n".join(lines)


@contextmanager
def secured_cluster(folder: Path, kind: str, *tenants: str) -> Iterator[Secured]:
    """Two data servers that keep logs; ``kind`` is ``certificates`` or ``tokens``.

    The callers are one of each role, a stranger whom the servers do not know, and ``tenants``, who
    have the role of a job.
    """
    authority = new_authority("test", 1)
    (folder / "ca.pem").write_bytes(authority.certificate_pem)
    entries = []
    callers = {"nobody": Identity(str(folder / "ca.pem"))}
    roles = {**{role.value: role for role in Role}, **dict.fromkeys(tenants, Role.JOB)}
    for name in (*roles, "stranger"):
        issued = issue(authority, name, ["127.0.0.1"], days=1)
        (folder / f"{name}.pem").write_bytes(issued.certificate_pem)
        write_private(folder / f"{name}.key", issued.key_pem.decode())
        token = new_bearer_token()
        write_private(folder / f"{name}.token", token)
        files = [str(folder / f"{name}.{kind}") for kind in ("pem", "key")]
        if kind == "certificates":
            entry = f'[[principals]]\nname = "{name}"\nroles = ["{roles.get(name)}"]\n'
            callers[name] = Identity(str(folder / "ca.pem"), *files)
        else:
            entry = access_entry(name, [roles[name]] if name in roles else [], token)
            callers[name] = Identity(
                str(folder / "ca.pem"), token=f"file:{folder / f'{name}.token'}"
            )
        entries += [] if name == "stranger" else [entry]
    write_private(folder / "access.toml", "\n".join(entries))
    options = ["--tls-ca", "ca.pem", "--tls-certificate", "server.pem", "--tls-key", "server.key"]
    options = [str(folder / each) if "." in each else each for each in options]
    options += ["--access", str(folder / "access.toml"), "--port", "0"]
    options += ["--verify-client"] if kind == "certificates" else []
    options += [] if kind == "certificates" else ["--token", callers["server"].token]
    with ExitStack() as stack:
        started, line = stack.enter_context(server_process("metadata", *options))
        processes = [psutil.Process(started.pid)]
        metadata = line.split()[-1]
        for number in range(2):
            logs = ("--log-dir", str(folder / f"logs{number}"))
            started, line = stack.enter_context(
                server_process("data", "--metadata", metadata, *logs, *options)
            )
            processes.append(psutil.Process(started.pid))
            assert line.split()[-1].startswith("grpc+tls://")
        yield Secured(metadata, folder, callers, processes)
