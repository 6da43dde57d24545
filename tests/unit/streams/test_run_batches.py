"""How a stream cuts its batches, and when it commits them."""

from __future__ import annotations

import pytest

from mrflight.errors import CommitError
from tests.support.streams.stream_cases import Case, both, gap, hold, produce, run, stop, table

TEN = {0: range(10)}
ROWS = {"stream": {"max_rows": 3}}


@table(
    Case("an empty topic has no batch", "", events={0: []}),
    Case("all events are one batch", "0:0-3=3"),
    Case("every partition is recorded", "0:0-3 1:0-0=3", events={0: [0, 1, 2], 1: []}),
    Case("partitions share a batch", "0:0-2 1:0-2=4", events={0: [0, 1], 1: [0, 1]}),
    Case("max_rows", "0:0-3=3 | 0:3-6=3 | 0:6-9=3 | 0:9-10=1", events=TEN, job=ROWS),
    Case("max_rows is met", "0:0-3=3", job=ROWS),
    Case(
        "a small partition does not wait for a large one",
        "0:0-2 1:0-1=3 | 0:2-5=3 | 0:5-8=3 | 0:8-10=2",
        events={0: range(10), 1: [0]},
        job=ROWS,
    ),
    Case(
        "more partitions than rows in a batch",
        "0:0-1 1:0-1 2:0-0=2 | 2:0-1=1",
        events={0: [0], 1: [0], 2: [0]},
        job={"stream": {"max_rows": 2}},
    ),
    Case(
        "max_bytes by the expected size",
        "0:0-2=2 | 0:2-3=1",
        job={"stream": {"max_bytes": "400 B"}},
    ),
    Case(
        "max_bytes by the size of the events before",
        "0:0-2=2 | 0:2-4=2 | 0:4-7=3 | 0:7-10=3",
        events={0: [0] * 10},
        job={"stream": {"max_bytes": "400 B"}},
    ),
    Case(
        "an event is larger than a batch",
        "0:0-1=1 | 0:1-2=1 | 0:2-3=1",
        job={"stream": {"max_bytes": "1 B"}},
    ),
    Case("what comes while it runs is left", "0:0-3=3", on={"write 1": produce(9)}, lag=1),
    Case("it goes on with the next run", "0:0-3=3 | 0:3-4=1", on={"write 1": produce(9)},
         then=[lambda _: None]),
    Case("a run with nothing new", "0:0-3=3", then=[lambda _: None], steps={"write": 1}),
    Case("two runs", "0:0-3=3 | 0:3-5=2", then=[produce(3, 4)]),
    Case("stream.mode = available", "0:0-3=3", job={"stream": {"mode": "available"}}),
    Case("no metadata", "0:0-3=3", job={"input": {"metadata": None}}, checks_rows=False),
    Case("chosen columns", "0:0-3=3", job={"input": {"columns": ["n"]}}),
    Case("a table that is opened for each batch", "0:0-3=3 | 0:3-6=3 | 0:6-9=3 | 0:9-10=1",
         events=TEN, job=ROWS, before=lambda stream: setattr(stream, "follows", False),
         steps={"open sink": 5}),
    Case("a table that is opened twice", "0:0-3=3 | 0:3-6=3 | 0:6-9=3 | 0:9-10=1",
         events=TEN, job=ROWS, steps={"open sink": 2}),
)  # fmt: skip
def test_a_bounded_stream_commits_what_is_there(case: Case) -> None:
    run(case)


@table(
    Case("gap at the start", "0:0-5=2", events={0: []}, before=both(gap(3), produce(1, 2))),
    Case("gap in between", "0:0-5=3", events={0: [0]}, before=both(gap(2), produce(1, 2))),
    Case("gap at the end", "0:0-6=3", before=gap(3)),
    Case("only gaps", "0:0-4=0", events={0: []}, before=gap(4)),
    Case("a whole batch of gaps", "0:0-3=3 | 0:3-6=0 | 0:6-7=1",
         before=both(gap(3), produce(7)), job=ROWS),
    Case("gaps in the next run", "0:0-3=3 | 0:3-5=0", then=[gap(2)]),
    Case("an open transaction", "0:0-2=2", before=hold(2)),
    Case("an open transaction over all", "", before=hold(0)),
    Case("a transaction that ends", "0:0-2=2 | 0:2-4=2", before=hold(2),
         then=[both(hold(None), produce(4))]),
    Case("a transaction that is aborted", "0:0-2=2 | 0:2-4=0", before=hold(2),
         then=[lambda stream: (stream.broker.compact(2), gap(1)(stream), hold(None)(stream))]),
    Case("compaction before the first run", "0:0-3=1",
         before=lambda stream: stream.broker.compact(0, 1)),
    Case("compaction between runs", "0:0-3=3 | 0:3-5=1",
         then=[both(produce(3, 4), lambda stream: stream.broker.compact(0, 3))],
         checks_rows=False),
    Case("the last events are compacted", "0:0-3=2", before=lambda s: s.broker.compact(2)),
)  # fmt: skip
def test_offsets_without_a_message_are_passed(case: Case) -> None:
    run(case)


HOUR = {"stream": {"commit": "1 h"}}


