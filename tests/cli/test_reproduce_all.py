"""Every experiment through the command, at the smallest scale and with one cell: all figures, all claims, one page."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from multistable.cli import app
from multistable.experiments.claims import CLAIMS
from multistable.experiments.experiment import Experiment
from multistable.experiments.paper import experiments
from multistable.experiments.paper.grids import COPY
from multistable.experiments.report import verdicts
from multistable.experiments.reproduce import plan
from multistable.experiments.scales import SCALES, SMOKE, Scale
from multistable.tasks.mnist import Digits
from multistable.training import train
from small_runs import small


@pytest.fixture
def one_cell(monkeypatch):
    """Smoke with GRUs alone and one seed."""
    scale = replace(SMOKE, seeds=1, agent_seeds=1, keeps=lambda config: config.cell == "gru" and SMOKE.keeps(config))
    monkeypatch.setitem(SCALES, "smoke", scale)
    return scale


@pytest.fixture
def digits(monkeypatch):
    """Images of nothing, as many as are asked for at this scale."""
    rng = np.random.default_rng(0)

    def load(split, folder=None):
        n = 40 if split == "train" else 20
        return Digits(rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), np.arange(n, dtype=np.uint8) % 10)

    monkeypatch.setattr("multistable.tasks.mnist.load", load)


@pytest.mark.usefixtures("digits")
def test_everything_runs_and_every_figure_is_drawn(one_cell, monkeypatch, tmp_path):
    monkeypatch.setattr("multistable.experiments.figures.DPI", 20)  # Most of the time is that of the pixels.
    result = CliRunner().invoke(
        app, ["reproduce", "all", "--scale", "smoke", "--device", "cpu", "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output[-3000:]
    wanted = list(experiments().values())
    assert plan(wanted, one_cell, tmp_path).left == 0

    pictures = {path.name for path in (tmp_path / "pictures").iterdir()}
    names = [f"{made.name}-{picture.name}".replace("_", "-") for made in wanted for picture in made.pictures]
    assert pictures == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}

    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == len(names)
    for made in wanted:
        assert made.title in page
    for claim in CLAIMS.values():
        assert f">{claim.name}<" in page


def test_runs_with_other_settings_do_not_bear_on_a_claim(tmp_path):
    usual = Experiment("usual", 1, (), "", (small(task=COPY[0]),), (), ("C9",))
    others = Experiment("others", 2, (), "", (small(task=COPY[0], num_layers=2),), (), ("C20",))
    three = Scale("as it is", "nothing is changed", seeds=3)
    train([*usual.at(three), *others.at(three)], tmp_path)
    found = verdicts([usual, others], three, tmp_path)
    assert any("gru classic" in check.said and "(3 runs)" in check.said for check in found["C9"].checks)
    assert not any("(6 runs)" in check.said for check in found["C9"].checks)
