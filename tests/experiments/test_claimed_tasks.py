"""Which runs a claim is judged by: those on its own tasks, at the scale asked for."""

import pytest

from made_up_results import COPY, RESULTS, made, versions
from multistable.experiments.claims import CLAIMS, HOLDS, OPEN, Claim
from multistable.experiments.claims.base import below, by
from multistable.experiments.experiment import Experiment
from multistable.experiments.paper.grids import TASKS
from multistable.experiments.report import verdicts
from multistable.experiments.scales import PAPER, SCALES
from multistable.rl import Maze
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST


def made_up_experiment(*runs, claims=("C9",)):
    return Experiment(
        "made-up", 0, (), "Made up", tuple(run.config for run in runs if run.config.seed == 0), (), claims
    )


def test_a_claim_is_judged_on_the_papers_tasks_whatever_else_an_experiment_has():
    """C9, with results at T = 1000 that would refute it, and would leave it open for want of other cells."""
    papers = RESULTS["C9"][0]
    others = versions([CopyFirstInput(1000)], {"classic": 0.9, "warmup": 0.5}, cells=["gru"])
    source = {run.config.name: run for run in papers + others}
    own = [made_up_experiment(*papers), made_up_experiment(*others)]
    alone, beside = (verdicts(some, PAPER, source)["C9"] for some in (own[:1], own))
    assert alone.verdict == beside.verdict == HOLDS
    assert alone.checks == beside.checks
    without_600 = [run for run in papers if run.config.task != COPY[-1]]
    assert verdicts([made_up_experiment(*without_600, *others)], PAPER, source)["C9"].verdict == OPEN


def test_a_claim_of_ones_own_is_judged_on_its_own_tasks(monkeypatch):
    def learned(results):
        return [below("gru", by(results, lambda config: config.cell, "test_loss")["gru"], 0.1)]

    long = CopyFirstInput(1000)
    monkeypatch.setitem(CLAIMS, "C9", Claim("C9", "It is learned", (), learned, tasks=(long,)))
    runs = [*made(long, "gru", test_loss=0.01), *made(COPY[0], "gru", test_loss=0.9)]
    finding = verdicts([made_up_experiment(*runs)], PAPER, {run.config.name: run for run in runs})["C9"]
    assert finding.verdict == HOLDS


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_changes_the_papers_tasks_and_no_others(scale):
    own = [CopyFirstInput(1000), Denoising(400, 5), Denoising(200, 50), PermutedLineSequentialMNIST(100), Maze(7)]
    assert [SCALES[scale].tasks(task) for task in own] == own
    assert len({SCALES[scale].tasks(task) for task in TASKS}) == len(TASKS)
