"""No call of anybody unknown reaches a handler, whatever it calls; raw gRPC, as an attacker's."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from mrflight.servers.data import DataServer
from mrflight.servers.guard import MAX_STREAMS, Guard
from mrflight.servers.idle_streams import IdleStreams, StreamRules
from mrflight.servers.listening import Listening
from mrflight.servers.membership import Membership
from mrflight.servers.metadata import Held, MetadataServer
from mrflight.servers.shared_memory import SharedMemory
from mrflight.servers.tails import Tails
from msgspec.structs import replace
from pyarrow import flight

import mrflight
from mrflight.config.identity import ANONYMOUS, ClientOptions, Endpoint, Identity
from mrflight.errors import (
    EventLogExistsError,
    ProtocolError,
    QuotaExceededError,
    ShuffleExistsError,
    TooManyStreamsError,
    UnencryptedServerError,
)
from mrflight.security.access import Access
from mrflight.security.authority import issue, new_authority
from mrflight.security.hashed_tokens import access_entry, new_bearer_token
from mrflight.security.job_tokens import write_private
from mrflight.security.principal import Role
from mrflight.security.quota import Quota
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.store.tail_store import TailStore
from mrflight.shuffle.wire.calls import call as call_action
from mrflight.shuffle.wire.calls import notify
from mrflight.shuffle.wire.cluster_status import Heartbeat
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.log_protocol import LogName
from mrflight.shuffle.wire.protocol import CommitMap, DataAction, Done
from mrflight.shuffle.wire.tail_protocol import OpenTail, TailAction, TailName, TailPositions
from mrflight.system.deadlines import Timeouts
from mrflight.system.limited_log import LimitedWarnings
from mrflight.system.scratch import ScratchFolder
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.commands.open_ports import METHODS, NOT_THERE, REFUSED, SERVICE, call
from tests.support.faults.faulty_run import await_that
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

UNKNOWN = {
    f"/{SERVICE}/DropEverything": "unary_unary",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "stream_stream",
    "/grpc.health.v1.Health/Check": "unary_unary",
}
HANDLERS = (
    *("do_action", "do_get", "do_put", "do_exchange", "get_flight_info", "get_schema"),
    *("list_actions", "list_flights"),
)


def counting(server: type[flight.FlightServerBase], reached: Counter[str]) -> type[Any]:
    """Return the class with handlers that count their calls."""

    def counted(name: str) -> Any:
        handler = getattr(server, name)

        def counted_call(self: Any, *arguments: Any) -> Any:
            reached[name] += 1
            return handler(self, *arguments)

        return counted_call

    return type(f"Counting{server.__name__}", (server,), {name: counted(name) for name in HANDLERS})


class Target:
    """A server that knows one caller, and how often its handlers were called."""

    def __init__(
        self, kind: str, folder: Path, stack: ExitStack, streams: int = MAX_STREAMS
    ) -> None:
        self.reached: Counter[str] = Counter()
        self.token = new_bearer_token()
        write_private(folder / "access.toml", access_entry("all", [*Role], self.token))
        self.guard = Guard(Access(folder / "access.toml"), streams=streams)
        at = Listening("grpc+tcp://127.0.0.1:0", self.guard)
        if kind == "metadata":
            registry = Registry(Clock(), TIMEOUT_S)
            self.server = counting(MetadataServer, self.reached)(at, registry)
        else:
            scratch = stack.enter_context(ScratchFolder("spill", folder))
            store = stack.enter_context(BlockStore(2**20, scratch))
            membership = Membership(store, "grpc+tcp://127.0.0.1:1")
            memory = stack.enter_context(SharedMemory())
            rules = StreamRules(stack.enter_context(IdleStreams(60.0)))
            self.server = counting(DataServer, self.reached)(at, store, membership, memory, rules)
        stack.callback(self.server.shutdown)

    def call(self, path: str, kind: str, headers: tuple[tuple[str, Any], ...]) -> Any:
        return call(f"127.0.0.1:{self.server.port}", path, kind, headers)


@pytest.fixture(params=["metadata", "data"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    with ExitStack() as stack:
        yield Target(request.param, tmp_path, stack)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("authorization", f"Bearer {'0' * 64}"),),
        (("authorization", "Basic YWxsOmFsbA=="),),
        (("authorization", "Bearer "),),
        (("authorization", f"Bearer {'x' * 4000}"),),
        (("authorization", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGwifQ."),),
        (("auth-token-bin", "\x00"),),
    ],
    ids=["nothing", "another token", "basic", "empty", "long", "unsigned web token", "handshake's"],
)
def test_no_handler_is_reached_without_the_token(
    target: Target, headers: tuple[tuple[str, str], ...]
) -> None:
    headers = tuple((name, value.encode() if "bin" in name else value) for name, value in headers)  # type: ignore[misc]
    ends = {
        name: target.call(f"/{SERVICE}/{name}", kind, headers) for name, kind in METHODS.items()
    }
    assert {name for name, end in ends.items() if end not in REFUSED} <= {"PollFlightInfo"}
    assert ends["PollFlightInfo"] in REFUSED | NOT_THERE
    assert {target.call(path, kind, headers) for path, kind in UNKNOWN.items()} == NOT_THERE
    assert target.reached == Counter()


def test_with_the_token_handlers_are_reached(target: Target) -> None:
    """Or the test above would show nothing."""
    headers = (("authorization", f"Bearer {target.token}"),)
    for name, kind in METHODS.items():
        target.call(f"/{SERVICE}/{name}", kind, headers)
    assert {"do_action", "list_actions", "do_get"} <= target.reached.keys()


def test_refused_calls_are_counted_and_do_not_flood_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        target = Target("metadata", tmp_path, stack)
        never = LimitedWarnings(logging.getLogger("mrflight.servers.guard"), every_s=86_400.0)
        target.guard._refused = never
        path, kind = f"/{SERVICE}/ListActions", METHODS["ListActions"]
        for _ in range(20):
            assert target.call(path, kind, ()) in REFUSED
        assert caplog.text.count("a call is refused") == 1
        never.tell()
        assert "19 more like this in the last 86400 s" in caplog.text
        assert target.call(path, kind, ()) in REFUSED  # which is counted again
        never.tell()
        assert " 1 more like this in the last 86400 s" in caplog.text
        never.tell()
        assert target.call(path, kind, ()) in REFUSED
        assert caplog.text.count("a call is refused") == 2
        assert caplog.text.count("in the last 86400 s") == 2  # other servers of tests tell later
        never.tell()


def test_a_caller_has_only_so_many_streams_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        target = Target("data", tmp_path, stack, streams=1)
        location = f"grpc+tcp://127.0.0.1:{target.server.port}"
        client = stack.enter_context(flight.FlightClient(location))
        header = (b"authorization", f"Bearer {target.token}".encode())
        caller = flight.FlightCallOptions(timeout=hang_s(), headers=[header])
        path = flight.FlightDescriptor.for_path("tail", "clicks", "1")
        writer, _ = client.do_put(path, pa.schema([("a", pa.int64())]), caller)
        await_that(lambda: target.guard._streams, "the put has begun")
        with (
            refused(TooManyStreamsError),
            from_flight(location, "read"),
        ):
            client.do_get(flight.Ticket(b"clicks/0"), caller).read_all()
        with refused(flight.FlightServerError):
            writer.close()
        await_that(lambda: not target.guard._streams, "the put has ended")


def callers(folder: Path, *names: str) -> tuple[Guard, dict[str, Identity]]:
    """Return a guard that knows these callers, who have all roles."""
    identities, entries = {}, ""
    for name in names:
        token = new_bearer_token()
        write_private(folder / name, token)
        identities[name] = Identity(token=f"file:{folder / name}")
        entries += access_entry(name, [*Role], token)
    write_private(folder / "access.toml", entries)
    return Guard(Access(folder / "access.toml")), identities


@contextmanager
def clients(
    server: MetadataServer, identities: dict[str, Identity]
) -> Iterator[list[mrflight.Cluster]]:
    """Clients of a server with these identities, until the end of the block."""
    location = f"grpc+tcp://127.0.0.1:{server.port}"
    with ExitStack() as stack:
        stack.callback(server.shutdown)
        yield [
            stack.enter_context(mrflight.connect(location, ONCE, identity=each))
            for each in identities.values()
        ]


def test_a_caller_holds_only_so_many_shuffles_at_once(tmp_path: Path) -> None:
    guard, identities = callers(tmp_path, "a", "b")
    registry = Registry(Clock(), TIMEOUT_S)
    registry.register_server("grpc+tcp://127.0.0.1:1")
    held = Held(registry, shuffles=Quota("shuffle", 2, 10))
    with clients(
        MetadataServer(Listening("grpc+tcp://127.0.0.1:0", guard), registry, held), identities
    ) as (a, b):
        first = a.create_shuffle("a1", 4)
        with refused(QuotaExceededError):
            a.create_shuffle("a2", 7)
        a.create_shuffle("a2", 6)
        with refused(QuotaExceededError):
            a.create_shuffle("a3", 1)
        with pytest.raises(ShuffleExistsError):
            b.create_shuffle("a1", 4)
        b.create_shuffle("b1", 10)
        a.create_shuffle("a1", 4, token=first.token)  # again, as if no answer had come
        registry.drop_shuffle("a1")
        a.create_shuffle("a1", 4)
        with refused(QuotaExceededError):
            a.create_shuffle("a3", 1)
        assert [each.id for each in a.status().shuffles] == ["a2", "b1", "a1"]


def test_a_caller_holds_only_so_many_event_logs_at_once(tmp_path: Path) -> None:
    guard, identities = callers(tmp_path, "a", "b")
    registry = Registry(Clock(), TIMEOUT_S)
    for number in (1, 2):
        registry.register_server(f"grpc+tcp://127.0.0.1:{number}", "", f"store{number}")
    held = Held(registry, logs=Quota("event log", 2, 3, "replica"))
    with clients(
        MetadataServer(Listening("grpc+tcp://127.0.0.1:0", guard), registry, held), identities
    ) as (a, b):
        first = a.create_log("a1", 2)
        with refused(QuotaExceededError):
            a.create_log("a2", 2)
        a.create_log("a2")
        with refused(QuotaExceededError):
            a.create_log("a3")
        with pytest.raises(EventLogExistsError):
            b.create_log("a1")
        b.create_log("b1", 2)
        a.create_log("a1", 2, first.token)  # again, as if no answer had come
        registry.logs.drop(LogName("a1", first.token))
        a.create_log("a3", 2)
        with refused(QuotaExceededError):
            a.create_log("a4")
        assert [each.name for each in registry.logs.all()] == ["a2", "b1", "a3"]


def test_a_caller_holds_only_so_many_tails_at_once(tmp_path: Path) -> None:
    guard, identities = callers(tmp_path, "a", "b")
    with ExitStack() as stack:
        scratch = stack.enter_context(ScratchFolder("spill", tmp_path))
        store = stack.enter_context(BlockStore(2**20, scratch))
        memory = stack.enter_context(SharedMemory())
        rules = StreamRules(stack.enter_context(IdleStreams(60.0)))
        membership = Membership(store, "grpc+tcp://127.0.0.1:1")
        tails = Tails(TailStore(2**20), rules, Quota("tail", 2, 3))
        at = Listening("grpc+tcp://127.0.0.1:0", guard)
        server = DataServer(at, store, membership, memory, rules, tails=tails)
        stack.callback(server.shutdown)
        location = f"grpc+tcp://127.0.0.1:{server.port}"
        a, b = (
            stack.enter_context(Connections(ClientOptions(ONCE, identity=each)))
            for each in identities.values()
        )

        def begin(caller: Connections, tail: str, *partitions: str, epoch: int = 1) -> None:
            request = OpenTail(tail, epoch, dict.fromkeys(partitions, 0))
            call_action(caller, location, TailAction.OPEN_TAIL, request, TailPositions)

        begin(a, "a1", "x/0", "x/1")
        with refused(QuotaExceededError):
            begin(a, "a2", "x/0", "x/1")
        begin(a, "a2")
        with refused(QuotaExceededError):
            begin(a, "a3")
        begin(b, "b1", "x/0", "x/1")
        begin(a, "a1", "x/0", "x/1", epoch=2)
        with refused(QuotaExceededError):
            begin(a, "a1", "x/2", epoch=2)
        with refused(ProtocolError):
            begin(a, "a1", 513 * "x", epoch=2)
        call_action(a, location, TailAction.DROP_TAIL, TailName("a1"), Done)
        begin(a, "a3", "x/0")


@pytest.mark.slow
def test_a_caller_without_a_certificate_gets_no_connection(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()
    authority, another = new_authority("test", 1), new_authority("another", 1)
    issued = issue(authority, "server", ["127.0.0.1"], days=1)
    certificates = {
        "tls_certificates": [(issued.certificate_pem, issued.key_pem)],
        "verify_client": True,
        "root_certificates": authority.certificate_pem,
    }
    guard = Guard(Access(None), trusts_certificates=True)
    at = Listening("grpc+tls://127.0.0.1:0", guard, certificates=certificates)
    server = counting(MetadataServer, reached)(at, Registry(Clock(), TIMEOUT_S))
    try:
        stranger = issue(another, "server", days=1)
        for own in ((None, None), (stranger.key_pem, stranger.certificate_pem)):
            credentials = grpc.ssl_channel_credentials(authority.certificate_pem, *own)
            with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
                for name in METHODS:
                    with pytest.raises(grpc.RpcError) as failed:
                        channel.unary_unary(f"/{SERVICE}/{name}", None, None)(b"", timeout=hang_s())
                    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert reached == Counter()
        known = issue(authority, "job", days=1)
        credentials = grpc.ssl_channel_credentials(
            authority.certificate_pem, known.key_pem, known.certificate_pem
        )
        with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
            list(channel.unary_stream(f"/{SERVICE}/ListActions", None, None)(b"", timeout=hang_s()))
        assert reached == Counter({"list_actions": 1})
    finally:
        server.shutdown()


# Servers in the clear


class Heard(flight.ServerMiddlewareFactory):
    """Notes every call, also of methods that the server does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def start_call(self, info: flight.CallInfo, headers: Any) -> None:
        self.calls.append(f"{info.method} {headers.get('authorization')}")


