"""Translates our errors to Flight errors on servers, and Flight errors to ours on clients.

A server answers with a Flight error whose ``extra_info`` names our error, and the
client raises the same error. Everything else that Flight raises, for example
because a server is gone, becomes one of our errors here as well.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight import errors
from mrflight.config.locations import is_encrypted
from mrflight.errors import (
    AccessDeniedError,
    DeadlineExceededError,
    MrflightError,
    ProtocolError,
    ServerUnavailableError,
)
from mrflight.system.json_decoders import json_decoder

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

_MAX_MESSAGE = 800
"""Characters of a message. It travels twice, in headers, and gRPC takes at least 8,000 bytes of
headers."""

_BEHIND_THE_REASON = re.compile(r"\. Detail:|\.? gRPC client debug context:| Client context:")

_WIRE_NAMES: dict[type[MrflightError], str] = {
    errors.AttemptSupersededError: "AttemptLostError",
    errors.InconsistentMapOutputError: "NotRepeatableError",
    errors.MapOutputLostError: "OutputLostError",
    errors.MapOutputMissingError: "MapsMissingError",
}
"""The errors whose name in the wire contract is not the name of their class."""

_BY_WIRE_NAME = {name: kind for kind, name in _WIRE_NAMES.items()}

_CLOSED = "Socket closed"
"""What gRPC says if a server ends a connection while it is secured."""

_OTHER_NAME = "is not in peer certificate"
"""What gRPC says if a server's certificate does not have the host that was called."""

_UNANSWERED = ("tcp handshaker shutdown", "connect() timed out")
"""What gRPC says if nothing answers an attempt to connect, not even by a refusal.

Which of the two it is depends on which of its two timers is first; both end at the same time.
"""

_UNSENT = "Unknown error writing metadata."


class _WireError(msgspec.Struct, omit_defaults=True):
    error: str
    message: str
    location: str | None = None


def answer_errors(handler: Callable[P, R]) -> Callable[P, R]:
    """Decorate a Flight handler so that it answers with our errors; others are logged in full."""

    @wraps(handler)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return handler(*args, **kwargs)
        except MrflightError as error:
            raise to_flight(error) from error
        except flight.FlightError:
            raise
        except MemoryError as error:  # one of Arrow's is an ArrowException as well
            raise to_flight(_out_of_memory(error)) from error
        except (pa.ArrowException, UnicodeDecodeError) as error:  # a name that is no UTF-8
            raise to_flight(ProtocolError(f"not valid Arrow data: {error}")) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise to_flight(_out_of_memory(error)) from error
            if _is_peer_gone(error):
                log.info("the client of %s is gone and gets no answer", handler.__qualname__)
            else:
                log.exception("a request failed in %s", handler.__qualname__)
            raise

    return wrapped


def _is_peer_gone(error: Exception) -> bool:
    """Return whether a put's receipt could not be sent because the client has gone.

    gRPC only says that a write failed, and this is Arrow's message for it (grpc_server.cc).
    """
    return type(error) is OSError and str(error) == _UNSENT


def _out_of_memory(error: Exception) -> ServerUnavailableError:
    return ServerUnavailableError(
        f"the server has no memory left: {error}; give it more memory, or lower --memory"
    )


def answer_stream(items: Iterator[R]) -> Iterator[R]:
    """Yield the items of a handler's stream, which runs after the handler; see `answer_errors`."""
    try:
        yield from items
    except MrflightError as error:
        raise to_flight(error) from error
    except MemoryError as error:
        raise to_flight(_out_of_memory(error)) from error
    except Exception:
        log.exception("a stream failed")
        raise


def to_flight(error: MrflightError) -> flight.FlightError:
    """Return the Flight error that carries ours."""
    message = str(error)
    if len(message) > _MAX_MESSAGE:
        message = f"{message[: _MAX_MESSAGE // 2]} ... {message[-_MAX_MESSAGE // 2 :]}"
    name = _WIRE_NAMES.get(type(error), type(error).__name__)
    body = _WireError(name, message, error.location)
    is_refused = isinstance(error, AccessDeniedError)
    kind = flight.FlightUnauthorizedError if is_refused else flight.FlightServerError
    return kind(message, extra_info=msgspec.json.encode(body))


@contextmanager
def from_flight(location: str, operation: str) -> Iterator[None]:
    """Raise our errors for Flight's; ``operation`` names in messages what was tried."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        ours = _translate(error, location, operation)
        ours.location = ours.location or location
        raise ours from error


def _translate(error: Exception, location: str, operation: str) -> MrflightError:
    if (ours := _error_in(error)) is not None:
        return ours
    reason = _BEHIND_THE_REASON.split(str(error))[0]
    if "failed to connect" in reason:
        reason = reason.rpartition(": ")[2]  # for example "Connection refused", without the address
        if reason in _UNANSWERED:
            reason = "nothing answers there; is its machine up, and the network to it open?"
    if isinstance(error, flight.FlightTimedOutError):
        return DeadlineExceededError(f"{operation}: {location} did not answer in time")
    if isinstance(error, flight.FlightCancelledError | flight.FlightInternalError):
        # The server is being stopped, or the connection broke in the middle of a message.
        return ServerUnavailableError(f"{operation}: the connection to {location} broke: {reason}")
    if isinstance(error, flight.FlightUnavailableError | OSError):
        return ServerUnavailableError(
            f"{operation}: {location} cannot be reached: {reason}{_hint(location, reason)}"
        )
    return ProtocolError(f"{operation}: {location} answered: {reason}")


def _hint(location: str, reason: str) -> str:
    """Return what may be wrong if a connection was refused while it was being secured."""
    if not is_encrypted(location):
        return "; does it want grpc+tls://?" if reason == _CLOSED else ""
    if reason == _CLOSED:
        return (
            "; it may want a certificate of its clients (cluster.tls.certificate, or "
            "--tls-certificate) that its authority has signed and that has not ended, which "
            "mrflight doctor shows"
        )
    if _OTHER_NAME in reason:
        return "; call it by a host of its certificate, or issue it one with --host for this name"
    if "expired" in reason:
        return "; its certificate must be renewed"
    return "; give the certificate of its authority (cluster.tls.ca, or --tls-ca)" * (
        "certificate" in reason
    )


def _error_in(error: Exception) -> MrflightError | None:
    extra = getattr(error, "extra_info", b"")
    if not extra:
        return None
    try:
        body = json_decoder(_WireError).decode(extra)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    carried = error_named(body.error, body.message)
    if carried is not None:
        carried.location = body.location
    return carried


def error_named(name: str, message: str) -> MrflightError | None:
    """Return our error with a name of the wire contract; None if there is none."""
    kind = _BY_WIRE_NAME.get(name) or getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, MrflightError):
        return kind(message)
    return None
