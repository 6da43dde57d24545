"""Processes of a run that ended otherwise than by what the run did to them."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from experiments.chaos_plan import Strike

_SILENT = re.compile(
    r"^the (?:data|metadata) server.* has not answered for .* and is ended", re.MULTILINE
)
_ENDED = re.compile(
    r"^(the (?:data|metadata) server.*?) (?:was killed by|ended with code) (\w+)", re.MULTILINE
)
_FORKS = re.compile(
    r"^the process that servers and workers are forked from (?:was killed by|ended).*", re.MULTILINE
)
_WORKER = re.compile(r"^.*it crashed in native code, by \w+.*$", re.MULTILINE)


def told_by(stderr: str, strikes: Sequence[Strike]) -> list[str]:
    """The ends of servers and workers that a driver tells of and nobody wanted.

    SIGKILL is what ``strikes`` send, each once, and a driver to its own servers that are silent.
    With the process that all were forked from all end by it.
    """
    forks_ended = _FORKS.findall(stderr)
    forks_killed = sum(strike.fault == "kill" and strike.victim == "forks" for strike in strikes)
    crashes = forks_ended[forks_killed:]
    kills = sum(
        strike.fault == "kill" and strike.victim in ("data", "metadata") for strike in strikes
    )
    kills += len(_SILENT.findall(stderr))
    for ended in _ENDED.finditer(stderr):
        if ended[2] == "SIGKILL" and (kills > 0 or forks_ended):
            kills -= 1
        else:
            crashes.append(ended[0])
    return crashes + _WORKER.findall(stderr)


def of_process(name: str, code: int, was_killed: bool) -> list[str]:
    """What is wrong with how a process ended, which was killed by the run or told to stop."""
    if code == 0 or (was_killed and code == -signal.SIGKILL):
        return []
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return [f"{name} {how}"]
