"""``examples/clicks``: its data and its own code."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from tests.support.commands.experiments import CLICKS, ROOT, contents, load, python
from tests.support.commands.mrflight import mrflight


class TestClicks:
    """``examples/clicks``."""

    @pytest.mark.parametrize(("keys", "sites"), [("unique", 5003), ("37", 37)])
    def test_has_exactly_the_rows_and_keys(self, tmp_path: Path, keys: str, sites: int) -> None:
        python(
            CLICKS / "generate.py", "--rows=5003", "--files=4", f"--keys={keys}", "--out", tmp_path
        )
        files = sorted(tmp_path.glob("*.csv"))
        visits = pa.concat_tables([pacsv.read_csv(path) for path in files])
        per_site = Counter(visits["url"].to_pylist())
        assert (len(files), visits.num_rows, len(per_site)) == (4, 5003, sites)
        assert max(per_site.values()) - min(per_site.values()) <= 1
        assert {len(url) for url in per_site} == {18}
        assert set(visits["visitor"].to_pylist()) == {"User", "Robot"}

    def test_unique_keys_are_in_random_order(self) -> None:
        generate = load(CLICKS / "generate.py")
        rows = 10_000
        numbers = generate.np.arange(rows, dtype=generate.np.uint64)
        mixed = generate.permute(numbers, rows, 5).astype(int)
        assert sorted(mixed) == list(range(rows))
        ascents = (mixed[1:] > mixed[:-1]).mean()
        assert 0.45 < ascents < 0.55

    def test_sorted_keys_have_a_file_each(self, tmp_path: Path) -> None:
        visits = load(CLICKS / "generate.py").Visits(rows=90, files=3, keys=3, order="sorted")
        for path in load(CLICKS / "generate.py").write(visits, tmp_path):
            assert len(set(pacsv.read_csv(path)["url"].to_pylist())) == 1

    def test_the_same_bytes_however_it_is_batched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generate = load(CLICKS / "generate.py")
        visits = generate.Visits(rows=3000, files=2, keys=50, seed=3)
        generate.write(visits, tmp_path / "a")
        monkeypatch.setattr(generate, "_BATCH_ROWS", 7)
        generate.write(visits, tmp_path / "b")
        generate.write(generate.Visits(rows=3000, files=2, keys=50, seed=4), tmp_path / "c")
        assert contents(tmp_path / "a") == contents(tmp_path / "b")
        assert contents(tmp_path / "a") != contents(tmp_path / "c")

    def test_keeps_what_is_there_and_clears_what_is_not_wanted(self, tmp_path: Path) -> None:
        generate = load(CLICKS / "generate.py")
        first = generate.write(generate.Visits(rows=100, files=5, keys=10), tmp_path)
        made = first[0].stat().st_mtime_ns
        generate.write(generate.Visits(rows=100, files=5, keys=10), tmp_path)
        assert first[0].stat().st_mtime_ns == made
        generate.write(generate.Visits(rows=100, files=2, keys=10), tmp_path)
        assert len(list(tmp_path.glob("*.csv"))) == 2

    def test_a_failed_run_leaves_no_half_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generate = load(CLICKS / "generate.py")
        visits = generate.Visits(rows=100, files=2, keys=10)

        def broken(*_: object) -> bytes:
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(generate, "lines", broken)
            with pytest.raises(OSError, match="disk full"):
                generate.write(visits, tmp_path)
        assert contents(tmp_path) == {}
        assert len(generate.write(visits, tmp_path)) == 2

    def test_weighs(self) -> None:
        weigh = load(CLICKS / "clicks.py").weigh
        batch = pa.record_batch({"url": ["a", "b"], "visitor": ["User", "Robot"]})
        schema = pa.schema([("url", pa.string()), ("weight", pa.int32())])
        assert weigh(batch).equals(pa.record_batch([["a", "b"], [2, 1]], schema=schema))
        assert weigh(batch.slice(0, 0)).schema == schema

    @pytest.mark.parametrize("stranger", ["Bot", "", "user", None])
    def test_names_a_visitor_that_it_does_not_know(self, stranger: str | None) -> None:
        weigh = load(CLICKS / "clicks.py").weigh
        batch = pa.record_batch({"url": ["a", "b"], "visitor": ["User", stranger]})
        with pytest.raises(ValueError, match=f"visitor {stranger!r} is neither"):
            weigh(batch)


@pytest.mark.slow
def test_the_query_that_make_demo_prints_reads_what_it_made(tmp_path: Path) -> None:
    example = tmp_path / "examples" / "clicks"
    ignored = shutil.ignore_patterns("visits", "out", "__pycache__")
    shutil.copytree(CLICKS, example, ignore=ignored)
    python(example / "generate.py", "--rows=1000", "--files=2", "--keys=7")
    ran = mrflight("run", "examples/clicks/job.toml", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    echo = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "look:" in line)
    (shown,) = shlex.split(echo.replace("$(venv)", ".venv"))[1:]
    program, *words = shlex.split(re.sub(r"^look: +", "", shown))
    assert program == ".venv/bin/mrflight"
    printed = mrflight(*words, cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert "5 rows" in printed.stdout + printed.stderr
