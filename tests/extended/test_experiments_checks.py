"""The checks of the experiments tell a wrong result from a right one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.commands.experiments import ROOT, lineitem


class TestOracle:
    """``experiments/oracle.py`` tells a wrong result from a right one."""

    RIGHT = (("a", 3), ("b", 1))

    @pytest.mark.parametrize(
        ("rows", "fault"),
        [
            (RIGHT[::-1], None),
            ((("a", 3),), "1 sites, not 2"),
            ((("a", 3), ("a", 3)), "more than once"),
            ((("a", 3), ("c", 1)), "that no visit names"),
            ((("a", 3), ("b", 2)), "wrong number of clicks"),
        ],
    )
    def test_check(
        self,
        monkeypatch: pytest.MonkeyPatch,
        rows: tuple[tuple[str, int], ...],
        fault: str | None,
    ) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments import oracle

        if fault is None:
            oracle.check(clicks(rows), clicks(self.RIGHT), "this")
        else:
            with pytest.raises(oracle.WrongResultError, match=fault):
                oracle.check(clicks(rows), clicks(self.RIGHT), "this")


def clicks(rows: tuple[tuple[str, int], ...]) -> pa.Table:
    return pa.table({"url": [url for url, _ in rows], "clicks": [count for _, count in rows]})


class TestChecks:
    """``experiments/comparison/checks.py`` tells a wrong result from a right one."""

    @pytest.mark.parametrize(
        ("parts", "fault"),
        [
            (([5, 6, 6], [1, 2, 5]), None),
            (([], [1, 2]), None),
            (([1, 3, 2],), "is not sorted by l_partkey"),
            (([1, 4], [3, 9]), "ends with 4, .* starts with 3"),
        ],
    )
    def test_sorted(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        parts: tuple[list[int], ...],
        fault: str | None,
    ) -> None:
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import checks

        files = written(tmp_path, "l_partkey", parts)
        with raises_or_not(checks.WrongResultError, fault):
            checks.check_sorted(files, "l_partkey", "this")

    @pytest.mark.parametrize(
        ("names", "parts", "fault"),
        [
            (("a", "b"), ([1, 1, 2], [3]), None),
            (("a", "b"), ([1, 2], [2, 3]), "1 times a key lies in one part more"),
            (("part=1/a", "part=1/b"), ([1, 2], [2, 3]), None),
            (("part=1/a", "part=2/a"), ([1, 2], [2, 1]), "2 times a key lies in one part more"),
        ],
    )
    def test_together(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        names: tuple[str, ...],
        parts: tuple[list[int], ...],
        fault: str | None,
    ) -> None:
        pytest.importorskip("duckdb")
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import checks

        files = written(tmp_path, "l_orderkey", parts, names)
        with raises_or_not(checks.WrongResultError, fault):
            checks.check_together(files, "l_orderkey", "this")

    def test_a_value_that_moved_to_another_row(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("duckdb")
        monkeypatch.syspath_prepend(str(ROOT))
        from experiments.comparison import checks
        from experiments.comparison.cases import Case

        right = lineitem(40)
        for name, rows in {
            "given": right,
            "same": right.take(list(range(39, -1, -1))),
            "short": right.slice(1),
            "moved": right.set_column(
                2, "l_suppkey", right["l_suppkey"].take([1, 0, *range(2, 40)])
            ),
        }.items():
            (tmp_path / name).mkdir()
            pq.write_table(rows, tmp_path / name / "rows.parquet")
        oracle = checks.Oracle(Case("repartition", "", 1.0), tmp_path / "given")
        oracle.check(tmp_path / "same", "this")
        for wrong in ("short", "moved"):
            with pytest.raises(checks.WrongResultError, match="sum of hashes"):
                oracle.check(tmp_path / wrong, "this")


def written(
    folder: Path,
    column: str,
    parts: tuple[list[int], ...],
    names: tuple[str, ...] = ("0", "1"),
) -> list[str]:
    files = [folder / f"{name}.parquet" for name in names[: len(parts)]]
    for path, values in zip(files, parts, strict=True):
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({column: pa.array(values, pa.int64())}), path)
    return [str(path) for path in files]


def raises_or_not(error: type[Exception], fault: str | None) -> AbstractContextManager[Any]:
    return nullcontext() if fault is None else pytest.raises(error, match=fault)