@pytest.fixture
def plain() -> Iterator[tuple[str, Heard]]:
    """A server that has no certificate, so that all that comes to it came in the clear."""
    heard = Heard()
    server = flight.FlightServerBase("grpc+tcp://127.0.0.1:0", middleware={"heard": heard})
    yield f"grpc+tcp://127.0.0.1:{server.port}", heard
    server.shutdown()


class Encrypted:
    """A metadata server that encrypts, and the identity of a job at it."""

    def __init__(self, folder: Path, stack: ExitStack, registry: Registry) -> None:
        authority = new_authority("test", 1)
        issued = issue(authority, "server", ["127.0.0.1"], days=1)
        (folder / "ca.pem").write_bytes(authority.certificate_pem)
        token = new_bearer_token()
        write_private(folder / "token", token)
        write_private(folder / "access.toml", access_entry("all", [*Role], token))
        certificates = {"tls_certificates": [(issued.certificate_pem, issued.key_pem)]}
        at = Listening(
            "grpc+tls://127.0.0.1:0",
            Guard(Access(folder / "access.toml")),
            certificates=certificates,
        )
        server = MetadataServer(at, registry)
        stack.callback(server.shutdown)
        self.location = f"grpc+tls://127.0.0.1:{server.port}"
        self.token = Identity(token=f"file:{folder}/token")
        self.job = replace(self.token, ca=f"{folder}/ca.pem")


