"""The queries in a session of DataFusion, or of an engine that has the same methods."""

from __future__ import annotations

from typing import Any

from experiments.queries.arguments import Arguments


def write_answer(session: Any, this: Arguments) -> None:
    """Register the tables and views, and write the answer to a file."""
    for name, path in this.tables.items():
        session.register_parquet(name, path)
    for view in this.views:
        session.sql(view)
    this.out.mkdir()
    session.sql(this.sql).write_parquet(str(this.out / "answer.parquet"))
