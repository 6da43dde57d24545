"""Count the requests that writing an output to S3 takes, by kind, and the bytes written per byte.

    python -m experiments.commit_requests [--parts 1,40] [--rows N] [--ways NAME;...]
        [--merges 1,40] [--out FOLDER]

A MinIO of its own reports every request. Outputs of one part and of 40 parts are written by
mrflight (the sink alone, and a whole job), deltalake's `write_deltalake`, PyArrow's dataset writer,
and committers that rename. The ways that know attempts also write them with a second attempt of
every fifth part. Then one part creates a table, is appended to it four times, and replaces it, by a
job and by `write_deltalake`. Finally a few rows are merged into a table of as many files, one of
which has their keys, by a job and by deltalake's own merge. Afterwards each output is compared with
what was written.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from experiments import report
from experiments.committing import appending, found, merging, published
from experiments.committing.merging import SmallMerge
from experiments.committing.output import Output
from experiments.committing.ways import DUPLICATES, WAYS
from experiments.datasets import WORK
from tests.services.minio import Minio, running_minio
from tests.services.recorder import Request

KINDS = {
    "HeadObject": "HEAD",
    "HeadBucket": "HEAD",
    "PutObject": "PUT",
    "NewMultipartUpload": "PUT",
    "PutObjectPart": "PUT",
    "CompleteMultipartUpload": "PUT",
    "AbortMultipartUpload": "DELETE",
    "CopyObject": "COPY",
    "DeleteObject": "DELETE",
    "DeleteMultipleObjects": "DELETE",
    "GetObject": "GET",
    "ListObjectsV1": "LIST",
    "ListObjectsV2": "LIST",
}
"""The kinds of request by MinIO's names. The three of a multipart upload are billed as PUT."""


@dataclass(frozen=True)
class Cost:
    """The cost of one output that is written one way."""

    way: str
    parts: int
    duplicates: bool
    requests: dict[str, int]
    output_bytes: int
    """The size of the files that a reader reads."""
    written_bytes: int | None
    """The bytes sent, and copied by the store; None if a client did not report how much it sent."""

    @property
    def total(self) -> int:
        return sum(self.requests.values())

    @property
    def per_byte(self) -> float | None:
        return None if self.written_bytes is None else self.written_bytes / self.output_bytes


@dataclass(frozen=True)
class MergeCost:
    """The cost of one merge of a few rows into a table."""

    way: str
    files: int
    deletes: bool
    requests: dict[str, int]
    of_log: int
    """The number of these requests that read, list or write the table's log."""


@dataclass(frozen=True)
class AppendCost:
    """The cost of appending one part to a table, which the first append creates."""

    way: str
    mode: str
    entries: int
    """The number of log entries before the append."""
    requests: dict[str, int]


def measure(minio: Minio, way: str, output: Output) -> Cost:
    """Write the output to a new bucket, and return the cost."""
    with minio.recorded_bucket() as bucket:
        WAYS[way](bucket, output)
        requests = bucket.requests()
        found.check(bucket, output)
        sizes = found.files(bucket)
    return Cost(
        way,
        output.parts,
        output.duplicates,
        _by_kind(requests),
        sum(sizes.values()),
        _written(requests, {path.rpartition("/")[2]: size for path, size in sizes.items()}),
    )


def measure_merge(minio: Minio, way: str, merge: SmallMerge) -> MergeCost:
    """Merge into a table in a new bucket, and return the cost of the merge alone."""
    with minio.recorded_bucket() as bucket:
        merging.make_table(bucket, merge)
        made = bucket.mark()
        merging.WAYS[way](bucket, merge)
        requests = bucket.requests(made)
        merging.check(bucket, merge)
    of_log = sum("_delta_log/" in r.key + r.query.get("prefix", "") for r in requests)
    return MergeCost(way, merge.files, merge.deletes, _by_kind(requests), of_log)


def measure_appends(minio: Minio, way: str, output: Output) -> list[AppendCost]:
    """Append the output several times to a table in a new bucket, and return each cost."""
    costs = []
    with minio.recorded_bucket() as bucket:
        for step, mode in enumerate(appending.STEPS):
            before = bucket.mark()
            appending.WAYS[way](bucket, output, mode)
            costs.append(AppendCost(way, mode, step, _by_kind(bucket.requests(before))))
            appending.check(bucket, output, step)
    return costs


def _by_kind(requests: list[Request]) -> dict[str, int]:
    return dict(Counter(KINDS[request.api] for request in requests))


def _written(requests: list[Request], sizes: dict[str, int]) -> int | None:
    bodies = [request for request in requests if KINDS[request.api] == "PUT"]
    if any(request.received_bytes < 0 for request in bodies):
        return None
    sent = sum(request.received_bytes for request in bodies)
    copied = (r.key.rpartition("/")[2] for r in requests if r.api == "CopyObject")
    return sent + sum(sizes[name] for name in copied)


def page(costs: list[Cost], appends: list[AppendCost], merges: list[MergeCost]) -> str:
    """Return all tables as Markdown."""
    kinds = published.KINDS
    head = f"| way | {' | '.join(kinds)} | all | bytes per byte |\n" + "|---" * (len(kinds) + 3)
    lines = ["# What an output costs on S3", ""]
    for parts, duplicates in dict.fromkeys((c.parts, c.duplicates) for c in costs):
        noun = "part" if parts == 1 else "parts"
        twice = ", one attempt in five duplicated" if duplicates else ""
        lines += [f"## {parts} {noun}{twice}", "", head + "|"]
        of_these = [c for c in costs if (c.parts, c.duplicates) == (parts, duplicates)]
        lines += [_line(cost) for cost in of_these]
        if parts == 1 and not duplicates:
            lines += [
                f"| *{name}, of the report's table 3.3b* | {' | '.join(map(str, counts))} "
                f"| {sum(counts)} | |"
                for name, counts in published.ONE_OBJECT.items()
            ]
        lines += [""]
    lines += [*_append_page(appends), *_merge_page(merges), *_ratios(costs)]
    return "\n".join(lines) + "\n"