CALLS: dict[str, Callable[[mrflight.Cluster, mrflight.Shuffle, str, str], object]] = {
    "write": lambda cluster, shuffle, at, log: write_rows(shuffle),
    "read": lambda cluster, shuffle, at, log: list(shuffle.reader(0)),
    "stats": lambda cluster, shuffle, at, log: cluster.stats(at),
    "append": lambda cluster, shuffle, at, log: cluster.append(log, ROWS),
    "read a log": lambda cluster, shuffle, at, log: list(cluster.read_log(log)),
    "trim a log": lambda cluster, shuffle, at, log: cluster.trim(log, 1),
    "tail": lambda cluster, shuffle, at, log: TailClient(
        Endpoint(at, shuffle.client.identity)
    ).drop("tail"),
    "metadata": lambda cluster, shuffle, at, log: mrflight.connect(
        at, ONCE, identity=shuffle.client.identity
    ).status(),
}
ROWS = pa.record_batch({"n": pa.array([1, 2, 3])})
ONCE = Timeouts(call_s=hang_s(), stream_s=hang_s(), reconnect_s=0.0)


def write_rows(shuffle: mrflight.Shuffle) -> None:
    with shuffle.writer(1, key=["n"]) as out:
        out.write(ROWS)


def test_a_client_that_encrypts_sends_nothing_in_the_clear(
    tmp_path: Path, plain: tuple[str, Heard]
) -> None:
    """Wherever its metadata server sends it, and whatever it calls."""
    location, heard = plain
    registry = Registry(Clock(), TIMEOUT_S)
    registry.register_server(location, "1", "store")
    with ExitStack() as stack:
        encrypted = Encrypted(tmp_path, stack, registry)
        cluster = stack.enter_context(
            mrflight.connect(encrypted.location, ONCE, identity=encrypted.job)
        )
        shuffle = cluster.create_shuffle("rows", partitions=1)
        log = str(cluster.create_log("events").key)
        schema = ROWS.schema.serialize().to_pybytes()
        registry.commit_map(CommitMap("rows", 0, 0, schema, [3], [1], token=shuffle.token))
        for what, deed in CALLS.items():
            with pytest.raises(UnencryptedServerError):
                deed(cluster, shuffle, location, log)
            assert heard.calls == [], what
        assert [*notify([location], DataAction.STATS, Done(), encrypted.job)] == [location]
        shuffle.drop()
    assert heard.calls == []


