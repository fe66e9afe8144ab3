"""A small experiment, and the commands that run it.

The fixtures themselves import what the command line needs, since tests of the kernels run where it is not installed.
"""

from dataclasses import replace

import pytest


@pytest.fixture
def tiny(monkeypatch):
    """A single experiment of two kinds of runs, one seed each."""
    from multistable.experiments.experiment import Experiment
    from multistable.experiments.pictures import Bars, Curves
    from multistable.experiments.scales import SCALES, SMOKE
    from small_runs import small

    made = Experiment(
        name="tiny",
        order=1,
        labels=("fig:none",),
        title="Two networks",
        runs=(small(), small(version="warmup")),
        pictures=(
            Bars(name="test_loss", caption="The test loss."),
            Curves(name="each", caption="Both.", quantities=("validation_loss", "vaa"), series=lambda c: c.version),
        ),
        claims=("C9",),
    )
    monkeypatch.setattr("multistable.cli.experiments.experiments", lambda: {"tiny": made})
    monkeypatch.setitem(
        SCALES, "smoke", replace(SMOKE, seeds=1, changes={}, units=lambda n: n, tasks=lambda task: task)
    )
    return made


@pytest.fixture
def command():
    """A function that runs a command."""
    from typer.testing import CliRunner

    from multistable.cli import app

    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])