@table(
    Case("after the interval", "0:0-3=3", "stopped", at={1.5: stop},
         waits=[0.2] * 8),
    Case("an interval below that of looks", "0:0-3=3", "stopped", at={0.5: stop},
         job={"stream": {"commit": "100 ms"}}, waits=[0.1, 0.1, 0.1, 0.1, 0.1]),
    Case("together with what comes meanwhile", "0:0-5=5", "stopped",
         at={0.5: produce(3, 4), 5: stop}),
    Case("what comes after the interval", "0:0-3=3 | 0:3-4=1", "stopped",
         at={1.5: produce(3), 5: stop}),
    Case("the interval begins with the first event", "0:0-4=4", "stopped",
         events={0: []}, at={3: produce(0, 1), 3.9: produce(2, 3), 9: stop}),
    Case("a full batch does not wait", "0:0-3=3 | 0:3-6=3 | 0:6-9=3 | 0:9-10=1", "stopped",
         events=TEN, job={"stream": {"max_rows": 3, "commit": "1 h"}}, at={1: stop}),
    Case("an idle stream", "", "stopped", events={0: []}, at={60: stop}, steps={"write": 0}),
    Case("an idle stream looks for partitions", "", "stopped", events={0: []}, at={35: stop},
         steps={"topics": 4}),
    Case("idle, then an event", "0:0-1=1", "stopped", events={0: []},
         at={100: produce(1), 200: stop}),
)  # fmt: skip
def test_a_stream_commits_once_in_an_interval(case: Case) -> None:
    run(case)


@table(
    Case("commits what has waited", "0:0-3=3", "stopped", at={0.5: stop}, job=HOUR),
    Case("commits what has waited of all partitions", "0:0-1 1:0-2=3", "stopped",
         events={0: [0], 1: [0, 1]}, at={0.5: stop}, job=HOUR),
    Case("leaves more than a batch", "0:0-3=3", "stopped", at={0.1: both(produce(*range(7)), stop)},
         job={"stream": {"max_rows": 3, "commit": "1 h"}}, lag=7),
    Case("leaves a whole batch", "0:0-3=3", "stopped", at={0.1: both(produce(3, 4, 5), stop)},
         job={"stream": {"max_rows": 3, "commit": "1 h"}}, lag=3),
    Case("commits nearly a batch", "0:0-3=3 | 0:3-5=2", "stopped",
         at={0.1: both(produce(3, 4), stop)}, job={"stream": {"max_rows": 3, "commit": "1 h"}}),
    Case("has one last batch", "0:0-3=3", "stopped", at={0.5: stop}, job=HOUR,
         on={"write 1": produce(4)}, lag=1),
    Case("has nothing to commit", "", "stopped", events={0: []}, at={0.5: stop}),
    Case("is stopped before it looks", "0:0-3=3", "stopped", at={0: stop},
         on={"open sink 1": stop}),
    Case("is stopped while a batch is written", "0:0-3=3", "stopped", at={99: stop},
         on={"write 1": stop}),
    Case("is stopped while a batch is committed", "0:0-3=3", "stopped", at={99: stop},
         on={"commit 1": stop}),
    Case("is stopped, and other events came", "0:0-3=3 | 0:3-4=1", "stopped", at={99: stop},
         on={"write 1": both(stop, produce(3))}),
    Case("is stopped within what is bounded", "0:0-3=3", "stopped", events=TEN, job=ROWS,
         on={"write 1": stop}, lag=7),
    Case("goes on in the next run", "0:0-3=3 | 0:3-6=3 | 0:6-9=3 | 0:9-10=1", events=TEN,
         job=ROWS, on={"write 1": stop}, then=[lambda _: None]),
)  # fmt: skip
def test_a_stream_that_is_told_to_stop(case: Case) -> None:
    run(case)


def test_upkeep_comes_after_each_fiftieth_commit() -> None:
    case = Case(
        "upkeep",
        " | ".join(f"0:{at}-{at + 1}=1" for at in range(120)),
        events={0: range(120)},
        job={"stream": {"max_rows": 1}},
        steps={"compact": 2},
    )
    run(case)


LATE = CommitError("the store is away")


@pytest.mark.parametrize(
    ("case", "age_s"),
    [
        (Case("of what is there", "0:0-3=3"), 0),
        (Case("after the interval", "0:0-3=3", "stopped", at={5: stop}), 1),
        (Case("of the last commit", "0:0-3=3 | 0:3-4=1", "stopped",
              at={1.1: produce(3), 9: stop}), 1),
        (Case("when the stream is stopped", "0:0-3=3", "stopped", at={0.5: stop}, job=HOUR), 0.5),
        (Case("of events that had to wait for another batch", "0:0-3=3 | 0:3-4=1", "stopped",
              at={9: produce(3), 9.5: stop}, job={"stream": {"max_rows": 3, "commit": "1 h"}}),
         0.5),
        (Case("after an outage", "0:0-3=3", on={"commit 1": LATE, "commit 2": LATE}), 3),
        (Case("long after an outage", "0:0-3=3 | 0:3-4=1", "stopped", on={"commit 1": LATE},
              at={20: produce(3), 30: stop}), 1),
        (Case("of an outage within batches", "0:0-1=1 | 0:1-2=1 | 0:2-3=1",
              on={"commit 2": LATE}, job={"stream": {"max_rows": 1}}), 1),
        (Case("nothing is committed", "", events={0: []}), 0),
        (Case("of a start that is recorded", "0:3-3=0", job={"input": {"start": "latest"}}), 0),
    ],
    ids=lambda each: each.about if isinstance(each, Case) else "",
)  # fmt: skip
def test_the_result_says_how_old_the_oldest_event_of_the_last_commit_was(
    case: Case, age_s: float
) -> None:
    """With what a look every 0.2 s sees later."""
    stream = run(case)
    found = stream.progress.result("").freshness_ms
    assert age_s * 1000 - 201 <= found <= age_s * 1000 + 1
