"""Run the queries of DataFusion's sqllogictest files by stages, beside DataFusion in one process.

    python -m experiments.sqllogictest CHECKOUT/datafusion/sqllogictest [--only joins,window]

The folder is that of a checkout of apache/datafusion, with the data that its tests name. DataFusion
runs the statements of a file. Each query that reads tables runs twice over the same tables as
Parquet files: in DataFusion as a whole, and by the stages of its plan, in one of several ways in
turn. Statements and queries that DataFusion itself refuses, and tables that Parquet cannot hold,
are counted, with their reasons in sqllogictest.json. Files that it has already are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments import machine
from experiments.datasets import WORK
from experiments.sqllogictest.records import records
from experiments.sqllogictest.session import FAILED_STATEMENT, LEFT_OUT, SAME, Outcome, Session

Run = dict[str, Any]


def run_of(outcomes: Sequence[Outcome]) -> Run:
    """Return the numbers of outcomes of a file, and its queries whose rows are not the same."""
    return {
        "outcomes": Counter(outcome.kind for outcome in outcomes),
        "left out": Counter(
            outcome.reason for outcome in outcomes if outcome.kind in (LEFT_OUT, FAILED_STATEMENT)
        ),
        "not the same": [
            {
                "query": f"{outcome.record.path.relative_to('test_files')}:{outcome.record.line}",
                "way": outcome.way._asdict(),
                "outcome": outcome.kind,
                "reason": outcome.reason,
            }
            for outcome in outcomes
            if outcome.kind not in (SAME, LEFT_OUT, FAILED_STATEMENT)
        ],
    }


def page(runs: Iterable[Run]) -> str:
    """Return Markdown: the number of queries of each outcome, and those that are not the same."""
    counts: Counter[str] = Counter()
    listed: list[dict[str, str]] = []
    for run in runs:
        counts.update(run["outcomes"])
        listed += run["not the same"]
    lines = ["| outcome | queries |", "|---|---|"]
    lines += [f"| {kind} | {count:,} |" for kind, count in counts.most_common()]
    for kind, _ in counts.most_common():
        found = [each for each in listed if each["outcome"] == kind]
        lines += ["", f"## {kind.capitalize()}", ""] if found else []
        lines += [f"- `{each['query']}` {each['reason'][:160]}".rstrip() for each in found]
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="datafusion/sqllogictest of a checkout")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of files")
    parser.add_argument("--out", type=Path, default=WORK / "sqllogictest")
    return parser.parse_args()


def main() -> None:
    options = _options()
    options.out = options.out.absolute()
    os.chdir(options.folder)  # the paths in its files begin there
    (Path("test_files") / "scratch").mkdir(exist_ok=True)
    paths = sorted(Path("test_files").rglob("*.slt"))
    paths = [path for path in paths if options.only is None or path.stem in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "sqllogictest.json"
    report = json.loads(kept.read_text()) if kept.exists() else {"runs": {}}
    report |= {"machine": machine.description()}
    runs: dict[str, Run] = report["runs"]
    for path in paths:
        if str(path) in runs:
            continue
        (Path("test_files") / "scratch" / path.stem).mkdir(exist_ok=True)
        run = runs[str(path)] = run_of(list(Session().outcomes(records(path))))
        kept.write_text(json.dumps(report, indent=1) + "\n")
        print(f"{path}: {dict(run['outcomes'])}", file=sys.stderr, flush=True)
    text = page(runs.values())
    (options.out / "sqllogictest.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
