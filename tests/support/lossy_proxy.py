"""A proxy in front of a server of HTTP that loses a request, or its answer, and closes."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

Loss = Literal["request", "answer"]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, no time
_LOOPBACK = "127.0.0.1"


class _Proxy:
    """See `lossy_proxy`."""

    def __init__(self, target_port: int, needle: bytes, loss: str) -> None:
        self._target = (_LOOPBACK, target_port)
        self._listener = socket.create_server((_LOOPBACK, 0))
        self._needle: bytes | None = needle
        self._loss = loss
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
                    break
                client.sendall(chunk)
        _close(client)
        _close(server)

    def _loss_of(self, chunk: bytes) -> str | None:
        with self._lock:
            if self._needle is None or self._needle not in chunk:
                return None
            self._needle = None
            _say("lost")
            return self._loss


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
        """How many requests were lost."""
        self.process.terminate()
        return self.process.communicate(timeout=10)[0].count("lost")


@contextmanager
def lossy_proxy(target_port: int, needle: str, loss: Loss) -> Iterator[LossyProxy]:
    """The first request with these bytes in its head does not arrive, or is not answered."""
    command = [sys.executable, "-m", __name__, str(target_port), needle, loss]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield LossyProxy(int(process.stdout.readline()), process)
        finally:
            process.kill()


if __name__ == "__main__":
    _Proxy(int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]).serve()
