"""Finds where processes listen, as an attacker on the machine would, and calls there."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import psutil

from tests.support.suite.waiting import hang_s

SERVICE = "arrow.flight.protocol.FlightService"
METHODS = {
    "Handshake": "stream_stream",
    "ListFlights": "unary_stream",
    "GetFlightInfo": "unary_unary",
    "PollFlightInfo": "unary_unary",
    "GetSchema": "unary_unary",
    "DoGet": "unary_stream",
    "DoPut": "stream_stream",
    "DoExchange": "stream_stream",
    "DoAction": "unary_stream",
    "ListActions": "unary_stream",
}
"""All methods of Flight's service, by what kind of call they are."""
REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
NOT_THERE = {grpc.StatusCode.UNIMPLEMENTED}
_LISTENS = "00010000"
"""The flag of a unix socket that listens, in /proc/net/unix."""


def call(
    target: str,
    path: str,
    kind: str,
    headers: tuple[tuple[str, Any], ...] = (),
    secured_by: grpc.ChannelCredentials | None = None,
) -> Any:
    """Make one call with an empty message, in the clear or with TLS; return how it ended."""
    opened = (
        grpc.secure_channel(target, secured_by) if secured_by else grpc.insecure_channel(target)
    )
    with opened as channel:
        method = getattr(channel, kind)(path, None, None)
        request: Any = iter([b""]) if kind.startswith("stream") else b""
        try:
            answer = method(request, timeout=hang_s(), metadata=headers)
            if kind.endswith("stream"):
                list(answer)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def tcp_ports(processes: Iterable[psutil.Process]) -> set[tuple[str, int]]:
    """Return the addresses and ports where processes listen."""
    return {
        (each.laddr.ip, each.laddr.port)
        for process in processes
        for each in process.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }


def unix_sockets(processes: Iterable[psutil.Process]) -> set[str]:
    """Return the unix sockets where processes listen; abstract ones begin with ``@``."""
    listening = {}
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTENS and len(fields) == 8:
            listening[f"socket:[{fields[6]}]"] = fields[7]
    found = set()
    for process in processes:
        for file in Path(f"/proc/{process.pid}/fd").iterdir():
            link = os.readlink(file)
            if link in listening:
                found.add(listening[link])
    return found


def reached_by_another_user(name: str) -> bool:
    """Return whether user ``nobody`` gets a byte from a unix socket, or can even connect to a file.

    It needs root.
    """
    came, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            gc.freeze()  # what other tests have left of gRPC must not be collected here
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(send, b"1" if _gets_a_byte(name) else b"0")
        finally:
            os._exit(0)
    os.close(send)
    os.waitpid(child, 0)
    with os.fdopen(came, "rb") as answer:
        return answer.read() != b"0"


def _gets_a_byte(name: str) -> bool:
    is_abstract = name.startswith("@")
    kind = socket.SOCK_SEQPACKET if is_abstract else socket.SOCK_STREAM
    with socket.socket(socket.AF_UNIX, kind) as connection:
        connection.settimeout(hang_s())
        try:
            connection.connect(f"\0{name[1:]}" if is_abstract else name)
            if not is_abstract:
                return True
            connection.send(bytes(16))
            return bool(connection.recv(64))
        except OSError:
            return False
