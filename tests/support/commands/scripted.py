"""Tasks whose attempts do what a script says, in the process of a real worker."""

from __future__ import annotations

import os
import signal
import time

import msgspec

from mrflight.errors import InputError, JobFailedError

HOUR_S = 3600.0


class ScriptedTask(msgspec.Struct, frozen=True):
    """A task with a script: what each of its attempts does, in order. Later attempts succeed.

    ``succeed``; ``raise``, an error that another attempt may not meet; ``refuse``, one that it
    will; ``crash``, an error of nobody's making; ``exit`` and ``kill`` of the process; ``hang``.
    """

    number: int
    script: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"task {self.number}"


def perform(task: ScriptedTask, attempt: int) -> tuple[int, int]:
    """Do what the script says; the number of the task and of the attempt that succeeded."""
    match task.script[attempt] if attempt < len(task.script) else "succeed":
        case "raise":
            raise JobFailedError(f"{task.name} failed on purpose")
        case "refuse":
            raise InputError(f"{task.name} cannot be done")
        case "crash":
            raise ZeroDivisionError(task.name)
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(HOUR_S)
    return task.number, attempt
