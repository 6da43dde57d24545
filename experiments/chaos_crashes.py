"""Find processes of a run that ended in a way that the run did not cause."""

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


def unexpected_ends(stderr: str, strikes: Sequence[Strike]) -> list[str]:
    """Return the ends of servers and workers that a driver reports and no fault explains.

    ``strikes`` send SIGKILL, each once, and a driver sends it to its own servers that do not
    answer. If the fork server ends, all processes forked from it end by SIGKILL.
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


def unexpected_end(name: str, code: int, was_killed: bool) -> list[str]:
    """Return what is wrong with the end of a process that the run killed or stopped."""
    if code == 0 or (was_killed and code == -signal.SIGKILL):
        return []
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return [f"{name} {how}"]
