"""Turns what librdkafka reports into errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mrflight.errors import BrokerUnavailableError, InputError, JobFileError, MrflightError
from mrflight.sources.kafka.client_settings import ClientSettings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_REFUSED = frozenset(
    (
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
    )
)
_WRONG_SETTINGS = frozenset(("_INVALID_ARG", "_UNKNOWN_PROTOCOL", "_SSL", "_CRIT_SYS_RESOURCE"))


def import_confluent_kafka(key: str) -> None:
    """Raise JobFileError if the library is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise JobFileError(
            f"{key}.kafka needs the library confluent-kafka: pip install 'mrflight[kafka]'"
        ) from error


@contextmanager
def kafka_errors(settings: ClientSettings, what: str) -> Iterator[None]:
    """Raise our errors for those of a call of librdkafka; ``what`` is what was to be done."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise translate(error.args[0], settings, what) from error


def translate(error: KafkaError, settings: ClientSettings, what: str) -> MrflightError:
    """Return the error to raise for one of librdkafka."""
    return translate_failure(error.name(), error.str(), settings, what)


def translate_failure(name: str, text: str, settings: ClientSettings, what: str) -> MrflightError:
    """Return the error to raise for one of librdkafka, given its name and text."""
    if name in _REFUSED:
        return InputError(
            f"{settings.key}: {what}: the brokers {settings.brokers} refuse it: {text}; check the "
            f"user and its rights, and {settings.key}.client"
        )
    if name in _WRONG_SETTINGS:
        return JobFileError(f"{settings.key}.client: {text}; correct or remove the setting")
    return BrokerUnavailableError(
        f"{settings.key}: {what}: the brokers {settings.brokers} do not answer: {text}; check that "
        f"they run, and {settings.key}.kafka"
    )
