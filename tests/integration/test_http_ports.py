"""The HTTP ports of servers: health, and metrics that Prometheus's own tool has no objection to."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect

import mrflight
from mrflight.security.authority import Authority, issue, new_authority
from mrflight.security.hashed_tokens import access_entry
from mrflight.security.principal import Role
from tests.support.clusters.cluster import server_process
from tests.support.clusters.numbered_rows import batch
from tests.support.commands.browser import browser_page, figures, kib, launched_browser, table
from tests.support.commands.http import get, received, send
from tests.support.commands.mrflight import mrflight as run
from tests.support.suite.waiting import await_that, hang_s

TOKEN = "planted-token-of-the-http-port"
DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "mrflight.json"
LABELS = {"version"}
"""Those that a metric may have: none names a job, a user, a query or a shuffle."""


class Port:
    """The HTTP port of a server, and the token of it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def metrics(self) -> str:
        answer = get(self.number, "/metrics", TOKEN)
        assert answer.status == 200
        return answer.body.decode()

    def value(self, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.metrics(), re.MULTILINE)
        assert found is not None, name
        return float(found[1])


@contextmanager
def serving(
    log: Path, module: str, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str, Port]]:
    """A server with an HTTP port: its process, its location, and the port."""
    token = log.with_suffix(".token")
    token.write_text(TOKEN + "\n")
    with_port = ("--port", "0", "--http-port", "0", "--http-token", f"file:{token}")
    with (
        log.open("wb") as stderr,
        server_process(module, *options, *with_port, stderr=stderr) as (
            process,
            ready,
        ),
    ):
        found = re.search(r"health at https?://127\.0\.0\.1:(\d+)", log.read_text())
        assert found is not None, log.read_text()
        yield process, ready.split()[-1], Port(int(found[1]))
    assert TOKEN not in log.read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Port, Port]]:
    """A metadata server's location, its port, and that of the data server."""
    folder = tmp_path_factory.mktemp("logs")
    with ExitStack() as stack:
        metadata = serving(folder / "metadata.log", "metadata")
        _, location, of_metadata = stack.enter_context(metadata)
        options = ("--metadata", location, "--memory", "64 KiB", "--spill-dir", str(folder))
        _, _, of_data = stack.enter_context(serving(folder / "data.log", "data", *options))
        yield location, of_metadata, of_data


def test_health_is_told_without_a_token_and_nothing_else(cluster: tuple[str, Port, Port]) -> None:
    for port in cluster[1:]:
        assert get(port.number, "/healthz").body == b"ok\n"
        assert get(port.number, "/readyz").body == b"ready\n"
        assert get(port.number, "/metrics").status == 401
        assert get(port.number, "/metrics", TOKEN, headers={"Host": "evil.example"}).status == 403


def test_metrics_count_what_was_shuffled(cluster: tuple[str, Port, Port]) -> None:
    location, of_metadata, of_data = cluster
    before = of_metadata.value("mrflight_metadata_maps_committed_total")
    put_before = of_data.value("mrflight_data_put_bytes_total")
    with mrflight.connect(location) as connected:
        shuffle = connected.create_shuffle("counted", partitions=4)
        for map_id in range(3):
            with shuffle.writer(map_id=map_id, key=["url"]) as out:
                for start in range(0, 20_000, 1_000):
                    out.write(batch(start))
        committed = of_metadata.value("mrflight_metadata_committed_bytes")
        assert of_metadata.value("mrflight_metadata_rows") == 60_000
        assert of_metadata.value("mrflight_metadata_maps_committed_total") == before + 3
        assert of_metadata.value("mrflight_metadata_data_servers") == 1
        assert of_data.value("mrflight_data_put_bytes_total") == put_before + committed
        assert of_data.value("mrflight_data_stored_bytes") == committed
        assert of_data.value("mrflight_data_memory_budget_bytes") == 64 * 2**10
        await_that(
            lambda: of_data.value("mrflight_data_spilled_bytes_total") > 0, "blocks to be spilled"
        )
        read_before = of_data.value("mrflight_data_read_bytes_total")
        rows = sum(piece.num_rows for part in range(4) for piece in shuffle.reader(part))
        assert rows == 60_000
        assert of_data.value("mrflight_data_read_bytes_total") == read_before + committed
        shuffle.drop()
    assert of_data.value("mrflight_data_stored_bytes") == 0
    assert of_metadata.value("mrflight_metadata_shuffles") == 0


