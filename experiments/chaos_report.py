"""Write the tables of the soak: the faults, their effects, and the cost of recovery."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from experiments.chaos_outcome import Outcome
from experiments.chaos_plan import Scenario


def page(
    scenarios: Sequence[Scenario], outcomes: Sequence[Outcome], undisturbed_s: Mapping[str, float]
) -> str:
    """Return Markdown: a row for all runs, rows by cluster, fault and victim, and the failures."""
    pairs = list(zip(scenarios, outcomes, strict=True))
    groups: dict[str, list[tuple[Scenario, Outcome]]] = {}
    for scenario, outcome in pairs:
        kinds = sorted({f"{strike.fault} {strike.victim}" for strike in scenario.strikes})
        groups.setdefault(f"{scenario.cluster}: {' + '.join(kinds)}", []).append(
            (scenario, outcome)
        )
    lines = [
        "| what | runs | faults that hit | attempts | failed ones | survived | failed, may "
        "| failed | wrong | hung | leftovers | cleaned files | cost: median | most |",
        "|---" * 14 + "|",
        _row("all", pairs, undisturbed_s),
        *(_row(name, group, undisturbed_s) for name, group in sorted(groups.items())),
        "",
        *(f"- undisturbed, {name}: {wall:.2f} s" for name, wall in sorted(undisturbed_s.items())),
        *(_failure(outcome) for outcome in outcomes if outcome.is_bad),
    ]
    return "\n".join(lines) + "\n"


def _row(
    name: str, pairs: Sequence[tuple[Scenario, Outcome]], undisturbed_s: Mapping[str, float]
) -> str:
    outcomes = [outcome for _, outcome in pairs]
    attempts = [outcome.attempts or {} for outcome in outcomes]
    costs = [
        outcome.wall_s - undisturbed_s[scenario.cluster]
        for scenario, outcome in pairs
        if outcome.is_survived
    ]
    ended = [outcome for outcome in outcomes if outcome.state in ("failed", "killed")]
    cells = [
        len(outcomes),
        sum(len(outcome.hits) for outcome in outcomes),
        sum(made.get("map", 0) + made.get("reduce", 0) for made in attempts),
        sum(made.get("failed", 0) for made in attempts),
        sum(outcome.is_survived for outcome in outcomes),
        sum(outcome.may_fail for outcome in ended),
        sum(not outcome.may_fail for outcome in ended),
        sum(bool(outcome.wrong) for outcome in outcomes),
        sum(outcome.state == "hung" for outcome in outcomes),
        sum(bool(outcome.leftovers) for outcome in outcomes),
        sum(outcome.cleaned_files for outcome in outcomes),
        f"{statistics.median(costs):+.2f} s" if costs else "",
        f"{max(costs):+.2f} s" if costs else "",
    ]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _failure(outcome: Outcome) -> str:
    why = [*outcome.wrong, *outcome.leftovers, outcome.missed, outcome.message]
    if outcome.rerun not in ("", "committed"):
        why.append(f"rerun: {outcome.rerun.strip().splitlines()[-1]}")
    reasons = "; ".join(text.splitlines()[0] for text in why if text)
    return f"- seed {outcome.seed} ({outcome.scenario}): {outcome.state}: {reasons}"
