"""Run a command, and find out what its processes spent their processor time for."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments import timed_process
from experiments.budgeting.stages import Role, Stage, Threads, own_frames, role_of, stage_of

_AROUND = (
    "mrflight.system.signals:",
    "mrflight.system.deadlines:",
    "mrflight.system.prefetch:",
    "mrflight.system.retry:",
    "mrflight.shuffle.wire.calls:",
)
"""These call what they are given."""

SAMPLER = Path(__file__).parent / "sampler"


class Profile(NamedTuple):
    """What a command and all its processes took."""

    wall_s: float
    cpu_s: float
    """The processor time that the system says they have used, without that of the sampler."""
    sampler_s: float
    seconds: Counter[tuple[Role, Stage]]
    functions: Counter[tuple[Stage, str]]
    """The same seconds by stage and by the innermost function of mrflight, or the thread."""
    stdout: str

    @property
    def stages(self) -> dict[Stage, float]:
        """The processor seconds of each stage; what no sample has is unattributed."""
        found = dict.fromkeys(Stage, 0.0)
        for (_, stage), seconds in self.seconds.items():
            found[stage] += seconds
        found[Stage.UNKNOWN] += self.cpu_s - sum(found.values())
        return found


def profile(command: Sequence[str], timeout_s: float, interval_s: float = 0.01) -> Profile:
    """Run a command with the sampler in each process of Python."""
    with tempfile.TemporaryDirectory(prefix="budget-") as folder:
        sampled = ["env", f"PYTHONPATH={SAMPLER}", f"BUDGET_SAMPLES={folder}"]
        sampled.append(f"BUDGET_INTERVAL_S={interval_s}")
        timed = timed_process.run([*sampled, *command], timeout_s)
        seconds, functions = Counter[tuple[Role, Stage]](), Counter[tuple[Stage, str]]()
        sampler_s = 0.0
        for path in Path(folder).iterdir():
            process = Process(path.read_bytes().rstrip(b"\0").decode())
            sampler_s += process.sampler_s
            for stage, frame, spent in process.spent():
                seconds[process.role, stage] += spent
                functions[stage, frame] += spent
    return Profile(
        timed.wall_s, timed.cpu_s - sampler_s, sampler_s, seconds, functions, timed.stdout
    )


class Process:
    """The samples of one process, as `sampler/sitecustomize.py` writes them."""

    def __init__(self, samples: str) -> None:
        lines = [line.split() for line in samples.splitlines()]
        self._stacks = {words[1]: own_frames(words[2:]) for words in lines if words[0] == "S"}
        self._lines = [words for words in lines if words[0] in "PNE"]
        self.sampler_s = sum(int(words[1]) for words in lines if words[0] == "O") / 1e9
        self.role = role_of(self._stacks.values())

    def spent(self) -> Iterator[tuple[Stage, str, float]]:
        """Yield a stage, the innermost frame, and seconds, for each note."""
        threads = Threads(self.role)
        for kind, *words in self._lines:
            seconds = int(words[-1]) / 1e9
            if kind == "P":
                stack = self._stacks[words[0]]
                stage = stage_of(stack, self.role)
                threads.see(stage)
                yield stage, _function(stack), seconds
            elif kind == "N":
                stage = threads.stage_of(words[0], self._stacks[words[1]])
                yield stage, words[0], seconds
            else:
                stack = self._stacks[words[0]]
                yield stage_of(stack, self.role), "ended threads", seconds


def _function(stack: Sequence[str]) -> str:
    """Return the innermost function of mrflight that does something of its own."""
    ours = (each for each in stack if each.startswith("mrflight."))
    return next((each for each in ours if not each.startswith(_AROUND)), stack[0] if stack else "-")
