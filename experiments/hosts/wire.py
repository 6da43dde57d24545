"""The wire between hosts, which passes IP packets on, delays them or drops them.

Each of its ends is a tun device in a host's network namespace. It does what netem does in a kernel
that has it, packet by packet below TCP. The kernels of the hosts retransmit what is lost. What is
cut off gets no answer at all, not even a reset.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import selectors
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from mrflight.system.closeable import Closeable

TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_MAX_PACKET = 1 << 16
_AT_ONCE = 64
"""The packets that are taken from one end before the other end has its turn."""
_JOIN_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Cut:
    """Two networks between which no packets pass, in either direction."""

    one: IPv4Network
    other: IPv4Network

    def separates(self, source: IPv4Address, target: IPv4Address) -> bool:
        """Return whether a packet crosses the cut."""
        return (source in self.one and target in self.other) or (
            source in self.other and target in self.one
        )


@dataclass(frozen=True)
class Trigger:
    """What happens after ``after_bytes`` more bytes from ``source`` to ``target``.

    Without a ``cut`` it is that the wire says so. A cut may heal later.
    """

    source: IPv4Network
    target: IPv4Network
    after_bytes: int
    cut: Cut | None = None
    heals_after_s: float | None = None


@dataclass(frozen=True)
class Impairment:
    """The delay and loss of every packet. ``delay_s`` is for one direction."""

    delay_s: float = 0.0
    loss: float = 0.0


STILL = Impairment()


@dataclass
class WireCounts:
    """The counts of the wire so far."""

    packets: int = 0
    """The packets that were passed on."""
    lost: int = 0
    cut_off: int = 0
    """The packets that a cut dropped."""
    in_clear: int = 0
    """The packets with what nobody on the network may read."""
    bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    """The bytes that were passed on, by source and target."""


def open_tun(name: str) -> int:
    """Return a tun device of this thread's network namespace. It ends with its descriptor."""
    tun = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    try:
        request = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(tun, _TUNSETIFF, request)
    except OSError:
        os.close(tun)
        raise
    return tun


class Wire(Closeable):
    """Joins tun devices by one thread, and closes them. Safe for many threads.

    ``ends`` has the device of each network. ``seed`` and the order of the packets decide which
    packets are lost. Packets that have ``secret`` in them are counted.
    """

    def __init__(self, ends: Mapping[IPv4Network, int], seed: int, secret: bytes = b"") -> None:
        self.counts = WireCounts()
        self.triggered_at: float | None = None
        """When the trigger that was armed was pulled, on the monotonic clock."""
        self.triggered = threading.Event()
        self._secret = secret
        self._ends = tuple(ends.values())
        self._networks = tuple(ends)
        self._end_of: dict[bytes, int | None] = {}
        """The end of each address that was seen."""
        self._random = random.Random(seed)
        self._lock = threading.Lock()  # held for a packet at most
        self._impairment = STILL
        self._cuts: tuple[Cut, ...] = ()
        self._trigger: Trigger | None = None
        self._heals_at: float | None = None
        self._late: list[tuple[float, int, int, bytes]] = []
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._pass_on, name="wire", daemon=True)
        self._thread.start()

    def apply(self, impairment: Impairment) -> None:
        """Apply this impairment from now on."""
        with self._lock:
            self._impairment = impairment

    def arm(self, trigger: Trigger) -> None:
        """Pull the trigger as soon as so many bytes have passed."""
        with self._lock:
            self._trigger = trigger

    def cut(self, cut: Cut) -> None:
        """Cut now."""
        with self._lock:
            self._cuts = (cut,)

    def heal(self) -> None:
        """Pass on everything from now on, and cancel an armed trigger."""
        with self._lock:
            self._impairment, self._cuts = STILL, ()
            self._trigger = self._heals_at = None

    def close(self) -> None:
        if self._thread.is_alive():
            os.close(self._wake)  # the thread reads this as an end
            self._thread.join(_JOIN_TIMEOUT_S)
            for descriptor in (*self._ends, self._woken):
                os.close(descriptor)

    def _pass_on(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for number, end in enumerate(self._ends):
                selector.register(end, selectors.EVENT_READ, number)
            while True:
                ready = [key for key, _ in selector.select(self._next_due_in())]
                if any(key.fd == self._woken for key in ready):
                    return
                for key in ready:
                    self._take(key.data)
                self._give()

    def _next_due_in(self) -> float | None:
        """Return the seconds until a delayed packet is due or a cut ends."""
        due = [self._late[0][0]] if self._late else []
        if self._heals_at is not None:
            due.append(self._heals_at)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _take(self, end: int) -> None:
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(self._ends[end], _MAX_PACKET)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4:
                continue  # every device sends IPv6 announcements
            if self._secret and self._secret in packet:
                self.counts.in_clear += 1
            with self._lock:
                delay_s = self._delay_s(packet)
            other = self._end_towards(packet[16:20])
            if delay_s is None or other is None:
                continue
            if delay_s == 0.0:
                self._send(other, packet)
            else:
                order = self.counts.packets
                heapq.heappush(self._late, (time.monotonic() + delay_s, order, other, packet))

    def _end_towards(self, target: bytes) -> int | None:
        """Return the end of an address; None if it is nobody's."""
        if target not in self._end_of:
            address = IPv4Address(target)
            ends = (end for end, network in enumerate(self._networks) if address in network)
            self._end_of[target] = next(ends, None)
        return self._end_of[target]

    def _delay_s(self, packet: bytes) -> float | None:
        """Return the delay of a packet; None if it is dropped."""
        source, target = IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
        self._follow_trigger(source, target, len(packet))
        if self._cuts and any(cut.separates(source, target) for cut in self._cuts):
            self.counts.cut_off += 1
            return None
        if self._impairment.loss and self._random.random() < self._impairment.loss:
            self.counts.lost += 1
            return None
        self.counts.packets += 1
        pair = (str(source), str(target))
        self.counts.bytes[pair] = self.counts.bytes.get(pair, 0) + len(packet)
        return self._impairment.delay_s

    def _follow_trigger(self, source: IPv4Address, target: IPv4Address, size: int) -> None:
        now = time.monotonic()
        if self._heals_at is not None and now >= self._heals_at:
            self._cuts, self._heals_at = (), None
        armed = self._trigger
        if armed is None or source not in armed.source or target not in armed.target:
            return
        self._trigger = replace(armed, after_bytes=armed.after_bytes - size)
        if self._trigger.after_bytes <= 0:
            self._trigger, self.triggered_at = None, now
            if armed.cut is not None:
                self._cuts = (armed.cut,)
            if armed.heals_after_s is not None:
                self._heals_at = now + armed.heals_after_s
            self.triggered.set()

    def _give(self) -> None:
        """Send the delayed packets that are due."""
        while self._late and self._late[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(self._late)
            self._send(end, packet)

    def _send(self, end: int, packet: bytes) -> None:
        try:
            os.write(self._ends[end], packet)
        except OSError:
            # The queue is full or the device is down: the packet is lost.
            self.counts.lost += 1
