"""The command line while it trains: progress, interruption, and what is written for TensorBoard."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys

import pytest
import torch
import typer
from rich.console import Console

from commands import SMALL, call
from interruption import interrupted
from multistable.cli.errors import reporting
from multistable.cli.progress import Bars, Pace, duration
from multistable.dynamics.warmup import WarmupStep
from multistable.extras import how_to_install
from multistable.tasks import CopyFirstInput
from multistable.training import RunConfig, RunFolder

COMMAND = [sys.executable, "-c", "from multistable.cli import main; main()", *SMALL.split()]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def config(seed=0, epochs=4, version="classic"):
    return RunConfig(CopyFirstInput(5), "gru", version, seed=seed, epochs=epochs, warmup_steps=10)


def results(out):
    return {path.name: RunFolder(path).summary()["results"] for path in out.iterdir()}


# Time left


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_time_left_is_that_of_the_rest_at_the_pace_so_far():
    first, second = [config(0), config(1)], [config(2)]
    clock = Clock()
    pace = Pace([*first, *second], clock)
    pace.on_start(first, 0, steps=10)
    clock.now += 30.0
    assert pace.left is None
    pace.on_epoch(first, [{"epoch": 0}] * 2)
    assert pace.left is None  # how long the beginning took tells nothing of an epoch
    for epoch in (1, 2):
        clock.now += 6.0
        pace.on_epoch(first, [{"epoch": epoch}] * 2)
    # 4 of 12 epochs of a run took 12 s, and 2 of 3 beginnings took 30 s.
    assert pace.left == pytest.approx(8 * 3.0 + 15.0)
    clock.now += 2.0
    pace.on_step(first, 3, 5)  # half of the next epoch of two runs
    assert pace.left == pytest.approx(7 * 14.0 / 5 + 15.0)
    assert pace.done == pytest.approx(5 / 12)
    assert pace.elapsed == 44.0


def test_an_ended_group_tells_the_pace_of_the_next():
    first, second = [config(0), config(1)], [config(2)]
    clock = Clock()
    pace = Pace([*first, *second], clock)
    pace.on_start(first, 0, steps=10)
    for epoch in range(5):
        clock.now += 4.0
        pace.on_epoch(first, [{"epoch": epoch}] * 2)
    pace.on_end(first, [])
    pace.on_start(second, 0, steps=10)
    assert pace.left == pytest.approx(4 * 2.0 + 2.0)


def test_epochs_of_an_earlier_process_say_nothing_of_the_pace():
    runs = [config(0, epochs=9)]
    clock = Clock()
    pace = Pace(runs, clock)
    pace.on_start(runs, 5, steps=10)
    assert pace.left is None
    assert pace.done == pytest.approx(5 / 9)
    clock.now += 7.0
    pace.on_epoch(runs, [{"epoch": 6}])
    assert pace.left == pytest.approx(21.0)


def test_durations():
    assert [duration(seconds) for seconds in (0.4, 61, 3600 * 25)] == ["0:00:00", "0:01:01", "1 day, 1:00:00"]


# On a terminal


def shown(bars):
    """What a terminal would show now."""
    where = Console(file=io.StringIO(), width=120)
    where.print(bars.render())
    return where.file.getvalue()


def test_bars_show_what_the_training_told_last():
    runs = [config(0), config(0, version="warmup")]
    bars = Bars(Pace(runs, Clock()), Console(file=io.StringIO()))
    assert "preparing the data" in shown(bars)
    bars.on_start(runs, 0, steps=20)
    values = torch.tensor([[0.25]])
    bars.on_warmup_step(runs[1:], WarmupStep(3, values, values[0], torch.tensor([2])))
    assert "warmup step 3/10, VAA* 0.250" in shown(bars)
    bars.on_epoch(runs, [{"epoch": 0, "validation_loss": 1.5, "vaa": 0.5}, {"epoch": 0, "validation_loss": 2.5}])
    assert re.search(r"classic +- +1\.5 +0\.5", shown(bars))
    assert re.search(r"warmup +- +2\.5 +-", shown(bars))
    bars.on_step(runs, 1, 7)
    assert re.search(r"epoch 1/4 .*step 7/20", shown(bars))
    bars.on_step(runs, 1, 20)
    assert "validation and VAA" in shown(bars)


def test_a_gradient_step_does_not_draw():
    terminal = Console(file=io.StringIO(), force_terminal=True)
    runs = [config()]
    bars = Bars(Pace(runs), terminal)  # not entered: nothing draws by itself
    bars.on_start(runs, 0, steps=100)
    for step in range(1, 101):
        bars.on_step(runs, 1, step)
    assert terminal.file.getvalue() == ""


def test_groups_at_the_same_time_are_not_mixed_up():
    bars = Bars(Pace([]), Console(file=io.StringIO(), force_terminal=True))
    one, two = [config()], [config(seed=1), config(seed=1, version="double")]
    row = {"epoch": 1, "training_loss": 1.0, "validation_loss": 1.0}
    bars.on_start(one, 0, steps=10)
    bars.on_start(two, 0, steps=10)
    for configs in (one, two):
        bars.on_epoch(configs, [row] * len(configs))
        assert f"({len(configs)} run" in shown(bars)
    bars.on_step(one, 2, 3)
    assert "(1 run)" in shown(bars)


def test_what_a_lost_worker_had_done_is_not_counted_twice():
    pace = Pace([config(epochs=4)])
    pace.on_start([config(epochs=4)], 0, steps=1)
    for epoch in range(4):
        pace.on_epoch([config(epochs=4)], [{"epoch": epoch}])
    assert pace.done == 0.75
    pace.on_start([config(epochs=4)], 2, steps=1)
    assert pace.done == 0.5
    for epoch in (3, 4):
        pace.on_epoch([config(epochs=4)], [{"epoch": epoch}])
    assert pace.done == 1.0


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_real_terminal_gets_bars_and_then_the_table(tmp_path):
    ours, theirs = os.openpty()
    environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "150"}
    process = subprocess.Popen(
        [*COMMAND, "--epochs", "2", "--out", tmp_path], stdout=theirs, stderr=subprocess.PIPE, env=environment
    )
    os.close(theirs)
    written = _read_to_the_end(ours)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "\x1b[?25l" in written  # the cursor is hidden while bars are drawn,
    assert written.rindex("\x1b[?25h") < written.index("best epoch")  # and back before the table
    assert "all runs" in written
    assert "epoch 1/2:" not in written
    (classic,) = tmp_path.glob("copy-gru-classic-*")
    assert f"{RunFolder(classic).summary()['results']['test_loss']:.4f}" in written


def _read_to_the_end(descriptor):
    pieces = []
    while True:
        try:
            piece = os.read(descriptor, 4096)
        except OSError:  # how a terminal says that nobody writes to it any more
            piece = b""
        if not piece:
            os.close(descriptor)
            return b"".join(pieces).decode()
        pieces.append(piece)


# Interruption


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_an_interrupted_training_goes_on_with_the_same_command(tmp_path):
    """By SIGTERM; agents are interrupted by Ctrl-C."""
    arguments = "--epochs 60 --vaa-every 20"
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    code, errors = interrupted(
        *SMALL.split(), *arguments.split(), "--out", disturbed, at="epoch 2/60", number=signal.SIGTERM
    )
    assert code == 130
    assert errors == f"Interrupted. What is done is kept in {disturbed}: the same command goes on from there.\n"
    assert not any(RunFolder(path).finished for path in disturbed.iterdir())

    again = call(f"{SMALL} {arguments}", "--out", disturbed)
    assert again.exit_code == 0, again.output
    first = int(re.search(r"epoch (\d+)/60", again.stdout)[1])
    assert first >= 3
    assert call(f"{SMALL} {arguments}", "--out", undisturbed).exit_code == 0
    assert results(disturbed) == results(undisturbed)


def test_what_fails_after_an_interruption_does_not_hide_it(capsys):
    def an_import_cut_off():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("half of a module")

    with pytest.raises(typer.Exit) as ended, reporting(if_interrupted="Stopped."):
        an_import_cut_off()
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "Stopped.\n"


# TensorBoard


def test_tensorboard_has_what_the_metrics_have(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = call(f"{SMALL} --epochs 2 --tensorboard --out", tmp_path)
    assert result.exit_code == 0, result.output
    for path in tmp_path.iterdir():
        folder = RunFolder(path)
        events = reader.EventAccumulator(str(path)).Reload()
        tags = set(events.Tags()["scalars"])
        read = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}
        for name in ("training_loss", "validation_loss", "vaa"):
            expected = [(row["epoch"], row[name]) for row in folder.metrics() if name in row]
            assert read[name] == [(epoch, pytest.approx(value, rel=1e-6)) for epoch, value in expected]
        found, course = folder.summary()["results"], folder.warmup()
        assert read["test_loss"] == [(found["best_epoch"], pytest.approx(found["test_loss"], rel=1e-6))]
        assert ("warmup/loss" in tags) == (course is not None)
        if course is not None:
            values = [value for (value,) in course["vaa_star"]]
            assert read["warmup/vaa_star_1"] == [(i, pytest.approx(v, rel=1e-6)) for i, v in enumerate(values, start=1)]


def test_tensorboard_that_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = call(f"{SMALL} --tensorboard --out", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert f"TensorBoard output needs the package tensorboard: {how_to_install('tensorboard')}" in result.stderr
    assert not list(tmp_path.iterdir())