def test_whoever_calls_an_encrypted_server_first_needs_no_ca_for_that(
    tmp_path: Path, plain: tuple[str, Heard]
) -> None:
    """Its servers may be signed by an authority of the system; a socket is no network."""
    location, heard = plain
    token = Identity(token=f"file:{tmp_path}/token")
    write_private(tmp_path / "token", "secret")
    with mrflight.connect("grpc+tls://127.0.0.1:1", identity=token) as cluster:
        options = cluster.access.client
    assert mrflight.connect(location, identity=token).access.client.identity == token
    for identity in (options.identity, ANONYMOUS.at("grpc+tls://127.0.0.1:1")):
        with Connections(ClientOptions(identity=identity)) as connections:
            with refused(UnencryptedServerError):
                connections.to(location)
            connections.to(f"grpc+unix://{tmp_path}/socket")
    assert heard.calls == []


def test_a_metadata_server_that_encrypts_takes_no_data_server_in_the_clear(
    tmp_path: Path, plain: tuple[str, Heard]
) -> None:
    """Also not one that its journal has from before."""
    location, _ = plain
    clock = Clock()
    registry = Registry(clock, TIMEOUT_S)
    registry.register_server(location, "1")
    with ExitStack() as stack:
        encrypted = Encrypted(tmp_path, stack, registry)
        client = stack.enter_context(mrflight.connect(encrypted.location, identity=encrypted.job))
        metadata = client._metadata
        for ask in (
            lambda: metadata.register_server(location, "2"),
            lambda: metadata.register_server(location.replace("+tcp", ""), "2"),
            lambda: metadata.heartbeat(Heartbeat(location, [], 0, "1")),
        ):
            with refused(ProtocolError):
                ask()
        metadata.register_server("grpc+tls://127.0.0.1:1", "3")
        clock.now_s += TIMEOUT_S / 2
        metadata.heartbeat(Heartbeat("grpc+tls://127.0.0.1:1", [], 0, "3"))
        clock.now_s += TIMEOUT_S / 2 + 1
        assert [each.location for each in client.status().servers] == ["grpc+tls://127.0.0.1:1"]
