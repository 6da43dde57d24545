"""Random calls of two tenants, a reader and a stranger, and a model of who may do what.

Each tenant has shuffles, tails, event logs and commit leases, and gives some of their tokens to
others. Whoever calls has a token that it was given, none, or one that it has guessed. Each call is
allowed or refused as the model says, with its error, and what was refused has changed nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

import mrflight
from mrflight.config.identity import Endpoint
from mrflight.errors import (
    AccessDeniedError,
    EventLogNotFoundError,
    LeaseHeldError,
    LeaseLostError,
    MrflightError,
    ShuffleNotFoundError,
    TailNotFoundError,
)
from mrflight.ids import ShuffleKey, new_token
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.shuffle.wire.lease_protocol import (
    CommitLease,
    HeldLease,
    LeaseCommits,
    RecordedVersion,
    RecordVersion,
    VersionRecord,
)
from mrflight.shuffle.wire.log_rights import LogRight, token_for
from mrflight.shuffle.wire.protocol import Done, MetadataAction
from mrflight.shuffle.wire.tail_protocol import (
    OpenTail,
    TailPut,
    TailRange,
    TailRead,
    reader_token,
)

TENANTS = ("a", "b")
READERS = (*TENANTS, "reader")
CALLERS = (*READERS, "stranger")
LEASE_S = 600.0
Clusters = Mapping[str, mrflight.Cluster]
Deed = tuple[tuple[str, ...], str]
"""Who may do it by its role, and the rights of which it needs one."""


class Thing:
    """What a tenant has made at a cluster; its ``rows`` are what must be read from it."""

    deeds: ClassVar[dict[str, Deed]]
    gone: ClassVar[type[MrflightError]]
    """What a call for a thing that was dropped ends with."""
    guessed: ClassVar[type[MrflightError]]
    """What a call with another token ends with."""

    def __init__(self, name: str, maker: str, clusters: Clusters) -> None:
        self.name, self.maker, self.clusters = name, maker, clusters
        self.secret = new_token()
        self.rows: list[Any] = []
        self.is_there = True
        self.make()

    def make(self) -> None: ...

    def tokens(self) -> dict[str, frozenset[str]]:
        """The tokens that the maker can give, with their rights."""
        return {self.secret: frozenset(LogRight)}

    def do(self, deed: str, caller: str, token: str, n: int) -> None:
        """Do something; ``n`` is a row that nobody has put before."""
        getattr(self, deed)(self.clusters[caller], token, n)

    def reasons(self, deed: str, caller: str, token: str) -> set[type[MrflightError]]:
        """Why a call has to be refused, which may be for several reasons."""
        callers, needed = self.deeds[deed]
        if caller not in callers or not token:
            return {AccessDeniedError, self.gone, self.guessed}
        if not self.is_there:
            return {self.gone}
        rights = self.tokens().get(token)
        if rights is None:
            return {self.guessed}
        return {AccessDeniedError} if rights.isdisjoint(needed.split()) else set()

    def check(self) -> None:
        """Read as the maker what has to be there."""
        self.do("read", self.maker, self.secret, 0)


class ShuffleOf(Thing):
    deeds: ClassVar = {
        "open": (READERS, "read"),
        "read": (READERS, "read"),
        "health": (READERS, "read"),
        "write": (TENANTS, "append"),
        "drop": (TENANTS, "drop"),
    }
    gone = guessed = ShuffleNotFoundError

    def make(self) -> None:
        self.clusters[self.maker].create_shuffle(self.name, 2, token=self.secret)
        self._maps = 0

    def open(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        cluster.open_shuffle(self.name, token)

    def health(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        cluster._handle(self.name, 2, token).health()

    def write(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        with cluster._handle(self.name, 2, token).writer(self._maps, key=["n"]) as out:
            out.write(batch(n))
        self._maps += 1
        self.rows.append(n)

    def read(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        shuffle = cluster._handle(self.name, 2, token)
        parts = [part for at in range(2) for part in shuffle.reader(at, maps=0)]
        assert sorted(numbers(parts)) == self.rows

    def drop(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        cluster._handle(self.name, 2, token).drop()
        self.is_there = False


class LogOf(Thing):
    deeds: ClassVar = {
        "append": (TENANTS, "append"),
        "read": (READERS, "read"),
        "pin": (READERS, "read"),
        "state": (READERS, "read append"),
        "trim": (TENANTS, "drop"),
        "drop": (TENANTS, "drop"),
    }
    gone = guessed = EventLogNotFoundError

    def make(self) -> None:
        self.clusters[self.maker].create_log(self.name, token=self.secret)
        self.append(self.clusters[self.maker], self.secret, 0)  # nobody is refused no rows

    def tokens(self) -> dict[str, frozenset[str]]:
        less = {token_for(self.secret, [right]): frozenset({right.value}) for right in LogRight}
        return super().tokens() | less

    def append(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        with cluster.appender(self._named(token)) as out:
            out.append(batch(n)).result()
        self.rows.append(n)

    def read(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        assert numbers(part.rows for part in cluster.read_log(self._named(token))) == self.rows

    def pin(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        with cluster._logs() as logs:
            logs.pin(ShuffleKey.parse(self._named(token)), 0, 1.0)

    def state(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        assert cluster.log_state(self._named(token)).high == len(self.rows)

    def trim(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        assert cluster.trim(self._named(token), n) == 0  # the newest segment is kept

    def drop(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        cluster.drop_log(self._named(token))
        self.is_there = False

    def _named(self, token: str) -> str:
        return f"{self.name}:{token}" if token else self.name


class TailOf(Thing):
    deeds: ClassVar = {
        "begin": (TENANTS, "append"),
        "put": (TENANTS, "append"),
        "read": (READERS, "read"),
        "trim": (TENANTS, "drop"),
        "drop": (TENANTS, "drop"),
    }
    gone, guessed = TailNotFoundError, AccessDeniedError

    def make(self) -> None:
        status = self.clusters[self.maker].status()
        self._server = status.servers[0].location
        self.begin(self.clusters[self.maker], self.secret, 0)

    def tokens(self) -> dict[str, frozenset[str]]:
        return super().tokens() | {reader_token(self.secret): frozenset({"read"})}

    def reasons(self, deed: str, caller: str, token: str) -> set[type[MrflightError]]:
        found = super().reasons(deed, caller, token)
        return set() if deed == "drop" and found == {self.gone} else found

    def begin(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        with self._client(cluster, token) as client:
            client.open(OpenTail(self.name, 1, {"p": 0}))

    def put(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        at = len(self.rows)
        with self._client(cluster, token) as client:
            parts = [(TailRange("p", at, at + 1), batch(n))]
            assert client.put(TailPut(self.name, 1), batch(n).schema, parts) == {"p": at + 1}
        self.rows.append(n)

    def read(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        with self._client(cluster, token) as client:
            assert numbers(client.read(TailRead(self.name)).batches) == self.rows

    def trim(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        with self._client(cluster, token) as client:
            assert client.trim(self.name, {}) == {"p": len(self.rows)}

    def drop(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        with self._client(cluster, token) as client:
            client.drop(self.name)
        self.is_there = False

    def _client(self, cluster: mrflight.Cluster, token: str) -> TailClient:
        return TailClient(Endpoint(self._server, cluster.access.client.identity), token)


class LeaseOf(Thing):
    """Its token is the holder, whom only the server and the job know."""

    deeds: ClassVar = {
        "take": (TENANTS, ""),
        "renew": (TENANTS, ""),
        "record": (TENANTS, ""),
        "release": (TENANTS, ""),
    }
    gone = guessed = LeaseLostError

    def make(self) -> None:
        self._number = 0
        self.take(self.clusters[self.maker], self.secret, 0)

    def reasons(self, deed: str, caller: str, token: str) -> set[type[MrflightError]]:
        if caller not in TENANTS:
            return {AccessDeniedError}
        if deed == "release" or (token == self.secret and self.is_there):
            return set()
        if deed == "take" and self.is_there:
            return {LeaseHeldError}
        return set() if deed == "take" else {LeaseLostError}

    def take(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        self._number = self._ask(cluster, token, 0)
        self.secret, self.is_there = token, True

    def renew(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        assert self._ask(cluster, token, self._number) == self._number

    def record(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        request = RecordVersion(self.name, token, self._number, n, f"digest {n}", "job")
        said = cluster._metadata.ask(MetadataAction.RECORD_VERSION, request, RecordedVersion)
        assert said == RecordedVersion(f"digest {n}", "job")
        self.rows = [*self.rows, VersionRecord(n, f"digest {n}", "job")][-8:]

    def release(self, cluster: mrflight.Cluster, token: str, n: int) -> None:
        request = HeldLease(self.name, token, self._number)
        cluster._metadata.ask(MetadataAction.RELEASE_COMMITS, request, Done)
        self.is_there = self.is_there and token != self.secret

    def check(self) -> None:
        self.renew(self.clusters[self.maker], self.secret, 0)

    def _ask(self, cluster: mrflight.Cluster, token: str, number: int) -> int:
        request = LeaseCommits(self.name, token, LEASE_S, number)
        lease = cluster._metadata.ask(MetadataAction.LEASE_COMMITS, request, CommitLease)
        assert lease.versions == self.rows
        return lease.number


class RandomCallers:
    """The calls of one seed."""

    def __init__(self, clusters: Clusters, seed: int) -> None:
        self._random, self._clusters = random.Random(seed), clusters
        self._count = 0
        self._given: dict[str, dict[Thing, list[str]]] = {caller: {} for caller in CALLERS}
        self.steps: list[str] = []
        """What was done, for whoever looks for the reason of a failure."""
        self._things = [
            kind(f"{kind.__name__}-{maker}-{seed}", maker, clusters)
            for kind in (ShuffleOf, LogOf, TailOf, LeaseOf)
            for maker in TENANTS
        ]
        for thing in self._things:
            for caller in CALLERS:
                given = [token for token in thing.tokens() if self._random.random() < 0.4]
                self._given[caller][thing] = [thing.secret] if caller == thing.maker else given

    def step(self) -> None:
        """Let somebody call, and look at what was called for."""
        thing, caller = self._random.choice(self._things), self._random.choice(CALLERS)
        deeds = [deed for deed in thing.deeds if deed != "drop" or self._random.random() < 0.3]
        if not thing.is_there and "begin" in deeds:
            deeds.remove("begin")  # of a tail, which would be another one
        deed, token = self._random.choice(deeds), self._token(caller, thing)
        self._count += 1
        reasons = thing.reasons(deed, caller, token)
        rights = "+".join(sorted(thing.tokens().get(token, ["guessed"]))) if token else "no"
        said = " or ".join(sorted(reason.__name__ for reason in reasons)) or "allowed"
        self.steps.append(f"{caller} {deed} {thing.name} with {rights} token: {said}")
        refusal: MrflightError | None = None
        try:
            thing.do(deed, caller, token, self._count)
        except MrflightError as error:
            refusal = error
        is_as_said = type(refusal) in reasons if reasons else refusal is None
        assert is_as_said, f"{self.steps[-1]}: {refusal!r}"
        if thing.is_there:
            thing.check()

    def end(self) -> None:
        """Find all that is there unchanged, and no secret in what everybody may see."""
        for thing in self._things:
            if thing.is_there:
                thing.check()
        for caller in READERS:
            seen = msgspec.json.encode(self._clusters[caller].status()).decode()
            secrets = {token for thing in self._things for token in thing.tokens() if token}
            assert not any(secret in seen for secret in secrets)
        for thing in self._things:
            if thing.is_there and "drop" in thing.deeds:
                thing.do("drop", thing.maker, thing.secret, 0)

    def _token(self, caller: str, thing: Thing) -> str:
        others = [each.secret for each in self._things if each.maker == caller != thing.maker]
        unknown = ["", new_token(), *others[:1]]
        return self._random.choice([*(3 * self._given[caller][thing]), *unknown])


def batch(n: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([n], pa.int64())})


def numbers(parts: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> list[int]:
    return [n for part in parts for n in part.column("n").to_pylist()]
