"""What the doctor has found, and how it is shown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from mrflight.errors import MrflightError
from mrflight.system.signals import run_interruptibly
from mrflight.units import format_count

State = Literal["ok", "warning", "problem"]
"""With a warning jobs run, but slower or not for long; with a problem they fail."""

_WIDTH = 100


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    """What was looked at, such as ``kernel`` or the URL of a store."""
    state: State
    what: str
    """What was found."""
    advice: str = ""
    """What to do, if it is not ok."""


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything that was found, as ``--json`` prints it."""

    state: State
    findings: list[Finding]

    @classmethod
    def of(cls, findings: list[Finding]) -> Diagnosis:
        """Return the diagnosis, whose state is the worst of the findings."""
        states = {finding.state for finding in findings}
        worst: State = "ok"
        if "problem" in states:
            worst = "problem"
        elif "warning" in states:
            worst = "warning"
        return cls(worst, findings)

    def text(self) -> str:
        """Return the findings for people, and a last line that counts them."""
        lines = [line for finding in self.findings for line in _lines(finding)]
        counts = [
            format_count(sum(each.state == state for each in self.findings), state)
            for state in ("problem", "warning")
        ]
        return "\n".join([*lines, "", ", ".join(counts)])


def _lines(finding: Finding) -> Iterator[str]:
    yield from _wrap(f"{finding.state:<8} {finding.check}: {finding.what}", "", 9)
    if finding.advice:
        yield from _wrap(finding.advice, " " * 9 + "-> ", 12)


def _wrap(text: str, first: str, indent: int) -> list[str]:
    """Return lines, the others of which are indented. Commands and paths are not cut."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def checked(
    check: str, findings: Callable[[], Iterable[Finding]], timeout_s: float, advice: str = ""
) -> list[Finding]:
    """Return the findings of a check that may fail or hang, either of which is a problem.

    The error of mrflight says what to do; ``advice`` is for a check that does not end.
    """
    try:
        return run_interruptibly(lambda: list(findings()), timeout_s)
    except MrflightError as error:
        return [Finding(check, "problem", str(error))]
    except TimeoutError:
        what = f"it does not answer within {timeout_s:g} s"
        return [Finding(check, "problem", what, advice)]
