"""Claims on the curves of runs: what becomes of them where nothing is learned, or where VAA is not known."""

from dataclasses import replace

import pytest

from made_up_results import CELLS, COPY, DENOISING, MAZES, ONE, RESULTS, agents, curves, made
from multistable.experiments.claims import CLAIMS, FAILS, HOLDS, OPEN

FOLLOW = ["C3", "C6", "C20"]
"""The claims that a loss falls only once VAA has risen."""


def test_runs_that_all_learn_nothing_say_nothing_of_when_a_loss_falls():
    for name in FOLLOW:
        known = RESULTS[name][0]
        runs = [replace(run, metrics=[row | {"validation_loss": 1.0} for row in run.metrics]) for run in known]
        finding = CLAIMS[name].finding(runs)
        assert finding.verdict == OPEN, name
        assert f"0 of {len(of_one_task(runs))} runs have a loss below 0.8" in [check.said for check in finding.checks]


def test_only_the_shortest_sequences_tell_when_a_loss_falls():
    """C3, beside longer ones that learn without attractors."""
    longer = curves(COPY[1:2], CELLS, (ONE, ONE, ONE))
    assert CLAIMS["C3"].finding(RESULTS["C3"][0] + longer).verdict == HOLDS
    learned_nothing = [run for cell in CELLS for run in made(COPY[0], cell)]
    assert CLAIMS["C3"].finding(learned_nothing + longer).verdict == OPEN


def of_one_task(runs):
    """The runs on the first task; C6 is about one of two."""
    return [run for run in runs if run.config.task == runs[0].config.task]


@pytest.mark.parametrize("known", [(), (ONE,), (ONE, ONE)])
def test_a_vaa_that_is_not_known_when_the_loss_falls_does_not_refute(known):
    def without(run):
        vaas = (*known, *[None] * (len(run.metrics) - len(known)))
        return replace(run, metrics=[row | {"vaa": vaa} for row, vaa in zip(run.metrics, vaas, strict=True)])

    for name in FOLLOW:
        assert CLAIMS[name].finding(list(map(without, RESULTS[name][0]))).verdict == OPEN, name


@pytest.mark.parametrize(
    ("returns", "vaas", "verdict"),
    [((-0.5, 1.0, 4.0), (ONE, ONE, ONE), FAILS), ((-0.5, -0.5, -0.5), (ONE, 0.5, 1.0), OPEN)],
)
def test_agents_that_learn_without_attractors_refute_that_both_rise(returns, vaas, verdict):
    """C7, of which agents that never learn say nothing."""
    finding = CLAIMS["C7"].finding(agents(MAZES[-1], ("gru", "classic"), returns, vaas=vaas))
    assert finding.verdict == verdict


def with_lstms(*courses):
    """C5's results with LSTMs that have these VAAs, epoch by epoch."""
    lstms = made(DENOISING[1], "lstm", seeds=len(courses))
    measured = [[{"epoch": epoch, "vaa": vaa} for epoch, vaa in enumerate(course)] for course in courses]
    others = [run for run in RESULTS["C5"][0] if run.config.cell != "lstm"]
    return others + [replace(run, metrics=rows) for run, rows in zip(lstms, measured, strict=True)]


def test_a_vaa_that_stays_near_0_is_near_it_whenever_it_is_measured():
    """C5, of which the paper says: throughout the learning."""
    courses = {(ONE, 0.06, ONE): HOLDS, (ONE, 0.5, ONE): FAILS, (ONE, None, ONE): HOLDS, (None, None, None): OPEN}
    assert {vaas: CLAIMS["C5"].finding(with_lstms(vaas, vaas, vaas)).verdict for vaas in courses} == courses


def test_an_lstm_whose_vaa_is_lost_on_the_way_leaves_open_whether_it_stays_near_0():
    near = (ONE, ONE, ONE)
    finding = CLAIMS["C5"].finding(with_lstms(near, near, near, (ONE, None, None)))
    assert finding.verdict == OPEN
    assert "1 diverged" in finding.checks[-1].said
