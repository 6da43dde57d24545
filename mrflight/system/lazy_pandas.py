"""pyarrow without pandas, until somebody imports it.

At the first `pa.array` or `pa.scalar` pyarrow looks whether pandas is there,
which means importing it: 0.2 to 0.4 s in every worker, as long as all else
that a small job does. It remembers when there was none.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


def pandas_later() -> None:
    """Have pyarrow find no pandas, in this process and its forks, before pandas is imported.

    From then on all is as it always is: `to_pandas` imports pandas, and
    `pa.array` knows what a Series is once it has been. Where pandas is loaded
    already, or pyarrow has no such look, nothing happens.
    """
    if "pandas" in sys.modules or not hasattr(pa.lib, "_pandas_api"):
        return
    hidden = _Pandas()
    sys.meta_path.insert(0, hidden)
    pa.array([])  # pyarrow looks
    hidden.is_hidden = False


class _Pandas(MetaPathFinder):
    """Finds pandas for whoever imports it, and tells pyarrow when it is loaded."""

    is_hidden = True

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.is_hidden:
            raise ModuleNotFoundError("pandas is not looked for yet", name=name)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _ = pa.lib._pandas_api.pd  # pyarrow looks once more

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
