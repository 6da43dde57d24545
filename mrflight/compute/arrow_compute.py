"""`pyarrow.compute`, which is loaded when the first of its functions is used.

Loading it takes 40 ms, because it makes a Python function of each of Arrow's 300. Many drivers call
none of them, and neither does a worker that only adds up integers by keys that are integers. So
modules import this one, as ``pc``, and not `pyarrow.compute`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    found = getattr(import_module("pyarrow.compute"), name)
    globals()[name] = found  # the next use finds it at once
    return found
