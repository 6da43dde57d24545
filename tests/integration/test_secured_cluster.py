"""A standing cluster that encrypts, and knows its callers by certificates and tokens."""

from __future__ import annotations

import signal
import ssl
import stat
import threading
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import grpc
import pyarrow as pa
import pytest
import tomlkit
from deltalake import DeltaTable
from msgspec.structs import replace

import mrflight
from mrflight.config.identity import Identity
from mrflight.errors import (
    AccessDeniedError,
    EventLogNotFoundError,
    ServerUnavailableError,
    ShuffleNotFoundError,
)
from mrflight.ids import MapAttempt, ShuffleKey, new_token
from mrflight.security.authority import issue, new_authority
from mrflight.security.job_tokens import write_private
from mrflight.shuffle.client.append_stream import AppendStream
from mrflight.shuffle.client.block_sender import BlockSender
from mrflight.shuffle.client.reader import read_partition
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.block import encode_block, ipc_options
from mrflight.shuffle.wire.calls import notify
from mrflight.shuffle.wire.log_protocol import AppendTag
from mrflight.shuffle.wire.protocol import DataAction, DiscardAttempt, ShuffleName
from mrflight.system.deadlines import Timeouts
from tests.support.clusters.cluster import server_process
from tests.support.clusters.random_callers import CALLERS, TENANTS, RandomCallers
from tests.support.clusters.secured_cluster import Secured, secured_cluster
from tests.support.commands.mrflight import mrflight as run
from tests.support.commands.open_ports import METHODS, NOT_THERE, REFUSED, SERVICE, call, tcp_ports
from tests.support.jobs.clicks_job import JOB, VISITS, WEIGH, as_read, expected_clicks, write_visits
from tests.support.suite.soak import seed
from tests.support.suite.waiting import await_that, hang_s

ROWS = pa.record_batch({"k": pa.array(range(1000)), "v": pa.array(range(1000))})


def shuffle_of_job(secured: Secured, name: str) -> Shuffle:
    """Create a shuffle with rows, as the job."""
    with secured.connect("job") as cluster:
        shuffle = cluster.create_shuffle(name, partitions=2)
        with shuffle.writer(0, key=["k"]) as out:
            out.write(ROWS)
    return shuffle


@pytest.fixture(
    scope="module", params=["certificates", pytest.param("tokens", marks=pytest.mark.slow)]
)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("secured"), request.param) as started:
        yield started


@pytest.mark.usefixtures("patient_drops")
def test_a_job_runs_over_it(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "clicks.py").write_text(WEIGH)
    write_visits(tmp_path / "visits", "csv")
    caller = secured.callers["job"]
    own = {"certificate": caller.certificate, "key": caller.key} if caller.key else {}
    section = {"metadata": secured.metadata, "tls": {"ca": caller.ca, **own}, "workers": 2}
    section |= {"token": caller.token} if caller.token else {}
    document = tomllib.loads(JOB) | {"cluster": section}
    (tmp_path / "job.toml").write_text(tomlkit.dumps(document))
    assert mrflight.run(tmp_path / "job.toml", progress=False).rows_in == VISITS.num_rows
    found = DeltaTable(tmp_path / "out" / "clicks").to_pyarrow_table()
    expected = expected_clicks(as_read("csv"))
    assert found.select(expected.column_names).sort_by("url") == expected.sort_by("url")
    with secured.connect("admin") as client:
        assert client.status().shuffles == []


def test_who_may_do_what(secured: Secured) -> None:
    shuffle = shuffle_of_job(secured, "roles")
    with secured.connect("reader") as client:
        found = client.open_shuffle("roles", shuffle.token)
        rows = [batch for partition in range(2) for batch in found.reader(partition)]
        assert sorted(pa.Table.from_batches(rows)["k"].to_pylist()) == list(range(1000))
        refused(lambda: found.writer(1, key=["k"]).__enter__().commit(), "reader")
        refused(found.drop, "reader")
        refused(lambda: client.create_shuffle("another", 2), "reader")
    for caller in ("job", "reader"):
        with secured.connect(caller) as client:
            refused(lambda: client._metadata.register_server("grpc+tls://127.0.0.1:1"), caller)
    with secured.connect("admin") as client:
        client.open_shuffle("roles").drop()


