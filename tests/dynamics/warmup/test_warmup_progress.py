"""The line that says where a warmup is."""

import io
import sys

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.warmup import default, progress, run_warmup
from multistable.dynamics.warmup.progress import Line

pytestmark = pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")


@pytest.fixture(autouse=True)
def short_final_measure(monkeypatch):
    monkeypatch.setattr(run_warmup, "FINAL_STABILISATION", 100)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def warm_up(rnn=None, **options):
    settings = {"algorithm": "paper", "steps": 5, "batch_size": 6, "max_stabilisation": 5, "progress": True}
    settings |= {"generator": torch.Generator().manual_seed(0)} | options
    return ms.warmup(nn.GRU(1, 4) if rnn is None else rnn, torch.randn(9, 10, 1), **settings)


def test_nothing_is_shown_unless_asked_for(capsys):
    warm_up(progress=False)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_one_line_is_written_over_and_ended(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    history = warm_up()
    written = terminal.getvalue()
    assert written.count("\n") == 1
    assert written.endswith("\n")
    _, *steps, measuring, last = written.split("\r")
    assert [line.split(", ")[0] for line in steps] == [f"warmup: step {i} of at most 5" for i in range(1, 6)]
    assert measuring.startswith("warmup: step 5 of at most 5, measuring VAA of 100 states over 100 steps, ")
    assert last.startswith(repr(history))


def test_nothing_is_left_of_a_longer_line_that_is_written_over():
    terminal = Terminal()
    line = Line(5, terminal)
    line.step(ms.WarmupStep(1, torch.tensor([0.1, 0.2]), torch.tensor(0.0), torch.tensor(1)))
    line.step(ms.WarmupStep(2, torch.tensor([0.1, 0.1]), torch.tensor(0.0), torch.tensor(1)))
    longer, shorter = terminal.getvalue().lstrip("\r").split("\r")
    assert len(shorter.rstrip()) < len(longer) == len(shorter)


def test_a_line_fits_the_terminal_but_for_the_last(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    history = warm_up()
    _, *lines, last = terminal.getvalue().split("\r")
    assert {len(line) for line in lines} == {29}
    assert last.startswith(repr(history))


def test_elsewhere_there_is_a_line_now_and_then(monkeypatch, capsys):
    for pause, steps in ((1e9, [1]), (0.0, [1, 2, 3, 4, 5])):
        monkeypatch.setattr(progress, "PAUSE", pause)
        history = warm_up()
        written = capsys.readouterr().err
        assert "\r" not in written
        *told, measuring, last = written.splitlines()
        assert [line.split(", ")[0] for line in told] == [f"warmup: step {i} of at most 5" for i in steps]
        assert "VAA* " in told[0]
        assert "measuring VAA" in measuring
        assert last.startswith(repr(history))


def test_each_part_of_a_look_of_the_default_warmup_is_told_before_it(monkeypatch, capsys):
    monkeypatch.setattr(default, "CHECK_WANTED", 10)
    monkeypatch.setattr(progress, "PAUSE", 1e9)
    history = warm_up(algorithm="reliable", target=0.5, steps=20)
    lines = capsys.readouterr().err.splitlines()
    assert [check.step for check in history.checks if check.asked] == [10, 20]
    # Ten sequences; once more for a network that never was as it should be.
    measured = [line.rsplit(",", 1)[0] for line in lines if "measuring" in line]
    told = "warmup: step {} of at most 20, measuring VAA of 100 states over 100 steps"
    assert measured == [told.format(step) for step in (10, 20, 20)]


def test_the_lowest_and_the_highest_of_several_layers_are_told(capsys):
    history = warm_up(nn.GRU(1, 4, 2), steps=1)
    low, high = sorted(f"{value:.2f}" for value in history.vaa_star[0])
    assert low != high
    assert f"VAA* {low} to {high}" in capsys.readouterr().err


def test_a_watcher_is_called_as_well_and_an_interruption_ends_the_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    def interrupt(step):
        if step.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm_up(on_step=interrupt)
    assert terminal.getvalue().endswith("s\n")
    assert "step 3 of" in terminal.getvalue()
