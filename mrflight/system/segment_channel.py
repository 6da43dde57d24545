"""Connections over which processes of one user on one machine pass segments to each other.

A listener has a unix socket in Linux's abstract namespace: no file that could stay, and reachable
within one network namespace. It accepts processes of its own user only. Each connection is a
channel with a key, under which the process that listens finds it. The listener first sends a
segment that holds a secret, which the client has already got over Flight. A client that reads the
same secret in the segment knows that both processes see the same memory.

What was sent stays in the socket until it is received, even if the sender dies meanwhile. The
socket holds few messages: a sender that is faster than its receiver waits.
"""

from __future__ import annotations

import errno
import hmac
import logging
import os
import secrets
import select
import socket
import struct
import threading
from contextlib import suppress

from mrflight.system.closeable import Closeable
from mrflight.system.shared_memory import Segment, SegmentError

log = logging.getLogger(__name__)

KEY_BYTES = 16
_PROOF_BYTES = 32
_SEGMENT = b"s"
_WRITER_BUFFER_BYTES = 2304
"""The least that Linux allows holds two to six messages. What they pass counts for nobody yet."""
_READER_BUFFER_BYTES = 2**15
"""Twenty to eighty messages. What they pass is in the server's memory anyway, and a sender that
waits for each of a thousand small segments costs more than they do."""
_GREETING_S = 5.0
_WAITING_CHANNELS = 4096
"""Channels whose streams have not begun. Those of clients that have gone are closed before."""
_RETRY_S = 0.1
"""The time after which a listener accepts again if the process has too many open files."""
_CREDENTIALS = struct.Struct("3i")


class SegmentChannel(Closeable):
    """One end of a connection that passes segments, in order."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, segment: Segment, timeout_s: float) -> bool:
        """Pass a segment, and wait while the other end has several to receive.

        Returns False if it has to go another way, because more descriptors of this user are on
        their way than Linux allows: as many as this process may open files. Raises OSError if the
        other end is gone, and TimeoutError, which is one.
        """
        self._connection.settimeout(timeout_s)
        try:
            socket.send_fds(self._connection, [_SEGMENT], [segment.file])
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            return False
        return True

    def receive(self, timeout_s: float) -> Segment:
        """Return the next segment.

        Raises SegmentError if the other end sends something else, ConnectionError if it is gone or
        this process has too many open files, and TimeoutError; all are OSErrors.
        """
        self._connection.settimeout(timeout_s)
        note, files, flags, _ = socket.recv_fds(self._connection, len(_SEGMENT), 1)
        if not files:
            if flags & socket.MSG_CTRUNC:
                raise ConnectionAbortedError(errno.EMFILE, os.strerror(errno.EMFILE))
            if not note:
                raise ConnectionResetError("the other end of a channel is gone")
            raise SegmentError("a message over a channel has no segment")
        return Segment.received(files[0])

    def is_over(self) -> bool:
        """Return whether the other end is closed, or this one, which another thread may do now."""
        file = self._connection.fileno()
        if file < 0:
            return True
        poll = select.poll()
        poll.register(file, 0)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._connection.close()


class SegmentListener(Closeable):
    """Accepts channels in a thread, until it is closed; raises OSError if it can't listen."""

    def __init__(self) -> None:
        self.name = f"mrflight-{secrets.token_hex(16)}"
        proof = secrets.token_bytes(_PROOF_BYTES)
        self.proof = proof.hex()
        """What `open_channel` must find in the first segment."""
        self._proof = Segment.of([memoryview(proof)])
        self._waiting: dict[bytes, SegmentChannel] = {}
        self._closing = threading.Event()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(f"\0{self.name}")
        self._listening.listen(socket.SOMAXCONN)
        self._thread = threading.Thread(target=self._accept, name="segments", daemon=True)
        self._thread.start()

    def take(self, key: bytes) -> SegmentChannel | None:
        """Return the channel with this key, once; None if there is none."""
        return self._waiting.pop(key, None)

    def close(self) -> None:
        """Stop listening; channels that were taken go on."""
        self._closing.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # which ends the thread's wait
        self._thread.join()
        self._listening.close()
        while self._waiting:
            self._waiting.popitem()[1].close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError as error:  # it is closed, or there are too many open files
                log.debug("no channel is accepted: %s", error)
                self._closing.wait(_RETRY_S)
                continue
            try:
                self._greet(connection)
            except OSError as error:
                log.debug("a channel was not opened: %s", error)
                connection.close()

    def _greet(self, connection: socket.socket) -> None:
        """Keep a channel for `take`, and tell its other end by sending the first segment."""
        _check_user(connection)
        connection.settimeout(_GREETING_S)
        key = connection.recv(KEY_BYTES)
        if len(key) != KEY_BYTES or key in self._waiting:
            raise SegmentError("a channel begins with its key")
        self._forget_dead()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _READER_BUFFER_BYTES)
        channel = SegmentChannel(connection)
        self._waiting[key] = channel
        if not channel.send(self._proof, _GREETING_S):
            self._waiting.pop(key, None)
            raise SegmentError("too many segments are on their way")

    def _forget_dead(self) -> None:
        """Close channels that nobody will take, because their clients are gone, or too many."""
        waiting = list(self._waiting.items())
        for number, (key, channel) in enumerate(waiting):
            is_too_many = len(waiting) - number >= _WAITING_CHANNELS
            if (is_too_many or channel.is_over()) and self._waiting.pop(key, None) is not None:
                channel.close()


def open_channel(
    name: str, proof: str, timeout_s: float = _GREETING_S
) -> tuple[bytes, SegmentChannel]:
    """Open a channel to the listener ``name``; return its key and this end.

    Raises OSError if nobody of this user listens there, or if the memory that it passes is not seen
    here or does not hold the ``proof``. It may be later if the error is a TimeoutError, a
    ConnectionResetError or a BrokenPipeError.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(timeout_s)
        _connect(connection, name)
        _check_user(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WRITER_BUFFER_BYTES)
        key = secrets.token_bytes(KEY_BYTES)
        connection.send(key)
        channel = SegmentChannel(connection)
        found = channel.receive(timeout_s).buffer.to_pybytes()
        if not hmac.compare_digest(found, bytes.fromhex(proof)):
            raise SegmentError("the memory that the other end passes is not what it says")
    except BaseException:
        connection.close()
        raise
    return key, channel


def _connect(connection: socket.socket, name: str) -> None:
    try:
        connection.connect(f"\0{name}")
    except ConnectionRefusedError as error:
        raise ConnectionRefusedError(
            "its socket is not in this network, which is that of another machine or container"
        ) from error


def _check_user(connection: socket.socket) -> None:
    """Raise PermissionError unless the other end's process has this process's user."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(packed)
    own = os.geteuid()
    if user != own:
        raise PermissionError(
            f"the other end of a channel is a process of user {user}, and this one of user {own}"
        )
