"""A proxy in front of a server that loses a request, or its answer, and closes.

Of a server that is asked one thing after the other on a connection, and answers in that order.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from tests.support.suite.waiting import communicate

Loss = Literal["request", "answer"]
Then = Literal["goes on", "is gone", "hangs"]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, no time
_LOOPBACK = "127.0.0.1"


class _Proxy:
    """See `lossy_proxy`."""

    def __init__(self, target_port: int, loss: str, then: str, needles: list[bytes]) -> None:
        self._target = (_LOOPBACK, target_port)
        self._listener = socket.create_server((_LOOPBACK, 0))
        self._needles = needles
        self._loss = loss
        self._then = then
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Until the process ends, each connection in threads of its own."""
        _say(str(self._listener.getsockname()[1]))
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._target)
            threading.Thread(target=self._forward, args=[client, server], daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """One request after the other, each with its answer, as the client does not pipeline."""
        muted = threading.Event()
        answers = threading.Thread(target=self._answer, args=[server, client, muted], daemon=True)
        answers.start()
        with suppress(OSError):
            while chunk := client.recv(1 << 16):
                loss = self._loss_of(chunk)
                if loss == "request":
                    self._lose()
                    break
                if loss == "answer":
                    muted.set()
                server.sendall(chunk)
        if not muted.is_set():
            _close(client)
            _close(server)

    def _answer(self, server: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        with suppress(OSError):
            while chunk := server.recv(1 << 16):
                if muted.is_set():  # it has done what it was asked
                    self._lose()
                    break
                client.sendall(chunk)
        _close(client)
        _close(server)

    def _loss_of(self, chunk: bytes) -> str | None:
        with self._lock:
            if not self._needles or not all(needle in chunk for needle in self._needles):
                return None
            self._needles = []
            return self._loss

    def _lose(self) -> None:
        """Before the connection is closed."""
        _say("lost")
        if self._then == "is gone":
            os._exit(0)  # all connections are closed, and new ones refused
        if self._then == "hangs":
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # and no later than here


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # wakes who waits in it
    end.close()


@dataclass(frozen=True)
class LossyProxy:
    """A process of its own: deltalake's calls let no other thread run as they wait for a store."""

    port: int
    process: subprocess.Popen[str]

    def end(self) -> int:
        """End the proxy and return the number of requests that were lost."""
        self.process.kill()
        return int(communicate(self.process, "the proxy")[0].count("lost"))


@contextmanager
def lossy_proxy(
    target_port: int, needle: str | tuple[str, ...], loss: Loss, then: Then = "goes on"
) -> Iterator[LossyProxy]:
    """The first request with these bytes, or all of them, does not arrive, or is not answered.

    ``then`` the server goes on for who asks again; or nobody reaches it, or gets any answer.
    """
    needles = (needle,) if isinstance(needle, str) else needle
    command = [sys.executable, "-m", __name__, str(target_port), loss, then, *needles]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield LossyProxy(int(process.stdout.readline()), process)
        finally:
            process.kill()


if __name__ == "__main__":
    _Proxy(
        int(sys.argv[1]), sys.argv[2], sys.argv[3], [word.encode() for word in sys.argv[4:]]
    ).serve()
