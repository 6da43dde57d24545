"""Helpers of the tests of examples and experiments."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[3]
CLICKS = ROOT / "examples" / "clicks"
FLIGHT_CLIENT = ROOT / "examples" / "flight_client"
SESSIONS = ROOT / "examples" / "sessions"
TPCH = ROOT / "examples" / "tpch"

MONEY = pa.decimal128(15, 2)
PROGRAM_TIMEOUT_S = 600.0
"""An experiment that takes 20 s alone takes 100 s beside four others on a slow machine."""


def load(path: Path) -> ModuleType:
    """The module in a file that no package holds."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def generate_tpch(scale: float, folder: Path) -> None:
    """Write TPC-H's tables as Parquet files; skip the test where the generator is not installed."""
    generate = load(TPCH / "generate.py")
    try:
        generate.generator()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    generate.write(scale, folder)


def python(*words: object, timeout_s: float = PROGRAM_TIMEOUT_S) -> str:
    """Return what ``python words`` prints; fail with its output unless it exits with 0 in time."""
    command = [sys.executable, *map(str, words)]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        printed = b"".join(text for text in (error.stdout, error.stderr) if text)
        pytest.fail(f"{command} took over {timeout_s:g} s and printed {printed.decode()}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lineitem(rows: int) -> pa.Table:
    """TPC-H's table, but for the values: four lines an order, parts in no order."""
    number = np.arange(rows)
    price = pa.array(number * 7 % 100_000, pa.int64()).cast(pa.decimal128(38)).cast(MONEY)
    day = pa.array(number % 2500 + 8000, pa.int32()).cast(pa.date32())
    text = pa.array([f"text {i % 97}" for i in range(rows)])
    return pa.table(
        {
            "l_orderkey": number // 4,
            "l_partkey": number * 7919 % 1009,
            "l_suppkey": number % 11,
            "l_linenumber": pa.array(number % 4 + 1, pa.int32()),
            **{f"l_{name}": price for name in ("quantity", "extendedprice", "discount", "tax")},
            **{f"l_{name}": text for name in ("returnflag", "linestatus")},
            **{f"l_{name}date": day for name in ("ship", "commit", "receipt")},
            **{f"l_{name}": text for name in ("shipinstruct", "shipmode", "comment")},
        }
    )
