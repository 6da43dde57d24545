"""Describes how a call or a server on Ray was lost."""

from __future__ import annotations

from ray import exceptions

_MAX_CHARACTERS = 400
"""How much of a message of Ray is shown."""


def describe_loss(error: BaseException) -> str:
    """Return a text to follow "it", for a call or a server that Ray has ended or lost."""
    match error:
        case exceptions.OutOfMemoryError():
            return (
                f"was ended by Ray because memory ran out ({first_line(error)}); give the job a "
                "smaller cluster.memory or fewer cluster.workers"
            )
        case exceptions.NodeDiedError() | exceptions.LocalRayletDiedError():
            return f"was lost with its node ({first_line(error)})"
        case exceptions.TaskCancelledError():
            return "was stopped"
        case exceptions.WorkerCrashedError():
            return "ended with its worker process, which was killed or crashed"
        case exceptions.RayTaskError():
            return f"could not be started: {first_line(error.cause or error)}"
        case exceptions.ActorUnavailableError():
            return "cannot be reached: its process, or its node, is gone"
        case exceptions.ActorDiedError() if "node" in first_line(error):
            return f"was lost with its node ({first_line(error)})"
        case exceptions.ActorDiedError():
            return "was lost by Ray: its process was killed or crashed"
        case _:
            return f"was lost by Ray ({type(error).__name__}: {first_line(error)})"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:_MAX_CHARACTERS]
