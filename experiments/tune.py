"""Check the times that ``mrflight tune`` predicts from samples against runs on the whole input.

    python -m experiments.tune [--rounds 3] [--budget "2 min"] [--cases clicks,sessions,q18]
        [--scale 1] [--share 0.2] [--data FOLDER] [--out FOLDER]

Each case is a job of the examples on more data. It is tuned on a part of its input, and the whole
job runs before the first trial and after every fourth one, so that a machine that becomes slower or
faster does so for both. If something is recommended, the whole job runs with that, too.

On a machine that is busy with other work, times say little about the model. Processor seconds are
the same there, so the model is fitted to those of the trials as well.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from experiments import mrflight_job, report, timed_process
from experiments.datasets import REPOSITORY, WORK
from mrflight.config.job_file import load_job
from mrflight.frontend.tune.experiment import Experiment
from mrflight.frontend.tune.job_facts import TunedJob
from mrflight.frontend.tune.report import as_json
from mrflight.frontend.tune.time_model import fit
from mrflight.frontend.tune.trial import Amount, Run, Setting, Trial
from mrflight.frontend.tune.trial_process import TrialProcess
from mrflight.result import StageSeconds
from mrflight.units import parse_seconds

TIMEOUT_S = 1800.0
WHOLE_EVERY = 4
"""After so many trials the whole job runs."""

EXAMPLES = REPOSITORY / "examples"


class Case(NamedTuple):
    """A job, and its input."""

    job: str
    """The job file, below the examples."""
    folder: str
    """The folder of the input, beside the job file."""


CASES = {
    "clicks": Case("clicks/job.toml", "visits"),
    "sessions": Case("sessions/job.toml", "logs"),
    "q18": Case("tpch/q18.toml", "data"),
    "q3": Case("tpch/q3.toml", "data"),
}


def generator_options(case: Case, scale: float) -> list[str]:
    """Return the size of the input as options of the example's generator."""
    if case.folder == "visits":  # a key per row, as in the thesis
        return ["--rows", str(round(15_000_000 * scale)), "--keys", "unique"]
    if case.folder == "logs":
        events, users = round(3_000_000 * scale), round(30_000 * scale)
        return ["--events", str(events), "--users", str(users)]
    return [str(scale)]


def prepare(case: Case, scale: float, data: Path) -> Path:
    """Return the job file of a copy of the example, with its input."""
    example = EXAMPLES / Path(case.job).parent
    folder = data / example.name
    ignored = shutil.ignore_patterns("out", "visits", "logs", "data", "__pycache__")
    shutil.copytree(example, folder, ignore=ignored, dirs_exist_ok=True)
    generator = [sys.executable, str(folder / "generate.py"), *generator_options(case, scale)]
    subprocess.run([*generator, "--out", str(folder / case.folder)], check=True)
    return folder / Path(case.job).name


def input_bytes(job: Path, case: Case) -> int:
    return sum(path.stat().st_size for path in (job.parent / case.folder).rglob("*"))