def test_without_its_token_nobody_reaches_a_shuffle(secured: Secured) -> None:
    shuffle = shuffle_of_job(secured, "secret")
    for caller in ("job", "reader"):
        with secured.connect(caller) as client:
            refused(lambda: client.open_shuffle("secret"), "token of the shuffle")
            with pytest.raises(ShuffleNotFoundError):
                client.open_shuffle("secret", new_token())
    for token, error in (("", AccessDeniedError), (new_token(), ShuffleNotFoundError)):
        other = replace(shuffle, token=token)
        _, infos = shuffle.layout()
        with other.connections() as connections:
            for info in infos:
                with pytest.raises(error):
                    list(read_partition(other.key, info, connections))
            sender = BlockSender(
                other.id, MapAttempt(1, 0, "w"), shuffle.placement(), connections, token
            )
            with pytest.raises(error):
                put(sender)
            sender.stop()
        for action, request in (
            (DataAction.DROP_SHUFFLE, ShuffleName(other.id, token)),
            (DataAction.DISCARD_ATTEMPT, DiscardAttempt(other.id, 0, 0, "", token)),
        ):
            failed = notify([infos[0].locations[0]], action, request, shuffle.client.identity)
            assert {type(each) for each in failed.values()} <= {error}
        for ask in (other.drop, other.layout, other.health, other.committed_maps):
            with pytest.raises(error):
                ask()
    rows = [batch.num_rows for partition in range(2) for batch in shuffle.reader(partition)]
    assert sum(rows) == ROWS.num_rows
    shuffle.drop()


def put(sender: BlockSender) -> None:
    sender.send(0, encode_block([ROWS], ipc_options("none")))
    sender.finish()


def test_every_port_refuses_who_has_no_credentials(secured: Secured) -> None:
    """In the clear and over TLS, whatever is called: the ports are those that the system knows."""
    ports = tcp_ports(secured.processes)
    assert len(ports) == 3
    trusted = grpc.ssl_channel_credentials((secured.folder / "ca.pem").read_bytes())
    wants_certificate = bool(secured.callers["job"].certificate)
    for _, port in ports:
        target = f"127.0.0.1:{port}"
        for name, kind in METHODS.items():
            path = f"/{SERVICE}/{name}"
            assert call(target, path, kind) is grpc.StatusCode.UNAVAILABLE
            over_tls = call(target, path, kind, secured_by=trusted)
            if wants_certificate:
                assert over_tls is grpc.StatusCode.UNAVAILABLE
            else:
                assert over_tls in REFUSED | NOT_THERE


def test_nobody_else_is_let_in(secured: Secured) -> None:
    once = Timeouts(call_s=hang_s(), reconnect_s=0.0)
    for caller in ("nobody", "stranger"):
        with (
            mrflight.connect(secured.metadata, once, identity=secured.callers[caller]) as client,
            pytest.raises((AccessDeniedError, ServerUnavailableError)),
        ):
            client.status()
    plain = secured.metadata.replace("grpc+tls", "grpc+tcp")
    with (
        mrflight.connect(plain, once) as client,
        pytest.raises(ServerUnavailableError, match=r"grpc\+tls"),
    ):
        client.status()


def test_a_command_says_in_one_line_why_it_trusts_no_server(secured: Secured) -> None:
    """Without the lines that gRPC would write of each handshake."""
    (secured.folder / "other.pem").write_bytes(new_authority("other", 1).certificate_pem)
    done = run("status", secured.metadata, "--tls-ca", secured.folder / "other.pem")
    assert done.returncode == 1
    assert "give the certificate of its authority" in done.stderr
    assert done.stderr.count("\n") == 1


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(AccessDeniedError, match=words):
        call()


