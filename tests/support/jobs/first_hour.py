"""The tasks of the pages "Coming from ...": their code, their data, and their answers as rows."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[3] / "docs"
_FENCE = re.compile(r'^```python title="([^"]*)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_DIGITS = 9
_USERS = 40


class Task(NamedTuple):
    """A task, as it is written with the other library and with mrflight."""

    title: str
    theirs: str
    ours: str

    @property
    def is_ordered(self) -> bool:
        return bool(re.search(r"sort_by|head\(", self.ours))


def tasks(library: str) -> tuple[Task, list[Task]]:
    """Return how all tasks of a page begin, and the tasks."""
    text = (DOCS / f"how-to/coming-from-{library}.md").read_text(encoding="utf-8")
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        blocks = dict(_FENCE.findall(section))
        if blocks:
            ours = blocks.pop("mrflight")
            (theirs,) = blocks.values()
            found.append(Task(section.partition("\n")[0], theirs, ours))
    return found[0], found[1:]


def answer_of(beginning: str, code: str) -> Any:
    """Return the rows of the answer of a task, in a form that does not depend on the library."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(beginning + code, names)
    return plain(names["answer"])


def plain(answer: Any) -> Any:
    """Return an answer as values of JSON: rows as lists of ``[column, value]``."""
    if isinstance(answer, int | str):
        return answer
    for method in ("to_arrow_table", "to_arrow"):  # of DuckDB and Polars
        if hasattr(answer, method):
            answer = getattr(answer, method)()
    if hasattr(answer, "to_pylist"):
        answer = answer.to_pylist()
    return [
        row if isinstance(row, str) else sorted((name, _value(v)) for name, v in _items(row))
        for row in answer
    ]


def _items(row: Any) -> Iterable[tuple[str, Any]]:
    as_mapping: Mapping[str, Any] = row.asDict() if hasattr(row, "asDict") else row
    return as_mapping.items()


def _value(value: Any) -> Any:
    if isinstance(value, float | decimal.Decimal):
        return round(float(value), _DIGITS)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def comparable(task: Task, answer: Any) -> Any:
    """Return rows as they are compared: of a task without an order, sorted."""
    answer = json.loads(json.dumps(answer))
    if task.is_ordered or not isinstance(answer, list):
        return answer
    return sorted(answer, key=json.dumps)


def write_data(folder: Path) -> None:
    """Write visits, users, and orders in a hive tree. Sums of prices are exact."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "visits").mkdir(parents=True)
    for file in range(4):
        rows = ["visit,day,user,url,seconds,price"]
        for visit in range(file * 100, file * 100 + 100):
            day = f"2026-10-{visit // 40 + 1:02}"
            price = "" if visit % 9 == 0 else f"{visit * 37 % 80 / 4}"
            url = f"/p{visit * 13 % 11}"
            rows.append(f"{visit},{day},u{visit * visit % 31},{url},{visit * 17 % 101},{price}")
        (folder / f"visits/{file}.csv").write_text("\n".join(rows) + "\n")
    users = [f"u{user}" for user in range(_USERS)]
    names = [f"name {user}" for user in range(_USERS)]
    countries = [("no", "it", "fr")[user % 3] for user in range(_USERS)]
    table = pa.table({"user": users, "name": names, "country": countries})
    pq.write_table(table, folder / "users.parquet")
    for month in (1, 2, 3):
        where = folder / f"orders/year=2026/month={month}"
        where.mkdir(parents=True)
        orders = {"order": range(month * 10, month * 10 + 10), "amount": [month * 2.5] * 10}
        pq.write_table(pa.table({name: list(v) for name, v in orders.items()}), where / "1.parquet")