def run_whole(job: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of the job on all of its input, by phase, and its processor seconds."""
    with tempfile.TemporaryDirectory(dir=job.parent) as folder:
        changes = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        changes.append(f"output.table={folder}/out")
        command = mrflight_job.driver_command(job, changes, sys.executable)
        timed = timed_process.run(command, TIMEOUT_S)
    seconds: dict[str, float] = json.loads(timed.stdout.splitlines()[-1])["seconds"]
    return {**seconds, "cpu": timed.cpu_s}


def processor_s() -> float:
    """Return the processor seconds of all processes that this one has started, and waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def predict_processor_s(runs: Sequence[Run], base: Setting, whole: Amount) -> float:
    """Return the processor seconds of the whole job by the model, fitted to those of the trials."""
    return fit(runs, base).seconds(base, whole).total


class Clock:
    """Counts the seconds of the trials only."""

    def __init__(self) -> None:
        self._paused_s = 0.0

    def now(self) -> float:
        return time.monotonic() - self._paused_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._paused_s += time.monotonic() - began


def measure(job_file: Path, case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Make one round of a case."""
    job = TunedJob(load_job(job_file), job_file.parent)
    clock = Clock()
    whole: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(dir=job_file.parent) as scratch:
        process = TrialProcess(job, job_file, (), Path(scratch))

        def run_trial(trial: Trial, sampled: Sequence[str], limit_s: float) -> Run:
            used_s = processor_s()
            run = process.run(trial, sampled, limit_s)
            used_s = processor_s() - used_s
            trials.append(Run(trial, StageSeconds(total=used_s, map=used_s)))
            if len(trials) % WHOLE_EVERY == 0:
                with clock.paused():
                    whole.append(run_whole(job_file, {}))
            return run

        trials: list[Run] = []
        whole.append(run_whole(job_file, {}))
        sample_bytes = round(input_bytes(job_file, case) * options.share)
        experiment = Experiment(job, run_trial, clock.now, lambda run: None)
        outcome = experiment.run(parse_seconds(options.budget), sample_bytes)
    found = json.loads(as_json(job, outcome))
    recommended = run_whole(job_file, found["recommended"]) if found["recommended"] else None
    base, whole_input = job.facts.base, outcome.samples.whole
    return {
        "whole": whole,
        "recommended": recommended,
        "predicted_cpu_s": predict_processor_s(trials, base, whole_input),
        "tune": found,
    }


def figures(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Return the medians over the rounds of what was predicted and measured, and of the ratios."""

    def median(value: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(map(value, rounds))

    def measured(each: dict[str, Any]) -> float:
        return statistics.fmean(whole["total"] for whole in each["whole"])

    def cpu(each: dict[str, Any]) -> float:
        return statistics.fmean(whole["cpu"] for whole in each["whole"])

    def predicted(each: dict[str, Any]) -> float:
        seconds: float = each["tune"]["whole_input"]["seconds"]["total"]
        return seconds

    return {
        "measured_s": median(measured),
        "predicted_s": median(predicted),
        "ratio": median(lambda each: predicted(each) / measured(each)),
        "least": min(predicted(each) / measured(each) for each in rounds),
        "most": max(predicted(each) / measured(each) for each in rounds),
        "cpu_measured_s": median(cpu),
        "cpu_ratio": median(lambda each: each["predicted_cpu_s"] / cpu(each)),
        "claimed": median(lambda each: each["tune"]["whole_input"]["error"]),
        "sample": median(lambda each: each["tune"]["sample"]["bytes"]),
        "of": median(lambda each: each["tune"]["sample"]["of_bytes"]),
        "runs": median(lambda each: len(each["tune"]["runs"])),
        "whole_runs": median(lambda each: len(each["whole"])),
    }


def page(cases: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "# Predicted by mrflight tune",
        "",
        "| job | sample | input | trials | predicted s | whole runs | measured s "
        "| predicted / measured | said to be within | processor s measured "
        "| predicted / measured |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rounds in cases.items():
        each = figures(rounds)
        ratios = f"{each['ratio']:.2f} ({each['least']:.2f} to {each['most']:.2f})"
        lines.append(
            f"| {name} | {each['sample'] / 2**20:.0f} MiB | {each['of'] / 2**20:.0f} MiB "
            f"| {each['runs']:.0f} | {each['predicted_s']:.2f} | {each['whole_runs']:.0f} "
            f"| {each['measured_s']:.2f} "
            f"| {ratios} | {each['claimed']:.0%} | {each['cpu_measured_s']:.2f} "
            f"| {each['cpu_ratio']:.2f} |"
        )
    lines += ["", "| job | round | recommended | predicted gain | measured gain |"]
    lines.append("|---|---|---|---|---|")
    for name, rounds in cases.items():
        for number, one in enumerate(rounds, 1):
            lines.append(f"| {name} | {number} | {' | '.join(gains(one))} |")
    return "\n".join(lines) + "\n"


def gains(one: dict[str, Any]) -> tuple[str, str, str]:
    """Return what a round recommended, and its gain on the whole input."""
    found, changed = one["tune"]["whole_input"], one["tune"]["recommended"]
    if one["recommended"] is None:
        return "nothing", "", ""
    shown = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in changed.items())
    predicted = 1 - found["seconds_as_recommended"]["total"] / found["seconds"]["total"]
    measured = 1 - one["recommended"]["total"] / one["whole"][-1]["total"]
    return shown, f"{predicted:.0%}", f"{measured:.0%}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", default="2 min")
    parser.add_argument("--cases", default="clicks,sessions,q18", help=f"of {', '.join(CASES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the inputs")
    parser.add_argument("--share", type=float, default=0.2, help="of the input that is sampled")
    parser.add_argument("--data", type=Path, default=WORK / "tune", help="where inputs are kept")
    parser.add_argument("--out", type=Path, default=WORK / "tune")
    options = parser.parse_args()
    cases: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for name in options.cases.split(","):
            job = prepare(CASES[name], options.scale, options.data)
            cases.setdefault(name, []).append(measure(job, CASES[name], options))
            report.write(options.out, "tune", {"cases": cases}, page(cases))


if __name__ == "__main__":
    main()
