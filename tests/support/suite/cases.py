"""Many small cases in one test, each with a name: a run names all of them that fail.

An item of pytest costs 5 to 13 ms, and a case such as "this link leads somewhere" much less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Case = Callable[[object], AbstractContextManager[None]]


@contextmanager
def cases() -> Iterator[Case]:
    """Run cases, ``with case(name):``, to the last one, and raise what failed in them together.

    A test without a case fails as well: then what it takes them from has none.
    """
    failed: dict[str, Exception] = {}
    names: list[str] = []

    @contextmanager
    def case(name: object) -> Iterator[None]:
        names.append(str(name))
        try:
            yield
        except Exception as error:
            error.add_note(f"in the case {name}")
            failed[str(name)] = error

    yield case
    assert names, "there is no case"
    if failed:
        what = f"{len(failed)} of {len(names)} cases failed: {', '.join(failed)}"
        raise ExceptionGroup(what, list(failed.values()))
