"""A real kernel shows what the user of a notebook is to see, and leaves nothing of its jobs."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path

import pytest

from tests.support.commands.leftovers import nothing_left_over, processes_of
from tests.support.commands.notebook import Notebook, Shown, open_notebook

SETTINGS = '{"cluster.workers": 2, "cluster.memory": "1 GiB", "job.speculation": False}'
"""Speculation is off, because a speculative attempt prints a line, and some tests expect none."""

FIRST_CELL = f"""
import mrflight

visits = mrflight.read("visits/*.csv").with_settings({SETTINGS})
clicks = visits.group_by("url").agg(n="sum(n)").sort_by("url")

def fail_at_0(batch):
    if batch["n"][0].as_py() == 0:
        return batch.column("nothing")
    return batch

def wait(batch):
    import threading

    print("a map waits", flush=True)
    threading.Event().wait()  # for the interrupt, which ends its process
"""


class Kernel:
    """A notebook, and what the environment of its processes has."""

    def __init__(self, notebook: Notebook, folder: Path, environment: Mapping[str, str]) -> None:
        self.run = notebook.run
        self.folder = folder
        self._environment = environment

    def assert_no_job_is_left(self) -> None:
        """The kernel is the only process, and the jobs' folder is empty."""
        assert len(processes_of(self._environment["MRFLIGHT_TEST_RUN"])) == 1
        assert list(Path(self._environment["TMPDIR"]).iterdir()) == []


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel that all tests share, as it takes a second to start, in a folder with 200 visits."""
    folder, own = tmp_path_factory.mktemp("notebook"), tmp_path_factory.mktemp("kernel")
    (folder / "visits").mkdir()
    for name, numbers in {"a": range(100), "b": range(100, 200)}.items():
        rows = "".join(f"/{n % 3},{n}\n" for n in numbers)
        (folder / "visits" / f"{name}.csv").write_text(f"url,n\n{rows}")
    with (
        nothing_left_over(tmp_path_factory.mktemp("tmp")) as environment,
        open_notebook(folder, own, environment) as notebook,
    ):
        kernel = Kernel(notebook, folder, environment)
        assert kernel.run(FIRST_CELL) == Shown()
        yield kernel


def text_of(html: str) -> str:
    return unescape(re.sub("<[^>]*>", "", html)).rstrip()


@pytest.mark.slow_but("clicks-texts1")
@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ("visits", ["Dataset visits", ".collect() returns all rows", "path: visits/*.csv"]),
        ("clicks", ["group_by: url", "agg: n = sum(n)", "sort_by: url"]),
        ("clicks.explain()", ["input visits:   csv, 2 files", "group by url: n = sum(n)"]),
    ],
)
def test_a_value_is_html(kernel: Kernel, cell: str, texts: list[str]) -> None:
    shown = kernel.run(cell)
    assert shown == Shown(result=shown.result)
    html = text_of(shown.result["text/html"])
    assert [text for text in texts if text not in html] == [], html


def test_groups_are_shown_by_their_columns(kernel: Kernel) -> None:
    shown = kernel.run("visits.group_by('url', 'n')")
    assert shown == Shown(result={"text/plain": "<mrflight.GroupedDataset visits by url, n>"})


def test_rows_are_one_table(kernel: Kernel) -> None:
    shown = kernel.run("visits.show(3)")
    ((table,),) = shown.displays
    assert shown == Shown(displays=[[table]])
    lines = text_of(table["text/html"]).splitlines()
    rows = [line.strip("│").split("│") for line in lines if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["/0", "0"],
        ["/1", "1"],
        ["/2", "2"],
    ]
    assert lines[-1] == "first 3 rows"


def test_the_bars_of_a_job_are_replaced_in_one_place(kernel: Kernel) -> None:
    shown = kernel.run('clicks.write_parquet("out")')
    ((_, *_, last),) = shown.displays
    assert shown == Shown(displays=shown.displays, result=shown.result)
    for bars in (last["text/plain"], text_of(last["text/html"])):
        assert re.findall(r"(\S.*?) +━+ (\d+/\d+) +\S+ (\d+ \w+)", bars) == [
            ("map", "2/2", "200 rows"),
            ("map sort_by", "1/1", "3 rows"),
            ("reduce", "1/1", "3 rows"),
            ("commit", "1/1", "1 file"),
        ], bars
    assert "200 in, 3 out" in text_of(shown.result["text/html"])
    kernel.assert_no_job_is_left()


def test_without_progress_there_is_only_the_result(kernel: Kernel) -> None:
    shown = kernel.run("clicks.collect(progress=False).to_pydict()")
    totals = {f"/{url}": sum(n for n in range(200) if n % 3 == url) for url in range(3)}
    assert shown == Shown(result=shown.result)
    assert literal_eval(shown.result["text/plain"]) == {"url": [*totals], "n": [*totals.values()]}


def test_a_mistake_is_one_message(kernel: Kernel) -> None:
    shown = kernel.run('visits.group_by("urll").agg(n="sum(n)").schema')
    assert shown == Shown(error=shown.error)
    assert below_the_cell(shown.error) == [
        '----> 1 visits.group_by("urll").agg(n="sum(n)").schema',
        "ColumnNotFoundError: group_by: visits has no column 'urll'; did you mean 'url'? It has "
        "'url', 'n'",
    ]


def test_a_function_that_fails_is_one_message(kernel: Kernel) -> None:
    """It has the line of the user's function, although no worker has a file of the cell."""
    shown = kernel.run('visits.map(fail_at_0).agg(n="sum(n)").collect()')
    assert len(shown.displays) == 1
    (notice,) = shown.streams["stderr"].splitlines()
    assert "attempt 1 of 4 failed and is retried" in notice
    lines = below_the_cell(shown.error)
    assert [line for line in lines if "pyarrow" not in line and "  File" not in line] == [
        '----> 1 visits.map(fail_at_0).agg(n="sum(n)").collect()',
        f"UserFunctionRaisedError: the map fail_at_0, given {kernel.folder}/visits/a.csv from 0, "
        "batch 1, raised:",
        "Traceback (most recent call last):",
        '    return batch.column("nothing")',
        "           ^^^^^^^^^^^^^^^^^^^^^^^",
        "KeyError: 'Field \"nothing\" does not exist in schema'",
        f"map 0 (visits, {kernel.folder}/visits/a.csv from 0), attempt 2",
    ]
    kernel.assert_no_job_is_left()


def test_an_interrupt_ends_the_job(kernel: Kernel) -> None:
    shown = kernel.run('visits.map(wait).agg(n="sum(n)").collect()', interrupt_at="a map waits")
    assert len(shown.displays) == 1
    assert below_the_cell(shown.error) == [
        '----> 1 visits.map(wait).agg(n="sum(n)").collect()',
        "KeyboardInterrupt: ",
    ]
    kernel.assert_no_job_is_left()
    assert kernel.run("visits.count(progress=False)").result["text/plain"] == "200"


def below_the_cell(error: str) -> list[str]:
    """Return the lines of a traceback without its heading."""
    heading, _, rest = error.partition(", line ")
    assert "Traceback (most recent call last)" in heading
    assert "mrflight/" not in rest, "no frame of mrflight is shown"
    return [line for line in rest.splitlines()[1:] if line]
