"""Tests of which trials are made, in what time, and of what is recommended by them.

The trials run on a machine that is a formula, with a clock of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from mrflight.config.job_file import load_job
from mrflight.errors import DeadlineExceededError, InputError, JobError
from mrflight.frontend.tune import report
from mrflight.frontend.tune.design import changed_keys
from mrflight.frontend.tune.experiment import Experiment, Outcome
from mrflight.frontend.tune.job_facts import TunedJob
from mrflight.frontend.tune.recommendation import recommend
from mrflight.frontend.tune.trial import Run, Trial
from mrflight.result import StageSeconds
from tests.support.suite.messages import refused

MIB = 2**20

JOB = """
[job]
name = "clicks"
[inputs.visits]
path = "visits/*.csv"
key = ["url"]
[shuffle]
partitions = 20
compression = "none"
[reduce]
group_by = ["url"]
aggregate = { n = "count(*)" }
[cluster]
workers = 2
memory = "2 GiB"
[output]
table = "out"
"""

JOIN = """
[job]
name = "join"
[inputs.visits]
path = "visits/*.csv"
key = ["url"]
[inputs.sites]
path = "sites/*.csv"
key = ["url"]
[shuffle]
partitions = 20
[reduce]
join = "inner"
[cluster]
workers = 2
memory = "2 GiB"
[output]
table = "s3://bucket/out"
mode = "merge"
keys = ["url"]
"""


class Machine:
    """Runs trials by a formula: seconds by phase and by what the trial is."""

    def __init__(self, seconds: Callable[[Trial], StageSeconds], spread: float = 0.0) -> None:
        self.now = 0.0
        self.trials: list[Trial] = []
        self._seconds = seconds
        self._spread = spread
        self._dice = random.Random(1)

    def clock(self) -> float:
        return self.now

    def run(self, trial: Trial, sampled: Sequence[str], limit_s: float) -> Run:
        self.trials.append(trial)
        luck = self._dice.uniform(1 - self._spread, 1 + self._spread)
        parts = self._seconds(trial)
        seconds = StageSeconds(0, 0.3, parts.map * luck, parts.reduce * luck, 0.01)
        seconds = replace(seconds, total=sum(getattr(seconds, each) for each in PHASES))
        self.now += seconds.total
        if seconds.total > limit_s:
            raise DeadlineExceededError("it took too long")
        rows = trial.amount.size_bytes // 20
        return Run(trial, seconds, rows, rows, trial.amount.size_bytes, 300 * MIB)


PHASES = ("start", "map", "reduce", "commit")


SLOW = StageSeconds(map=1000.0)


def steady(trial: Trial) -> StageSeconds:
    """A job whose settings do not matter."""
    x = trial.amount.size_bytes / MIB
    workers = min(1.0, trial.setting.workers / 2)
    return StageSeconds(map=0.2 * x / workers, reduce=0.1 * x / workers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    for name, files, lines in (("visits", 4, 300_000), ("sites", 2, 3_000)):
        (folder / name).mkdir()
        for number in range(files):
            text = "url,n\n" + "www.site.com,1\n" * lines
            (folder / name / f"{number}.csv").write_text(text)
    return folder


def tune(
    folder: Path,
    machine: Machine,
    text: str = JOB,
    budget_s: float = 120.0,
    sample: int | None = None,
) -> tuple[TunedJob, Outcome]:
    (folder / "job.toml").write_text(text)
    job = TunedJob(load_job(folder / "job.toml"), folder)
    experiment = Experiment(job, machine.run, machine.clock, lambda run: None)
    return job, experiment.run(budget_s, sample)


def changes(job: TunedJob, outcome: Outcome) -> dict[str, int | str]:
    found = outcome.recommendation
    return changed_keys(found.before, found.after, job.facts)


def test_settings_that_do_not_matter_are_left(folder: Path) -> None:
    machine = Machine(steady, spread=0.03)
    job, outcome = tune(folder, machine)
    assert changes(job, outcome) == {}
    assert "Recommended: leave the settings as they are." in report.report(job, outcome)
    tried = [trial.setting.partitions for trial in machine.trials]
    assert set(tried) == {5, 10, 20, 40, 80}
    base = outcome.recommendation.before
    assert tried.count(20) > 3
    assert sum(run.trial == Trial(base, outcome.samples.full) for run in outcome.runs) == 3


@pytest.mark.parametrize(
    ("name", "value", "key", "written"),
    [
        ("partitions", 80, "shuffle.partitions", 80),
        ("partitions", 5, "shuffle.partitions", 5),
        ("compression", "lz4", "shuffle.compression", "lz4"),
        ("compression", "zstd", "shuffle.compression", "zstd"),
        ("workers", 4, "cluster.workers", 4),
    ],
)
def test_a_setting_that_saves_much_is_recommended(
    folder: Path, name: str, value: int | str, key: str, written: int | str
) -> None:
    def seconds(trial: Trial) -> StageSeconds:
        x = trial.amount.size_bytes / MIB
        if name == "partitions" and value == 80:
            return StageSeconds(map=0.1 * x, reduce=0.1 * x + 2 * x / trial.setting.partitions)
        if name == "partitions":
            return StageSeconds(map=0.1 * x, reduce=0.1 * x + 0.05 * trial.setting.partitions)
        fast = 0.5 if trial.setting.of(name) == value else 1.0
        return StageSeconds(map=0.2 * x * fast, reduce=0.1 * x)

    job, outcome = tune(folder, Machine(seconds, spread=0.02), sample=4 * MIB)
    assert changes(job, outcome) == {key: written}
    text = report.report(job, outcome)
    shown = f'"{written}"' if isinstance(written, str) else written
    assert f"\n  {key} = {shown}  # saves " in text
    assert outcome.recommendation.seconds_after.total < outcome.recommendation.seconds_before.total


def test_what_the_model_prefers_must_hold_when_it_runs(folder: Path) -> None:
    """Two changes help alone, and hurt together."""

    def seconds(trial: Trial) -> StageSeconds:
        x = trial.amount.size_bytes / MIB
        many, small = trial.setting.partitions == 80, trial.setting.compression == "lz4"
        return StageSeconds(
            map=0.1 * x * (0.8 if small else 1) * (6 if many and small else 1),
            reduce=5 * x / trial.setting.partitions,
        )

    job, outcome = tune(folder, Machine(seconds))
    assert changes(job, outcome) == {"shuffle.partitions": 80}
    contradicted = outcome.recommendation.contradicted
    assert contradicted is not None
    assert (contradicted.partitions, contradicted.compression) == (80, "lz4")
    assert "It was not when it ran on the sample" in report.report(job, outcome)


def test_what_ran_once_is_not_recommended(folder: Path) -> None:
    def seconds(trial: Trial) -> StageSeconds:
        return StageSeconds(map=1.0 if trial.setting.compression == "lz4" else 2.0, reduce=0.01)

    job, outcome = tune(folder, Machine(seconds))
    assert changes(job, outcome) == {"shuffle.compression": "lz4"}
    once = tuple({run.trial: run for run in outcome.runs}.values())
    found = recommend(job.facts, outcome.samples, once)
    outcome = replace(outcome, runs=once, recommendation=found)
    assert changes(job, outcome) == {}
    text = report.report(job, outcome)
    assert "shuffle.compression = lz4 may be faster, but the runs until now" in text


def test_the_whole_input_is_predicted_from_samples(folder: Path) -> None:
    job, outcome = tune(folder, Machine(steady, spread=0.02), sample=4 * MIB)
    samples, found = outcome.samples, outcome.recommendation
    assert 3 * MIB < samples.full.size_bytes < 5 * MIB
    assert 17 * MIB < samples.whole.size_bytes < 18 * MIB
    expected = 0.3 * samples.whole.size_bytes / MIB + 0.31
    assert found.seconds_before.total == pytest.approx(expected, rel=0.1)
    assert found.shuffled_bytes == pytest.approx(samples.whole.size_bytes, rel=0.01)
    text = report.report(job, outcome)
    assert "  inputs.visits: 4.1 MiB of 17.2 MiB: parts of 4 files, " in text
    assert "The whole input, by the model (within about " in text


def test_less_memory_for_less_input_shows_that_the_whole_spills(folder: Path) -> None:
    def seconds(trial: Trial) -> StageSeconds:
        x = trial.amount.size_bytes / MIB
        spills = trial.setting.memory_bytes < 2 * 2**30
        return StageSeconds(map=x * (0.4 if spills else 0.2), reduce=0.01)

    _, outcome = tune(folder, Machine(seconds), sample=4 * MIB)
    found, whole = outcome.recommendation, outcome.samples.whole
    assert found.spills
    assert found.seconds_before.map == pytest.approx(0.4 * whole.size_bytes / MIB, rel=0.05)


def test_the_budget_is_kept(folder: Path) -> None:
    machine = Machine(steady)
    _, outcome = tune(folder, machine, budget_s=20.0)
    assert machine.now < 20.0
    assert outcome.skipped
    _, all_of_it = tune(folder, Machine(steady), budget_s=1000.0)
    assert not all_of_it.skipped
    assert all_of_it.samples.is_whole


def test_a_job_that_is_too_slow_for_the_budget_is_an_error(folder: Path) -> None:
    with pytest.raises(DeadlineExceededError, match="it took too long"):
        tune(folder, Machine(steady), budget_s=1.0)


def test_a_repeat_that_is_too_slow_ends_the_trials(folder: Path) -> None:
    """Nothing of what was measured before is lost."""
    machine = Machine(lambda trial: steady(trial) if machine.trials[1:].count(trial) < 2 else SLOW)
    job, outcome = tune(folder, machine)
    assert machine.trials[-1] == Trial(outcome.recommendation.before, outcome.samples.full)
    assert len(outcome.runs) == len(machine.trials) - 2  # without the first, and without the last
    assert "Recommended: leave the settings as they are." in report.report(job, outcome)


def test_other_settings_may_fail(folder: Path) -> None:
    def seconds(trial: Trial) -> StageSeconds:
        if trial.setting.workers != 2:
            raise JobError("cluster.memory: 2 GiB is too little for 4 workers")
        return steady(trial)

    job, outcome = tune(folder, Machine(seconds))
    failed = [run for run in outcome.runs if run.error is not None]
    assert {run.trial.setting.workers for run in failed} == {1, 4}
    assert "failed: cluster.memory: 2 GiB is too little" in report.report(job, outcome)
    assert changes(job, outcome) == {}


def test_the_own_settings_must_not_fail(folder: Path) -> None:
    def seconds(trial: Trial) -> StageSeconds:
        raise JobError("inputs.visits.map: KeyError")

    with refused(JobError, "inputs.visits.map"):
        tune(folder, Machine(seconds))


def test_an_input_without_rows_cannot_be_tuned(tmp_path: Path) -> None:
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "a.arrow").touch()
    with pytest.raises(InputError):
        tune(tmp_path, Machine(steady), JOB.replace(".csv", ".arrow"))


def test_the_small_input_of_a_join_is_read_whole(folder: Path) -> None:
    text = JOIN.replace("partitions = 20", 'partitions = "auto"')
    job, outcome = tune(folder, Machine(steady), text, sample=4 * MIB)
    assert outcome.sampled == ("inputs.visits",)
    broadcast = {"inputs.visits.broadcast": False, "inputs.sites.broadcast": True}
    assert job.fixed_keys() == broadcast
    text = report.report(job, outcome)
    assert "  inputs.sites: 87.9 KiB, all of it" in text
    assert "The time to write to s3://bucket/out is not in the estimate." in text
    assert "The trials merged into an empty table." in text
    assert "The job has one partition whatever is set" in text


@pytest.mark.parametrize(
    ("cluster", "workers", "note"),
    [
        ('executor = "ray"', {2}, "Other workers and other memory were not tried, because Ray"),
        ('metadata = "grpc+tcp://127.0.0.1:1"', {1, 2, 4}, "Other memory was not tried, because"),
    ],
)
def test_what_the_cluster_decides_is_not_tried(
    folder: Path, cluster: str, workers: set[int], note: str
) -> None:
    machine = Machine(steady)
    job, outcome = tune(folder, machine, JOB.replace("[cluster]", f"[cluster]\n{cluster}"))
    assert {trial.setting.workers for trial in machine.trials} == workers
    assert len({trial.setting.memory_bytes for trial in machine.trials}) == 1
    assert note in report.report(job, outcome)


def test_a_sample_that_the_job_reads_itself_is_sampled(folder: Path) -> None:
    text = JOB.replace("[shuffle]", "sample = 0.5\n[shuffle]")
    job, outcome = tune(folder, Machine(steady), text, sample=4 * MIB)
    assert 8 * MIB < outcome.samples.whole.size_bytes < 9 * MIB
    fraction = outcome.samples.full.fraction
    assert 0.4 < fraction < 0.6
    assert job.sample_keys(fraction, outcome.sampled) == {"inputs.visits.sample": fraction / 2}
    assert job.sample_keys(1.0, outcome.sampled) == {}


def test_bad_rows_are_not_written_to_the_folder_of_the_job(folder: Path) -> None:
    text = JOB.replace("[shuffle]", 'bad_rows = "bad"\n[shuffle]')
    job, _ = tune(folder, Machine(steady), text)
    assert job.fixed_keys() == {"inputs.visits.bad_rows": "skip"}


def test_both_large_inputs_of_a_join_are_sampled(folder: Path) -> None:
    text = JOIN.replace("sites/*.csv", "visits/*.csv")
    job, outcome = tune(folder, Machine(steady), text, sample=4 * MIB)
    assert set(outcome.sampled) == {"inputs.visits", "inputs.sites"}
    assert "2 inputs were sampled (inputs.visits, inputs.sites)" in report.report(job, outcome)
