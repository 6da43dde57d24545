"""Run as a script in place of Python: the process of a catalog that fails at a chosen moment.

``MRFLIGHT_TEST_FAULT`` has the fault and a file, which is written when the fault has happened, so
that it happens once:

- ``before_add``, ``before_commit``, ``after_commit``: the driver is killed around that statement
- ``no_answer``: the commit takes effect, and then this process ends without an answer
- ``no_commit``: this process ends before the commit
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import Any

FAULTS = ("before_add", "before_commit", "after_commit", "no_commit", "no_answer")


def main() -> None:
    fault, marker = os.environ["MRFLIGHT_TEST_FAULT"].split(":", 1)
    script = next(word for word in sys.argv[1:] if word.endswith(".py"))
    module = runpy.run_path(script)
    parent = int(sys.argv[-1])
    catalog = module["_Catalog"]
    run = catalog.answer
    named = False

    def strike() -> None:
        if os.path.exists(marker):
            return
        with open(marker, "w"):
            pass
        if fault not in ("no_answer", "no_commit"):
            os.kill(parent, signal.SIGKILL)
        os._exit(1)

    def answer(self: Any, request: dict[str, Any]) -> list[Any]:
        nonlocal named
        sql = request.get("sql", "")
        is_commit = sql == "COMMIT" and named
        if fault == "before_add" and "ducklake_add_data_files" in sql:
            strike()
        if is_commit and fault in ("before_commit", "no_commit"):
            strike()
        rows: list[Any] = run(self, request)
        if is_commit and fault in ("after_commit", "no_answer"):
            strike()
        named = "extra_info" in sql  # what follows is the commit of the job
        return rows

    catalog.answer = answer
    sys.argv = [script, sys.argv[-1]]
    module["main"]()


if __name__ == "__main__":
    main()
