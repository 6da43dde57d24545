"""On which stores and catalogs a test runs.

The fixtures `place`, `lake` and `ducklake` have a case that is a file on the disk, and others that
need a server. A test takes the file, as what it proves is the same on all. What a server may do
otherwise has a mark: ``everywhere`` takes all cases, and ``also_on("s3")`` those that it names.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

MARKS = (
    "everywhere: the test runs on each store or catalog, and not only on files",
    "also_on(name, ...): the test runs on files, and on the stores or catalogs that are named",
)


def parametrize(metafunc: pytest.Metafunc, fixture: str, cases: Sequence[str]) -> None:
    """Give a test of the fixture its cases. The first is the one on files."""
    own = {name for mark in metafunc.definition.iter_markers("parametrize") for name in names(mark)}
    if fixture not in metafunc.fixturenames or fixture in own:
        return
    metafunc.parametrize(fixture, chosen(metafunc.definition, cases), indirect=True)


def names(parametrize: pytest.Mark) -> Sequence[str]:
    """Return the names of the parameters that a test gives itself."""
    first = parametrize.args[0]
    return [first] if isinstance(first, str) else first


def chosen(test: pytest.Item, cases: Sequence[str]) -> list[str]:
    """Return the cases of a test. Raises UsageError for one that its fixture does not have."""
    if test.get_closest_marker("everywhere"):
        return list(cases)
    named = {name for mark in test.iter_markers("also_on") for name in mark.args}
    if unknown := named - set(cases):
        raise pytest.UsageError(f"{test.nodeid}: also_on names {unknown}, and there is {cases}")
    return [case for case in cases if case == cases[0] or case in named]
