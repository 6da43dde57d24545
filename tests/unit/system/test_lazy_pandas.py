"""pyarrow imports pandas only when it is needed, and works with it as usual from then on."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> list[str]:
    """Return what a new interpreter prints after `lazy_pandas`."""
    start = "import sys; from mrflight.system.lazy_pandas import lazy_pandas; lazy_pandas()\n"
    start += "import pyarrow as pa\n"
    done = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_arrays_and_scalars_do_not_import_pandas() -> None:
    code = "pa.array([1]); pa.scalar(1); pa.array([1]).to_numpy(); print('pandas' in sys.modules)"
    assert run(code) == ["False"]


def test_to_pandas_imports_pandas() -> None:
    assert run("print(type(pa.table({'a': [1]}).to_pandas()).__name__)") == ["DataFrame"]


def test_an_array_imports_it_as_well() -> None:
    assert run("print(type(pa.array([1]).to_pandas()).__name__)") == ["Series"]


@pytest.mark.parametrize(
    "statement",
    [
        "import pandas",
        pytest.param("import pandas as pd, pandas", marks=pytest.mark.slow),
        pytest.param("from pandas import Series", marks=pytest.mark.slow),
    ],
)
def test_a_series_is_recognized_once_pandas_is_imported(statement: str) -> None:
    series = "pandas.Series([1.0, float('nan')])"
    code = f"{statement}\nimport pandas\nprint(pa.array({series}).null_count)"
    assert run(code) == ["1"]  # as pyarrow takes the NaN of a Series, and of nothing else


def test_pandas_itself_is_unchanged() -> None:
    code = (
        "import pandas, pandas.api.types, importlib.util\n"
        "print(importlib.util.find_spec('pandas').origin == pandas.__file__)\n"
        "print(pandas.DataFrame({'a': [1]}).convert_dtypes(dtype_backend='pyarrow').dtypes['a'])\n"
    )
    assert run(code) == ["True", "int64[pyarrow]"]


def test_nothing_happens_if_pandas_is_loaded() -> None:
    code = (
        "import sys, pandas\nfrom mrflight.system.lazy_pandas import lazy_pandas\nlazy_pandas()\n"
    )
    code += "print([type(finder).__name__ for finder in sys.meta_path].count('_Pandas'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