def _line(cost: Cost) -> str:
    per_byte = "not reported" if cost.per_byte is None else f"{cost.per_byte:.4f}"
    return f"| {cost.way} | {_counts(cost.requests)} | {per_byte} |"


def _counts(requests: dict[str, int]) -> str:
    """Return the number of requests of each kind and in all, as text."""
    counts = [requests.get(kind, 0) for kind in published.KINDS]
    return " | ".join(map(str, [*counts, sum(requests.values())]))


def _append_page(costs: list[AppendCost]) -> list[str]:
    """Return the table of appending one part to a table several times."""
    lines = ["## One part into a table, by the entries that its log has", ""]
    lines += [f"| way | mode | entries | {' | '.join(published.KINDS)} | all |"]
    lines += ["|---" * (len(published.KINDS) + 4) + "|"]
    in_turn = sorted(costs, key=lambda cost: cost.entries)
    return [*lines, *map(_append_line, in_turn), ""]


def _append_line(cost: AppendCost) -> str:
    return f"| {cost.way} | {cost.mode} | {cost.entries} | {_counts(cost.requests)} |"


def _merge_page(costs: list[MergeCost]) -> list[str]:
    """Return the tables of merges."""
    lines = []
    for files, deletes in dict.fromkeys((c.files, c.deletes) for c in costs):
        table = "a table of one file" if files == 1 else f"one file of a table of {files}"
        row = ", with a row to delete" * deletes
        lines += [f"## A merge of a few rows into {table}{row}", ""]
        lines += [f"| way | {' | '.join(published.KINDS)} | all | of the log |"]
        lines += ["|---" * (len(published.KINDS) + 3) + "|"]
        for cost in costs:
            if (cost.files, cost.deletes) == (files, deletes):
                lines += [_merge_line(cost)]
        lines += [""]
    return lines


def _merge_line(cost: MergeCost) -> str:
    return f"| {cost.way} | {_counts(cost.requests)} | {cost.of_log} |"


def _ratios(costs: list[Cost]) -> list[str]:
    """Return the requests of the largest output relative to mrflight's, beside table 3.6c."""
    most = max(cost.parts for cost in costs)
    largest = [cost for cost in costs if cost.parts == most and not cost.duplicates]
    base = next((cost.total for cost in largest if cost.way == "mrflight"), None)
    if base is None:
        return []
    lines = [f"## Requests of {most} parts, against mrflight's", "", "| way | times |", "|---|---|"]
    lines += [f"| {cost.way} | {cost.total / base:.2f} |" for cost in largest]
    lines += [
        "",
        "The report's table 3.6c, against Stocator's (connectors in Spark, 46.5 GB written):",
        "",
        "| | Teragen | Copy |",
        "|---|---|---|",
    ]
    ratios = published.RATIOS.items()
    return lines + [f"| {name} | {teragen} | {copy} |" for name, (teragen, copy) in ratios]


def _costs(minio: Minio, ways: list[str], parts: list[int], rows: int) -> list[Cost]:
    costs = []
    for duplicates in (False, True):
        for count in parts:
            for way in ways:
                if not duplicates or way in DUPLICATES:
                    costs.append(measure(minio, way, Output(count, rows, duplicates)))
                    print(_line(costs[-1]), file=sys.stderr, flush=True)
    return costs


def _append_costs(minio: Minio, rows: int) -> list[AppendCost]:
    costs = []
    for way in appending.WAYS:
        of_way = measure_appends(minio, way, Output(1, rows))
        print(*map(_append_line, of_way), sep="\n", file=sys.stderr, flush=True)
        costs += of_way
    return costs


def _merge_costs(minio: Minio, ways: list[str], files: list[int], rows: int) -> list[MergeCost]:
    costs = []
    for deletes in (False, True):
        for count in files:
            for way in ways:
                costs.append(measure_merge(minio, way, SmallMerge(count, rows, deletes)))
                print(_merge_line(costs[-1]), file=sys.stderr, flush=True)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--parts", default="1,40")
    parser.add_argument("--rows", type=int, default=250_000, help="of a part; 8 bytes each")
    parser.add_argument("--ways", default=None, help=f"of {', '.join(WAYS)}, split by ;")
    parser.add_argument("--merges", default="1,40", help="files of the tables; empty for none")
    parser.add_argument("--out", type=Path, default=WORK / "commit_requests")
    options = parser.parse_args()
    ways = list(WAYS) if options.ways is None else options.ways.split(";")
    if unknown := set(ways) - set(WAYS):
        parser.error(f"--ways: {min(unknown)!r} is none of {'; '.join(WAYS)}")
    parts = [int(text) for text in options.parts.split(",")]
    with running_minio() as minio:
        costs = _costs(minio, ways, parts, options.rows)
        appends = _append_costs(minio, options.rows)
        files = [int(text) for text in options.merges.split(",") if text]
        merges = _merge_costs(minio, list(merging.WAYS), files, options.rows)
    figures = {"rows": options.rows, "costs": costs, "appends": appends, "merges": merges}
    report.write(options.out, "commit_requests", figures, page(costs, appends, merges))


if __name__ == "__main__":
    main()
