"""How the servers in Java are started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

QUICK_START = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    # The jars are those of their makers: whether their code is sound need not be looked at.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xms32m",
    "-Xmx256m",  # enough for a server that all workers of a run use
)
"""The JVM's own defaults take about twice the processor time for a start.

What measures the servers leaves them out, as code that runs for long is compiled less well.
"""


def java_command(temporary: Path, options: Sequence[str], class_path: str) -> list[str]:
    """Return the command that runs a class, whose name comes next."""
    # Otherwise a JVM that is killed leaves a file of counters in the system's temporary folder.
    nothing_left = ("-XX:-UsePerfData", f"-Djava.io.tmpdir={temporary}")
    return ["java", *options, *nothing_left, "-Djava.net.preferIPv4Stack=true", "-cp", class_path]
