"""A stock reader of DuckLakes: DuckDB with its ducklake extension, in a process that stays.

It is a process of the environment that ``make services`` builds, and knows nothing of mrflight. One
answers for all tests of this process. It attaches nothing from one test to the next.
"""

from __future__ import annotations

import json
import select
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.suite.run import keep
from tests.support.suite.waiting import TooSlow, await_end, hang_s

_PROGRAM = """
import glob, importlib.util, json, os, sys, duckdb

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what DuckDB prints is not an answer
connection = duckdb.connect(
    config={
        "autoinstall_known_extensions": False,
        "allow_unsigned_extensions": True,  # a look at each signature takes 0.2 s
    }
)
for name in ("ducklake", "sqlite_scanner", "postgres_scanner", "httpfs"):
    folder = os.path.dirname(importlib.util.find_spec(f"duckdb_extension_{name}").origin)
    (file,) = glob.glob(f"{folder}/extensions/v{duckdb.__version__}/*")
    connection.execute(f"LOAD '{file}'")
for line in sys.stdin:
    cursor = connection.cursor()  # its settings end with it
    try:
        rows = []
        for statement in json.loads(line):
            rows = cursor.execute(statement).fetchall()
        answer = {"rows": rows}
    except Exception as error:
        answer = {"error": str(error)}
    cursor.close()
    connection.execute("DETACH DATABASE IF EXISTS lake")
    connection.execute("DROP TEMPORARY SECRET IF EXISTS mrflight")
    answers.write(json.dumps(answer, default=str) + "\\n")
    answers.flush()
"""

_readers: dict[Path, DuckDBReader] = {}


class DuckDBReader:
    """Runs statements in DuckDB, for one thread after the other."""

    def __init__(self, python: Path) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [str(python), "-I", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        keep(self._process.pid)

    @classmethod
    def of(cls, python: Path) -> DuckDBReader:
        """Return the reader of this environment, which lasts as long as this process."""
        if python not in _readers:
            _readers[python] = cls(python)
        return _readers[python]

    def rows(self, statements: Sequence[str]) -> list[list[Any]]:
        """Run statements, and return the rows of the last one. Raises ValueError with an error."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with self._lock:
            process.stdin.write(json.dumps(list(statements)) + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], hang_s())[0]:
                raise TooSlow(f"DuckDB has not answered {statements}")
            line = process.stdout.readline()
        assert line, "the reader has ended"
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        await_end(self._process, "the reader of DuckLakes")
        self._process.stdout.close()


def end_readers() -> None:
    """End the readers that this process has started."""
    while _readers:
        _, reader = _readers.popitem()
        reader.close()
