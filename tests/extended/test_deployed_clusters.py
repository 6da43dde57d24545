"""The clusters of deploy/ run a job over TLS: that of Compose, and that of Kubernetes.

Their very commands are run, each with a loopback address and the name of its host. Only paths and
the address to listen on are others, as there are no containers.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.clusters.deployed import composed, pod_arguments
from tests.support.commands.named_hosts import NamedHosts, needs_root
from tests.support.suite.waiting import await_end

DEPLOY_PAGE = Path(__file__).parents[2] / "docs/how-to/deploy.md"
SERVICES = composed()
SERVERS = ["metadata", "data-1", "data-2"]
PODS = ["mrflight-metadata", *(f"mrflight-data-{n}.mrflight-data.mrflight.svc" for n in (0, 1))]

JOB = """
[job]
name = "clicks"

[inputs.visits]
path = "visits.csv"
key = ["url"]

[shuffle]
partitions = 8

[reduce]
group_by = ["url"]
aggregate = {{ n = "sum(n)" }}

[output]
table = "out"
format = "parquet"

[cluster]
metadata = "{metadata}"
workers = 2

[cluster.tls]
ca = "{ca}"
certificate = "{certificate}"
key = "{key}"
"""

pytestmark = needs_root


def placed(words: Iterable[str], places: dict[str, str]) -> list[str]:
    """Return words with the paths and the address that they have here."""
    found = list(words)
    for old, new in places.items():
        found = [word.replace(old, new) for word in found]
    return found


def places_of(hosts: NamedHosts, service: str) -> dict[str, str]:
    """Return where the files of a service of Compose are here, and its address."""
    places = {
        "/tls/": f"{hosts.folder}/tls/{service}/",
        "/var/lib/mrflight": f"{hosts.folder}/state/{service}",
    }
    address = hosts.address(service) if service in hosts.names else ""
    return places | {"0.0.0.0": address, "socket.gethostname()": repr(service)}


def words_of(service: str) -> list[str]:
    return shlex.split(SERVICES[service]["command"])


@pytest.fixture
def compose(tmp_path: Path) -> NamedHosts:
    """The hosts of Compose, with the certificates that its first service makes."""
    for name in ("authority", *SERVERS, "client"):
        (tmp_path / "tls" / name).mkdir(parents=True)
        (tmp_path / "state" / name / "journal").mkdir(parents=True)
    hosts = NamedHosts(tmp_path, SERVERS)
    (script,) = SERVICES["certificates"]["command"]
    script = script.replace("$$", "$").replace("/tls", str(tmp_path / "tls"))
    for _ in range(2):  # the second time there is nothing to do
        done = hosts.run("sh", "-euc", script)
        assert done.returncode == 0, done.stdout
    return hosts


def started(
    stack: ExitStack, hosts: NamedHosts, commands: Sequence[Sequence[str]]
) -> list[tuple[subprocess.Popen[str], str]]:
    """Start servers, each when those before it are ready; return them with their locations."""
    return [stack.enter_context(hosts.serving(*command)) for command in commands]


def check_job(hosts: NamedHosts, **settings: str) -> None:
    """Run a job on the cluster, and check its result."""
    (hosts.folder / "job.toml").write_text(JOB.format(**settings))
    lines = "".join(f"{number % 7},1\n" for number in range(700))
    (hosts.folder / "visits.csv").write_text(f"url,n\n{lines}")
    done = hosts.run("mrflight", "run", "job.toml")
    assert done.returncode == 0, done.stdout
    assert pq.read_table(hosts.folder / "out").column("n").to_pylist() == [100] * 7


def stop(servers: list[tuple[subprocess.Popen[str], str]]) -> None:
    for process, _ in reversed(servers):
        process.send_signal(signal.SIGTERM)
        assert await_end(process, "the server") == 0


def test_the_cluster_of_compose_runs_a_job(compose: NamedHosts) -> None:
    commands = [placed(words_of(name), places_of(compose, name)) for name in SERVERS]
    with ExitStack() as stack:
        servers = started(stack, compose, commands)
        assert [location for _, location in servers] == [
            "grpc+tls://metadata:5005",
            *(f"grpc+tls://data-{number}:5006" for number in (1, 2)),
        ]
        own = {"ca": "ca.pem", "certificate": "own.pem", "key": "own.key"}
        files = {kind: f"tls/client/{name}" for kind, name in own.items()}
        check_job(compose, metadata="grpc+tls://metadata:5005", **files)
        check_health(compose)
        check_callers(compose)
        stop(servers)


def check_health(hosts: NamedHosts) -> None:
    """The checks of Compose find the servers healthy, over TLS."""
    for name in SERVERS:
        (kind, *check) = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        healthy = hosts.run(*placed(check, places_of(hosts, name)))
        assert healthy.returncode == 0, healthy.stdout


def check_callers(hosts: NamedHosts) -> None:
    """The client of Compose is answered; without its certificate, or an authority, it is not."""
    words = placed(words_of("client"), places_of(hosts, "client"))
    assert "2 data servers" in hosts.run("mrflight", *words).stdout
    without_certificate = words[: words.index("--tls-certificate")]
    for refused in (without_certificate, without_certificate[:2]):
        done = hosts.run("mrflight", *refused)
        assert (done.returncode, "2 data servers" in done.stdout) == (1, False)


def test_the_cluster_of_kubernetes_runs_a_job(tmp_path: Path) -> None:
    """With the certificates and the access file of its page."""
    hosts = NamedHosts(tmp_path, PODS)
    page = DEPLOY_PAGE.read_text()
    for command in re.findall(r"^mrflight certificates .+$", page, re.MULTILINE):
        done = hosts.run("sh", "-c", command)
        assert done.returncode == 0, done.stdout
    (access,) = re.findall(
        r"^with this `access.toml`:\n\n```\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    for name, text in (("access.toml", access), ("http.token", "secret")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    commands = []
    for number, pod in enumerate(PODS):
        kind = "data" if number else "metadata"
        places = {
            "/tls/ca.crt": f"{tmp_path}/certificates/ca.pem",
            "/tls/tls.crt": f"{tmp_path}/certificates/{kind}.pem",
            "/tls/tls.key": f"{tmp_path}/certificates/{kind}.key",
            "/access/": f"{tmp_path}/",
            "/var/lib/mrflight": f"{tmp_path}/{pod}",
            "0.0.0.0": hosts.address(pod),
            "$(POD_NAME)": pod.partition(".")[0],
            "$(POD_NAMESPACE)": "mrflight",
        }
        (tmp_path / pod / "journal").mkdir(parents=True)
        commands.append(placed(pod_arguments(kind), places))
    files = {"ca": "ca.pem", "certificate": "clicks-job.pem", "key": "clicks-job.key"}
    paths = {kind: f"certificates/{name}" for kind, name in files.items()}
    with ExitStack() as stack:
        servers = started(stack, hosts, commands)
        check_job(hosts, metadata=servers[0][1], **paths)
        stop(servers)
