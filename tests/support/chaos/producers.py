"""Producers of numbered events, which go on while the brokers are killed."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from tests.services.kafka import Kafka
from tests.support.suite.waiting import hang_s

_PAUSE_S = 0.02
_EVENTS = 100
"""A producer waits twice as long after so many events, and so on, up to `_MAX_PAUSE_S`. So a run
that takes long, because its machine is busy, does not have many more events to read."""

_MAX_PAUSE_S = 1.0

PLAIN, TRANSACTIONAL, POISONING = 1, 2, 3


class Sent:
    """What the producers have sent."""

    def __init__(self) -> None:
        self.committed: set[tuple[int, int]] = set()
        """The producer and the number of each event that readers must see once."""
        self.unknown: set[tuple[int, int]] = set()
        """Of transactions whose outcome the producer could not find out."""
        self.poison: set[bytes] = set()
        """The events that cannot be decoded."""
        self.errors: list[str] = []

    def failed(self, error: object) -> None:
        self.errors.append(str(error))


def event(producer: int, number: int) -> bytes:
    return json.dumps({"producer": producer, "number": number, "text": f"event {number}"}).encode()


@contextmanager
def producing(kafka: Kafka, topic: str, seed: int) -> Iterator[Sent]:
    """Produce until the end of the block, and then until the broker has all of it."""
    sent, stop = Sent(), threading.Event()
    threads = [
        threading.Thread(target=produce, args=(kafka, topic, random.Random(seed), sent, stop))
        for produce in (_produce, _produce_transactions, _produce_poison)
    ]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _produce(
    kafka: Kafka, topic: str, randomly: random.Random, sent: Sent, stop: threading.Event
) -> None:
    client = kafka.producer(enable_idempotence=True)
    number = 0
    while not stop.is_set():
        for _ in range(randomly.randint(1, 20)):
            _send(client, topic, event(PLAIN, number), sent)
            sent.committed.add((PLAIN, number))
            number += 1
        client.poll(0)
        stop.wait(_pause_s(number))
    _finish(client, sent)


def _produce_poison(
    kafka: Kafka, topic: str, randomly: random.Random, sent: Sent, stop: threading.Event
) -> None:
    client = kafka.producer(enable_idempotence=True)
    number = 0
    while not stop.is_set():
        for _ in range(randomly.randint(1, 5)):
            if randomly.random() < 0.1:
                poison = b"poison %d" % number
                _send(client, topic, poison, sent)
                sent.poison.add(poison)
            else:
                _send(client, topic, event(POISONING, number), sent)
                sent.committed.add((POISONING, number))
            number += 1
        client.poll(0)
        stop.wait(_pause_s(number))
    _finish(client, sent)


def _pause_s(number: int) -> float:
    """Return how long a producer waits that has sent so many events."""
    return min(_MAX_PAUSE_S, _PAUSE_S * 2.0 ** min(number // _EVENTS, 10))


def _send(client: Any, topic: str, value: bytes, sent: Sent) -> None:
    def delivered(error: object, _: object) -> None:
        if error is not None:
            sent.failed(error)

    client.produce(topic, value, on_delivery=delivered)


def _finish(client: Any, sent: Sent) -> None:
    if left := client.flush(hang_s()):
        sent.failed(f"{left} events were not delivered")


def _produce_transactions(
    kafka: Kafka, topic: str, randomly: random.Random, sent: Sent, stop: threading.Event
) -> None:
    """Commit two transactions of three, and abort the others."""
    # What the broker has not heard the end of does not hold back readers for long.
    client = kafka.producer(transactional_id=f"numbers-{topic}", transaction_timeout_ms=10_000)
    client.init_transactions(hang_s())
    number = 0
    while not stop.is_set():
        numbers = range(number, number + randomly.randint(1, 20))
        number = numbers.stop
        with_commit = randomly.random() < 2 / 3
        keys = {(TRANSACTIONAL, each) for each in numbers}
        try:
            client.begin_transaction()
            for each in numbers:
                client.produce(topic, event(TRANSACTIONAL, each))
            client.poll(randomly.uniform(0, 2 * _PAUSE_S))
            if with_commit:
                _until_done(client.commit_transaction)
                sent.committed |= keys
            else:
                _until_done(client.abort_transaction)
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort() or not _aborted(client):
                sent.unknown |= keys
                return
        stop.wait(_pause_s(number))


def _aborted(client: Any) -> bool:
    try:
        _until_done(client.abort_transaction)
    except confluent_kafka.KafkaException:
        return False
    return True


def _until_done(end: Any) -> None:
    """End a transaction, also if the broker is away at first."""
    give_up = time.monotonic() + hang_s()
    while True:
        try:
            end(hang_s())
            return
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > give_up:
                raise
