"""Verdicts where runs have diverged: they leave a comparison open, and hide nothing."""

from dataclasses import replace

import pytest

from made_up_results import RESULTS, faster
from multistable.experiments.claims import CLAIMS, FAILS, OPEN


def diverged(run):
    """Another seed of a run, without a finite loss in any epoch; an accuracy it has."""
    return replace(
        run,
        config=replace(run.config, seed=3),
        metrics=[row | {"validation_loss": None} for row in run.metrics],
        results=run.results | {"test_loss": None},
        warmup=None if run.warmup is None else {"outcome": "diverged"},
    )


LOSSES = [name for name in RESULTS if name not in ("C1", "C5", "C7", "C12", "C24", "Q2")]
"""The claims on losses, accuracies and warmups of networks."""


def test_a_run_that_has_diverged_does_not_let_a_claim_hold():
    for name in LOSSES:
        runs = RESULTS[name][0]
        finding = CLAIMS[name].finding(runs + [diverged(run) for run in runs if run.config.seed == 0])
        assert finding.verdict == OPEN, name
        said = [one.said for check in finding.checks for one in (check, *check.cases)]
        assert any("1 diverged" in one for one in said), name


def test_runs_of_which_all_have_diverged_are_told_of():
    runs = [diverged(run) for run in RESULTS["C11"][0]]
    said = CLAIMS["C11"].finding(runs).checks[0].said
    assert said.endswith("lstm warmed up (0 runs, 3 diverged), less than lstm classic (0 runs, 3 diverged)?")


@pytest.mark.parametrize("left", [{"epoch": 1, "validation_loss": None}, {"epoch": 1}], ids=["recorded", "stored"])
def test_a_run_that_diverges_late_is_not_fast(left):
    """C17, where its mean over the epochs before would be the lower."""
    late = [
        replace(run, metrics=[{"epoch": 0, "validation_loss": 0.1}, left]) if run.config.version == "double" else run
        for run in faster(double=0.01, warmup=0.3)
    ]
    assert CLAIMS["C17"].finding(late).verdict == OPEN


def test_runs_that_refute_do_so_beside_one_that_has_diverged():
    runs = RESULTS["C6"][1]
    assert CLAIMS["C6"].finding([*runs, diverged(runs[0])]).verdict == FAILS
