"""The line that says where a warmup is."""

import io
import sys

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.system import progress
from multistable.dynamics.warmup import default
from multistable.dynamics.warmup.progress import INTERRUPTED, Line

pytestmark = [
    pytest.mark.filterwarnings("ignore::multistable.WarmupWarning"),
    pytest.mark.usefixtures("short_final_measure"),
]


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
    _, *steps, _, measuring, last = written.split("\r")
    assert [line.split(", ")[0] for line in steps] == [f"warmup: step {i} of at most 5" for i in range(1, 6)]
    assert all(" left" in line for line in steps)
    assert measuring.startswith("warmup: step 5 of at most 5, measuring VAA of 100 states, step 60 of 100, ")
    assert last.startswith(f"warmup: {history!r}")


def test_nothing_is_left_of_a_longer_line_that_is_written_over():
    terminal = Terminal()
    line = Line("warmup", terminal)
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
    assert last.startswith(f"warmup: {history!r}")


def test_elsewhere_there_is_a_line_now_and_then(monkeypatch, capsys):
    for pause, steps in ((1e9, [1]), (0.0, [1, 2, 3, 4, 5])):
        monkeypatch.setattr(progress, "PAUSE", pause)
        history = warm_up()
        written = capsys.readouterr().err
        assert "\r" not in written
        lines = written.splitlines()
        told = [line.split(", ")[0] for line in lines if "VAA* " in line]
        assert told == [f"warmup: step {i} of at most 5" for i in steps]
        assert lines[-1].startswith(f"warmup: {history!r}")


def test_a_call_that_takes_a_while_is_shown_on_a_terminal_without_being_asked(monkeypatch):
    rnn, x = nn.GRU(1, 4), torch.randn(9, 10, 1)
    calls = [lambda: warm_up(progress=None), lambda: ms.measure(rnn, x, stabilisation=100)]
    for patience, shown in ((0.0, True), (1e9, False)):
        monkeypatch.setattr(progress, "PATIENCE", patience)
        for call in calls:
            monkeypatch.setattr(sys, "stderr", terminal := Terminal())
            call()
            assert bool(terminal.getvalue()) == shown
            monkeypatch.setattr(sys, "stderr", elsewhere := io.StringIO())
            call()
            assert elsewhere.getvalue() == ""


def test_a_measure_tells_how_far_it_is_and_how_long_it_may_take(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    ms.measure(nn.GRU(1, 4), torch.randn(9, 10, 1), stabilisation=100, progress=True)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("measure: 100 states, step 0 of 100, ")
    assert second.startswith("measure: 100 states, step 60 of 100, ")
    assert second.endswith(" left")


def test_a_look_of_the_default_warmup_tells_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(default, "CHECK_WANTED", 10)
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    history = warm_up(algorithm="reliable", target=0.5, steps=20)
    lines = capsys.readouterr().err.splitlines()
    assert [check.step for check in history.checks if check.asked] == [10, 20]
    measured = [line for line in lines if "measuring" in line]
    told = "warmup: step {} of at most 20, measuring VAA of 100 states, step 0 of 100, "
    for step in (10, 20):
        assert any(line.startswith(told.format(step)) for line in measured)


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

    with pytest.raises(KeyboardInterrupt) as interrupt_seen:
        warm_up(on_step=interrupt)
    assert "step 3 of" in terminal.getvalue()
    *_, last = terminal.getvalue().split("\r")
    assert last.startswith(f"warmup: {INTERRUPTED}, ")
    assert last.endswith("\n")
    assert interrupt_seen.value.__notes__ == [INTERRUPTED]
