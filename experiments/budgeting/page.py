"""The tables of the budgets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.budgeting.record import Budget
from experiments.budgeting.stages import Stage
from experiments.budgeting.work import Floor

_LEAST_S = 0.0005
_LEAST_FLOOR_S = 0.005
"""Less is not compared with."""


def page(budgets: Sequence[Budget]) -> str:
    """Return the page of all budgets."""
    lines = ["# Budgets", "", *_summary(budgets), ""]
    for budget in budgets:
        lines += [f"## {budget.name}", "", f"{budget.title}.", "", *_table(budget), ""]
        lines += [_processes(budget), "", _runs(budget), ""]
    return "\n".join(lines)


def _summary(budgets: Sequence[Budget]) -> list[str]:
    """Return one row for each job: its time, and where most of what is above the floors goes."""
    lines = [
        "| job | wall s | core s | at its floors | furthest above their floors |",
        "|---|---|---|---|---|",
    ]
    for each in budgets:
        above = each.above_s
        most = sorted(above, key=lambda stage: -above[stage])[:5]
        named = ", ".join(f"{stage} {above[stage]:.2f}" for stage in most)
        wall, cpu = map(statistics.median, (each.alone.wall_s, each.alone.cpu_s))
        lines.append(f"| {each.name} | {wall:.2f} | {cpu:.2f} | {each.at_floors_s:.2f} | {named} |")
    return lines


def _table(budget: Budget) -> list[str]:
    lines = [
        "| stage | core s | share | floor | by | core s / floor | most of it |",
        "|---|---|---|---|---|---|---|",
    ]
    total = budget.cpu_s
    for stage, seconds in budget.stages.items():
        floor = budget.floors.get(stage)
        if seconds < _LEAST_S and floor is None:
            continue
        cells = ["-", _why_none(budget, stage), "-"]
        if floor is not None:
            cells = [f"{floor.seconds:.3f}", floor.how, _ratio(budget.spent_s(stage), floor)]
        most = ", ".join(
            f"{name.removeprefix('mrflight.')} {spent:.3f}"
            for name, spent in list(budget.functions[stage].items())[:2]
            if spent >= _LEAST_S
        )
        row = [stage, f"{seconds:.3f}", f"{seconds / total:.0%}", *cells, most]
        lines.append(f"| {' | '.join(row)} |")
    at_floors = budget.at_floors_s
    ratio = f"{total / at_floors:.1f}"
    lines.append(f"| all | {total:.3f} | 100% | {at_floors:.3f} | the lesser of both | {ratio} | |")
    lines.append(f"| wait | {budget.wait_s:.3f} | | | | | |")
    return lines


def _ratio(spent_s: float, floor: Floor) -> str:
    return "-" if floor.seconds < _LEAST_FLOOR_S else f"{spent_s / floor.seconds:.1f}"


def _why_none(budget: Budget, stage: Stage) -> str:
    """Return why a stage has no floor of its own, if that is so."""
    within = budget.included_in(stage)
    return "" if within is None else f"in {within}"


def _processes(budget: Budget) -> str:
    """Return what each kind of process takes, and most of it."""
    found = []
    for role, stages in sorted(budget.roles.items(), key=lambda each: -sum(each[1].values())):
        first, *_ = sorted(stages, key=lambda stage: -stages[stage])
        most = f"{first} {stages[first]:.2f}"
        found.append(f"{role} {sum(stages.values()):.2f} ({most})")
    return f"By process: {', '.join(found)}."


def _runs(budget: Budget) -> str:
    alone, sampled = budget.alone, budget.sampled
    wall, cpu = (statistics.median(each) for each in (alone.wall_s, alone.cpu_s))
    with_wall, with_cpu, own = (
        statistics.median(each) for each in (sampled.wall_s, sampled.cpu_s, sampled.sampler_s)
    )
    return (
        f"Medians of {len(alone.wall_s)}: {wall:.2f} s and {cpu:.2f} core-seconds; with the "
        f"sampler {with_wall:.2f} s, {with_cpu:.2f} core-seconds, and {own:.2f} of its own."
    )