@pytest.mark.slow
def test_certificates_change_under_load(tmp_path: Path) -> None:
    """No call of our own clients fails, and puts have their rows once."""
    authority = new_authority("test", 1)
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem)

    def renew(name: str) -> None:
        issued = issue(authority, name, ["127.0.0.1"], days=1)
        for kind, content in (("key", issued.key_pem), ("pem", issued.certificate_pem)):
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").rename(tmp_path / f"{name}.{kind}")

    for name in ("servers", "job"):
        renew(name)
    files = [str(tmp_path / each) for each in ("ca.pem", "servers.pem", "servers.key")]
    options = ["--tls-ca", files[0], "--tls-certificate", files[1], "--tls-key", files[2]]
    options += ["--verify-client", "--port", "0"]
    job = Identity(files[0], str(tmp_path / "job.pem"), str(tmp_path / "job.key"))
    ended = threading.Event()
    written: list[int] = []

    def shuffle_again(number: int) -> None:
        with mrflight.connect(metadata, identity=job) as client:
            while not ended.is_set():
                shuffle = client.create_shuffle(f"s{number}-{len(written)}", 4)
                with shuffle.writer(0, key=["k"]) as out:
                    out.write(ROWS)
                rows = [batch.num_rows for part in range(4) for batch in shuffle.reader(part)]
                assert sum(rows) == ROWS.num_rows
                shuffle.drop()
                written.append(number)

    with ExitStack() as stack:
        process, line = stack.enter_context(server_process("metadata", *options))
        metadata = line.split()[-1]
        servers = [process]
        for _ in range(2):
            each, _ = stack.enter_context(server_process("data", "--metadata", metadata, *options))
            servers.append(each)
        threads = stack.enter_context(ThreadPoolExecutor(4))
        stack.callback(ended.set)
        running = [threads.submit(shuffle_again, number) for number in range(4)]
        for _ in range(5):
            renew("servers")
            renew("job")
            for each in servers:
                each.send_signal(signal.SIGHUP)
            await_that(
                lambda: served(metadata) == (tmp_path / "servers.pem").read_text(),
                "new certificates",
            )
            enough = len(written) + 2 * len(running)  # shuffles that begin after that
            await_that(
                lambda enough=enough: len(written) >= enough or any(x.done() for x in running),
                "shuffles with them",
            )
            assert not any(each.done() for each in running), [
                x.result() for x in running if x.done()
            ]
        ended.set()
        for each in running:
            each.result()


def served(location: str) -> str:
    """Return the certificate with which a server answers now; nothing while it changes that."""
    host, _, port = location.rpartition("/")[2].partition(":")
    with suppress(OSError):
        return ssl.get_server_certificate((host, int(port)))
    return ""


@pytest.mark.slow
def test_a_certificate_that_ends_soon_is_warned_of(tmp_path: Path) -> None:
    authority = new_authority("test", 60)
    warned = {}
    for days in (13, 20):
        issued = issue(authority, "server", ["127.0.0.1"], days=days)
        paths = {
            "pem": issued.certificate_pem,
            "key": issued.key_pem,
            "ca": authority.certificate_pem,
        }
        for kind, content in paths.items():
            (tmp_path / kind).write_bytes(content)
        options = ["--tls-certificate", "pem", "--tls-key", "key", "--tls-ca", "ca"]
        options = [str(tmp_path / each) if each in paths else each for each in options]
        log = tmp_path / f"{days}.log"
        with (
            log.open("wb") as stderr,
            server_process(
                "metadata", *options, "--verify-client", "--port", "0", stderr=stderr
            ) as (_, line),
        ):
            assert "grpc+tls://" in line
            if days == 13:
                await_that(lambda log=log: "ends on" in log.read_text(), "a warning")  # type: ignore[misc]
        warned[days] = "ends on" in log.read_text()
    assert warned == {13: True, 20: False}


@pytest.mark.slow
def test_a_handle_of_an_event_log_allows_what_it_was_made_for(secured: Secured) -> None:
    deeds: dict[str, Callable[[mrflight.Cluster, str], object]] = {
        "append": lambda client, log: client.append(log, ROWS),
        "read": lambda client, log: list(client.read_log(log)),
        "trim": lambda client, log: client.trim(log, 0),
        "pin": lambda client, log: client._logs().pin(ShuffleKey.parse(log), 0, 1.0),
        "state": lambda client, log: client.log_state(log),
        "drop": lambda client, log: client.drop_log(log),
    }
    allowed = {
        "read": {"read", "pin", "state"},
        "append": {"append", "state"},
        "drop": {"trim", "drop"},
    }
    with secured.connect("job") as client:
        made = client.create_log("shared", replicas=2)
        client.append(str(made.key), ROWS)
        for right, deed in ((right, deed) for right in allowed for deed in deeds):
            handle = made.handle(right)
            if deed in allowed[right] and deed != "drop":
                deeds[deed](client, handle)
            elif deed not in allowed[right]:
                refused(lambda deed=deed, log=handle: deeds[deed](client, log), "this call needs")
        assert client.log_state(str(made.key)).high == 2 * ROWS.num_rows
        stolen = f"shared:{made.id.removeprefix('id-')}"  # what everybody may know
        for deed in deeds.values():
            with pytest.raises(EventLogNotFoundError):
                deed(client, stolen)
        (folder, other) = secured.folder.glob("logs*/shared:*")
        assert {folder.name, other.name} == {str(made.log)}
        for each in (folder, folder.parent, other, other.parent):
            assert stat.S_IMODE(each.stat().st_mode) == 0o700
        client.drop_log(made.handle("drop"))
    assert not list(secured.folder.glob("logs*/shared*"))


