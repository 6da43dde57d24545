"""What a worker reports about an attempt besides its result, or its error."""

from __future__ import annotations

import msgspec

from mrflight.events.kinds import OperatorWork


class TaskReport(msgspec.Struct, frozen=True):
    """What an attempt took. `AttemptEnded` describes the fields."""

    worker: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    sent: dict[str, int] = {}
    fetched: dict[str, int] = {}
    spilled_bytes: int = 0
    memory_bytes: int = 0
    operators: tuple[OperatorWork, ...] = ()


NO_REPORT = TaskReport()
"""Of an attempt whose worker did not answer."""

_NAME = "mrflight_report"


def attach_report(error: BaseException, report: TaskReport) -> None:
    """Let an error carry a report, also through pickle."""
    vars(error)[_NAME] = report


def report_of(error: BaseException) -> TaskReport:
    """Return the report that an error carries; some errors lose it when they are pickled."""
    found = vars(error).get(_NAME)
    return found if isinstance(found, TaskReport) else NO_REPORT


def server_name(location: str) -> str:
    """Return the short name of a server: ``data0`` for a socket of a job's own, else host:port."""
    scheme, _, rest = location.partition("://")
    if scheme.startswith("grpc+unix"):
        return rest.rpartition("/")[2].removesuffix(".sock")
    return rest or location