@pytest.mark.smoke
def test_prometheus_has_no_objection_to_the_metrics(
    cluster: tuple[str, Port, Port], promtool: str
) -> None:
    for port in cluster[1:]:
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=port.metrics(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_metrics_have_our_prefix_and_no_label_without_bounds(
    cluster: tuple[str, Port, Port],
) -> None:
    for port in cluster[1:]:
        samples = [line for line in port.metrics().splitlines() if not line.startswith("#")]
        assert {line.partition("_")[0] for line in samples} == {"mrflight", "process"}
        labels = {name for line in samples for name in re.findall(r'(\w+)="', line)}
        assert labels <= LABELS


def test_the_dashboard_asks_for_metrics_that_there_are(cluster: tuple[str, Port, Port]) -> None:
    known = "".join(port.metrics() for port in cluster[1:])
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    names = {name for expression in asked for name in re.findall(r"mrflight_\w+", expression)}
    assert len(names) > 10
    assert {name for name in names if not re.search(rf"^{name}[ {{]", known, re.MULTILINE)} == set()


@pytest.mark.slow
def test_a_data_server_is_not_ready_without_its_metadata_server(tmp_path: Path) -> None:
    with ExitStack() as stack:
        metadata, location, _ = stack.enter_context(serving(tmp_path / "m.log", "metadata"))
        options = ("--metadata", location)
        _, _, port = stack.enter_context(serving(tmp_path / "d.log", "data", *options))
        assert get(port.number, "/readyz").status == 200
        metadata.kill()
        await_that(lambda: get(port.number, "/readyz").status == 503, "the data server to notice")
        assert get(port.number, "/readyz").body.startswith(b"not ready: the metadata server ")
        assert get(port.number, "/healthz").status == 200
        assert port.value("mrflight_data_member") == 0


@pytest.mark.slow
@dataclass(frozen=True)
class Certificates:
    """The files of a server, which are replaced by those of another certificate."""

    folder: Path
    authority: Authority

    def replace(self, days: int) -> None:
        issued = issue(self.authority, "server", ["metadata.test"], days=days)
        for name, pem in (("own.pem", issued.certificate_pem), ("own.key", issued.key_pem)):
            (self.folder / "new").write_bytes(pem)
            (self.folder / "new").rename(self.folder / name)

    @property
    def options(self) -> list[str]:
        (self.folder / "ca.pem").write_bytes(self.authority.certificate_pem)
        files = {"ca": "ca.pem", "certificate": "own.pem", "key": "own.key"}
        return [x for kind, name in files.items() for x in (f"--tls-{kind}", self.folder / name)]

    def shown_at(self, port: int) -> float:
        """When the certificate ends that the port shows to a client that believes the authority."""
        context = ssl.create_default_context(cadata=self.authority.certificate_pem.decode())
        with (
            socket.create_connection(("127.0.0.1", port), hang_s()) as plain,
            context.wrap_socket(plain, server_hostname="metadata.test") as encrypted,
        ):
            shown = encrypted.getpeercert()
            encrypted.sendall(b"GET /healthz HTTP/1.1\r\nHost: metadata.test:8005\r\n\r\n")
            assert received(encrypted).endswith(b"ok\n")
        assert shown is not None
        return ssl.cert_time_to_seconds(str(shown["notAfter"]))


def test_the_port_of_a_server_with_a_certificate_is_encrypted(tmp_path: Path) -> None:
    """By the host of --advertise, and with the certificate that is in the file now."""
    certificates = Certificates(tmp_path, new_authority("trial", days=30))
    certificates.replace(days=1)
    options = [*map(str, certificates.options), "--verify-client"]
    options += ["--advertise", "grpc+tls://metadata.test:5005"]
    with serving(tmp_path / "m.log", "metadata", *options) as (_, _, port):
        before = certificates.shown_at(port.number)
        assert send(port.number, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        certificates.replace(days=2)
        assert certificates.shown_at(port.number) == pytest.approx(before + 86400, abs=3600)
        (tmp_path / "own.pem").write_bytes(b"half of a new one")
        assert certificates.shown_at(port.number) == pytest.approx(before + 86400, abs=3600)


def test_readers_of_the_access_file_are_let_in_by_their_tokens(tmp_path: Path) -> None:
    access, log = tmp_path / "access.toml", tmp_path / "log"
    access.touch(0o600)
    readers, servers = "planted-token-of-readers", "planted-token-of-servers"
    access.write_text(
        access_entry("monitor", [Role.READER], readers)
        + access_entry("data-1", [Role.SERVER], servers)
    )
    options = ("--port", "0", "--http-port", "0", "--access", str(access))
    with log.open("wb") as stderr, server_process("metadata", *options, stderr=stderr):
        found = re.search(r"health at http://127\.0\.0\.1:(\d+)", log.read_text())
        assert found is not None, log.read_text()
        for path in ("/metrics", "/events"):
            for token in (None, TOKEN, servers):
                assert get(int(found[1]), path, token).status == 401
        assert get(int(found[1]), "/metrics", readers).status == 200
    assert readers not in log.read_text()
    assert servers not in log.read_text()


def test_a_page_shows_the_servers_and_shuffles_of_a_cluster(chromium: str, tmp_path: Path) -> None:
    with (
        ExitStack() as stack,
        launched_browser(chromium) as launched,
        browser_page(launched) as browser,
    ):
        _, location, port = stack.enter_context(serving(tmp_path / "m.log", "metadata"))
        options = ("--metadata", location, "--spill-dir", str(tmp_path))
        lost, _, _ = stack.enter_context(serving(tmp_path / "1.log", "data", *options))
        stack.enter_context(serving(tmp_path / "2.log", "data", *options))
        browser.goto(f"http://127.0.0.1:{port.number}/#{TOKEN}")
        expect(browser.locator("#state")).to_have_text("running")
        with mrflight.connect(location) as connected:
            shuffle = connected.create_shuffle("seen", partitions=4)
            with shuffle.writer(map_id=0, key=["url"]) as out:
                out.write(batch(0))
            expect(browser.locator(".figure b").nth(3)).to_have_text("1,000")
            expect(browser.locator("#partitions-note")).to_contain_text("4 partitions")
            size = port.value("mrflight_metadata_committed_bytes")
            shown = figures(browser)
            assert (shown["Data servers"], shown["Shuffles"]) == ("2", "1")
            assert shown["Bytes held"] == kib(size)
            assert len(table(browser, "#processes")) == 2
            lost.terminate()  # and it gives its partitions to the other one
            expect(browser.locator(".figure b").nth(0)).to_have_text("1")
            expect(browser.locator("#incidents")).to_contain_text("is about to stop")
            shuffle.drop()
            expect(browser.locator(".figure b").nth(1)).to_have_text("0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--http-port", "0"], "--http-port needs --http-token"),
        (["--http-port", "0", "--http-token", TOKEN], "not the token itself"),
        (["--http-port", "0", "--http-token", "env:NOT_THERE"], "no variable NOT_THERE"),
        (["--http-port", "99999", "--http-token", "env:HOME"], "cannot listen"),
    ],
)
def test_a_wrong_http_port_is_refused_with_the_reason(options: list[str], message: str) -> None:
    done = run("--port", "0", *options, module="mrflight.servers.metadata")
    assert done.returncode == 2
    assert message in done.stderr
    assert TOKEN not in done.stderr


@pytest.mark.slow
def test_appends_to_event_logs_are_counted(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "metadata.log", "metadata") as (_, metadata, _),
        serving(
            tmp_path / "data.log", "data", "--metadata", metadata, "--log-dir", str(tmp_path / "d")
        ) as (_, _, port),
        mrflight.connect(metadata) as client,
    ):
        client.create_log("counted")
        for number in range(5):
            client.append("counted", batch(number))
        rows = client.log_state("counted").high
        totals = ("appends", "rows", "syncs")
        assert [port.value(f"mrflight_log_{each}_total") for each in totals] == [5, rows, 5]
        size_bytes = sum(each.stat().st_size for each in (tmp_path / "d").glob("counted*/*"))
        assert port.value("mrflight_log_stored_bytes") == size_bytes
