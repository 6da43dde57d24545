"""Write the tables of `experiments.recovery`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from experiments.recovery_run import Run

STAGES = ("start", "map", "reduce", "commit")


def against_undisturbed(made: Mapping[str, Sequence[Run]]) -> list[str]:
    """Compare each fault with the runs without faults that have as many replicas."""
    lines = [
        "| what | wall: median, range | start, map, reduce, commit | cost, of the undisturbed "
        "median | cost by round | in cpu time, by round | map attempts | failed "
        "| cores of others |",
        "|---" * 9 + "|",
    ]
    undisturbed: Sequence[Run] = ()
    for name, runs in made.items():
        if not runs[0].hit:
            undisturbed = runs
        lines.append(
            f"| {name} | {_spread(runs)} | {_stages(runs)} | {_cost(runs, undisturbed)} "
            f"| {_costs(runs, undisturbed, _wall)} | {_costs(runs, undisturbed, _cpu)} "
            f"| {_counts(runs, 'map')} | {_counts(runs, 'failed')} | {_others(runs)} |"
        )
    return lines


def against_the_rest(made: Mapping[str, Sequence[Run]]) -> list[str]:
    """Compare the first side with each of the others."""
    (first, whole), *_ = made.items()
    lines = [
        "| what | wall: median, range | cpu: median | start, map, reduce, commit "
        f"| wall of {first} to it: of medians | by round | cpu of {first} to it, by round "
        "| cores of others |",
        "|---" * 8 + "|",
    ]
    for name, runs in made.items():
        ratio = _median(whole, _wall) / _median(runs, _wall)
        lines.append(
            f"| {name} | {_spread(runs)} | {_median(runs, _cpu):.3f} s | {_stages(runs)} "
            f"| {ratio:.3f} | {_by_round(whole, runs, _wall)} | {_by_round(whole, runs, _cpu)} "
            f"| {_others(runs)} |"
        )
    return lines


def _wall(run: Run) -> float:
    return run.wall_s


def _cpu(run: Run) -> float:
    return run.cpu_s


def _median(runs: Sequence[Run], of: Callable[[Run], float]) -> float:
    return statistics.median(map(of, runs))


def _spread(runs: Sequence[Run]) -> str:
    walls = [run.wall_s for run in runs]
    return f"{statistics.median(walls):.3f} s ({min(walls):.3f} to {max(walls):.3f})"


def _stages(runs: Sequence[Run]) -> str:
    medians = (statistics.median(run.seconds[stage] for run in runs) for stage in STAGES)
    return ", ".join(f"{seconds:.3f}" for seconds in medians)


def _cost(runs: Sequence[Run], undisturbed: Sequence[Run]) -> str:
    if runs is undisturbed:
        return ""
    least = _median(undisturbed, _wall)
    more = _median(runs, _wall) - least
    return f"{more:+.2f} s, {100 * more / least:+.0f} %"


def _costs(runs: Sequence[Run], undisturbed: Sequence[Run], of: Callable[[Run], float]) -> str:
    if runs is undisturbed:
        return ""
    pairs = zip(runs, undisturbed, strict=True)
    costs = [of(run) / of(beside) - 1 for run, beside in pairs]
    return f"{statistics.median(costs):+.0%} ({min(costs):+.0%} to {max(costs):+.0%})"


def _by_round(ones: Sequence[Run], others: Sequence[Run], of: Callable[[Run], float]) -> str:
    ratios = [of(one) / of(other) for one, other in zip(ones, others, strict=True)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def _counts(runs: Sequence[Run], of: str) -> str:
    counts = sorted({run.attempts[of] for run in runs})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _others(runs: Sequence[Run]) -> str:
    cores = [run.others_cores for run in runs]
    return f"{statistics.median(cores):.2f}, at most {max(cores):.2f}"
