"""Keeps pyarrow from importing pandas before anything else does.

At the first `pa.array` or `pa.scalar` pyarrow checks whether pandas is installed by importing it.
That takes 0.2 to 0.4 s in every worker, as long as everything else that a small job does. pyarrow
remembers if there was none.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


def lazy_pandas() -> None:
    """Make pyarrow find no pandas, in this process and its forks, until pandas is imported.

    After that everything works as usual: `to_pandas` imports pandas, and `pa.array` recognizes a
    Series once pandas is imported. Nothing happens if pandas is loaded already, or if this version
    of pyarrow has no such check.
    """
    if "pandas" in sys.modules or not hasattr(pa.lib, "_pandas_api"):
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    pa.array([])  # pyarrow checks for pandas here
    finder.is_hidden = False


class _PandasFinder(MetaPathFinder):
    """Finds pandas for those who import it, and makes pyarrow check again when it is loaded."""

    is_hidden = True

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.is_hidden:
            raise ModuleNotFoundError("pandas is hidden from pyarrow for now", name=name)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _ = pa.lib._pandas_api.pd  # pyarrow checks again

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
