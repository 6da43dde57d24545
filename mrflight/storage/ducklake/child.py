"""The child process that runs SQL in DuckDB with its ducklake extension.

It is run as a script by the Python of another environment, so it imports nothing of mrflight. It
reads one JSON object per line from stdin, ``{"load": [...]}`` or ``{"sql": ...}``, and answers
each with one line on stdout: ``{"rows": [...]}``, or ``{"error": ..., "kind": ...}``. It ends when
its stdin does, or when its parent is gone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

_WATCH_S = 0.5

_EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner", "httpfs")


def main() -> None:
    """Answer requests until stdin ends."""
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever DuckDB prints is not an answer
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    threading.Thread(target=_watch, args=(int(sys.argv[1]),), daemon=True).start()
    catalog = None
    while True:
        request = json.loads(requests.get())
        try:
            if catalog is None:
                catalog = _Catalog()
            answer: dict[str, Any] = {"rows": catalog.answer(request)}
        except Exception as error:
            answer = {"error": str(error) or repr(error), "kind": type(error).__name__}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


def _read(requests: queue.SimpleQueue[str]) -> None:
    """Read stdin in a thread of its own, so that its end is seen during a long query."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _watch(parent: int) -> None:
    """End with the parent even if another process has inherited the other end of stdin."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


class _Catalog:
    def __init__(self) -> None:
        import duckdb

        self._files = _extension_files(duckdb.__version__)
        self._connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                # Lakes with other credentials may be next, and our files are read once.
                "enable_external_file_cache": False,
                # DuckDB hashes each extension for its signature, which takes 0.2 s of a processor
                # each. It says nothing of files that pip has put beside the code that runs here.
                "allow_unsigned_extensions": set(_EXTENSIONS) <= self._files.keys(),
            }
        )

    def answer(self, request: dict[str, Any]) -> list[Any]:
        for name in request.get("load", ()):
            self._load(name)
        if "sql" not in request:
            return []
        return list(self._connection.execute(request["sql"]).fetchall())

    def _load(self, name: str) -> None:
        if name in self._files:
            quoted = str(self._files[name]).replace("'", "''")
            self._connection.execute(f"LOAD '{quoted}'")
        else:
            self._connection.execute(f"LOAD {name}")  # a user may have installed it


def _extension_files(version: str) -> dict[str, Path]:
    """Return the extensions for this DuckDB that are packages of this Python, by their names."""
    files = {}
    for name in _EXTENSIONS:
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        if found is not None and found.origin is not None:
            file = f"extensions/v{version}/{name}.duckdb_extension"
            if (place := Path(found.origin).parent / file).exists():
                files[name] = place
    return files


if __name__ == "__main__":
    main()