@pytest.mark.slow
def test_a_log_is_named_without_its_token_by_who_has_a_handle(secured: Secured) -> None:
    with secured.connect("job") as client:
        made = client.create_log("named")
    file = secured.folder / "named.handle"
    write_private(file, str(made.key))
    for handle in (str(made.key), f"file:{file}"):
        with secured.connect("job", handle) as client:
            client.append("named", ROWS)
            assert client.log_state("named").high % ROWS.num_rows == 0
    with secured.connect("reader", made.handle("read")) as client:
        assert sum(part.rows.num_rows for part in client.read_log("named")) == 2 * ROWS.num_rows
    with secured.connect("job", f"file:{file}") as client:
        client.drop_log("named")


@pytest.mark.slow
def test_event_logs_have_roles_and_a_token(secured: Secured) -> None:
    with secured.connect("job") as client:
        key = str(client.create_log("secret", replicas=2).key)
        assert client.append(key, ROWS).stop == ROWS.num_rows
        refused(lambda: client.append("secret", ROWS), "token of the shuffle")
        refused(lambda: client.log_state("secret"), "token of the shuffle")
        with pytest.raises(EventLogNotFoundError):
            client.append(f"secret:{new_token()}", ROWS)
    with secured.connect("reader") as client:
        assert sum(part.rows.num_rows for part in client.read_log(key)) == ROWS.num_rows
        for deed in (client.drop_log, client.create_log, lambda log: client.trim(log, 1)):
            refused(partial(deed, key), "reader")
        refused(lambda: client.append(key, ROWS), "reader")
    with secured.connect("job") as client:
        assert client.log_state(key).high == ROWS.num_rows
        client.drop_log(key)
    assert not list(secured.folder.glob("logs*/secret*"))


def test_who_appends_to_a_stream_that_was_refused_is_told_why(secured: Secured) -> None:
    """And not that the stream has ended, which would be tried again."""
    with secured.connect("job") as client:
        made = client.create_log("refused")
    with secured.connect("reader") as client:
        ended: SimpleQueue[object] = SimpleQueue()
        stream = AppendStream(
            made.key,
            made.owner_location,
            ROWS.schema,
            client.access.client,
            lambda _, end: ended.put(end),
        )
        assert isinstance(ended.get(timeout=hang_s()), AccessDeniedError)
        refused(lambda: stream.send(ROWS, AppendTag("p", 0)), "reader")
    with secured.connect("job", str(made.key)) as client:
        client.drop_log("refused")


SAMPLE, SOAKED, STEPS = 5, 300, 40


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, mrflight.Cluster]]:
    """The clients of two tenants, a reader and a stranger."""
    once = Timeouts(call_s=hang_s(), reconnect_s=0.0)
    folder = tmp_path_factory.mktemp("tenants")
    with secured_cluster(folder, "tokens", *TENANTS) as started, ExitStack() as stack:
        yield {
            name: stack.enter_context(
                mrflight.connect(started.metadata, once, identity=started.callers[name])
            )
            for name in CALLERS
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        *range(SAMPLE),
        *(pytest.param(number, marks=pytest.mark.soak) for number in range(SAMPLE, SOAKED)),
    ],
)
def test_random_calls_are_allowed_to_who_has_the_right(
    number: int, callers: dict[str, mrflight.Cluster]
) -> None:
    of = SOAKED * seed() + number
    calls = RandomCallers(callers, of)
    try:
        for _ in range(STEPS):
            calls.step()
        calls.end()
    except BaseException as error:
        error.add_note("\n".join([f"seed {of}", *calls.steps]))
        raise
