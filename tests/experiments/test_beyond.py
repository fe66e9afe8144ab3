"""What the experiments beyond the paper say of results that are made up."""

from dataclasses import replace

import pytest

from multistable.experiments.archive import read_results, write_results
from multistable.experiments.beyond import experiments
from multistable.experiments.beyond.preparations import GATED
from multistable.experiments.experiment import Result
from multistable.experiments.scales import SCALES, SMALL
from small_runs import RECORD, small


def result(seed, losses, method=None, **before):
    """A run with these validation losses, epoch by epoch."""
    version = {"version": "classic"} if method is None else {"version": "warmup", "warmup_algorithm": method}
    rows = [{"epoch": epoch, "validation_loss": loss} for epoch, loss in enumerate(losses)]
    course = None if method is None else {"outcome": "prepared", "reason": "", "seconds": 6.0, "together": 3}
    return Result(small(seed=seed, **version), [rows[0] | before, *rows[1:]], {"test_loss": losses[-1]}, RECORD, course)


@pytest.fixture
def results():
    return [
        result(0, [1, 1, 1], vaa=0.25, lifetime=2.0, recalled=0.25),
        result(0, [1, 0.09, 0.01], "chrono", vaa=0.25, lifetime=50.0, recalled=0.25),
        result(1, [1, 0.3, 0.02], "chrono", vaa=0.75, lifetime=1e7, recalled=0.75),
        result(2, [1, 0.3, 0.2], "chrono", vaa=0.5, lifetime=60.0, recalled=0.5),
    ]


def test_the_table_of_preparations_has_what_was_measured(results):
    (picture,) = experiments()["prepare-copy"].pictures
    header, rows = picture.table(results)
    assert len(header) == len(rows[0])
    none, chrono = (dict(zip(header, row, strict=True)) for row in rows)
    assert (none["method"], none["learned"], none["epochs to learn"], none["seconds"]) == ("none", "0 of 1", "", "")
    assert chrono == {
        "task": "T = 6",
        "cell": "GRU",
        "method": "chrono",
        "VAA before": "0.5 ± 0.25",
        "lifetime, steps": "50 to 10,000,000",
        "told after noise": "0.5 ± 0.25",
        "learned": "2 of 3",
        "epochs to learn": "1.5 ± 0.71",
        "test loss": "0.0767 ± 0.11",
        "seconds": "2",
    }


def test_each_run_is_a_dot_in_the_line_of_its_method(results):
    (picture,) = experiments()["prepare-copy"].pictures
    (axes,) = picture.draw(results).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "chrono"]
    dots = [dot for line in axes.lines if line.get_marker() != "None" for dot in line.get_xydata().tolist()]
    assert dots == [[1, 0], [0.01, 1], [0.02, 1], [0.2, 1]]


def test_runs_without_results_are_left_out_of_the_picture(results):
    diverged = [replace(results[1], results={"test_loss": None}), *results[2:]]
    (axes,) = experiments()["prepare-copy"].pictures[0].draw(diverged).axes
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() != "None") == 2


@pytest.mark.parametrize("name", ["prepare-copy", "prepare-denoising", "prepare-relu", "mixed-copy", "mixed-denoising"])
def test_experiments_can_be_planned_at_every_scale(name):
    for scale in SCALES.values():
        assert experiments()[name].at(scale)


def test_a_run_of_two_cells_is_stored_and_read(tmp_path):
    run = result(0, [1, 0.5])
    run = replace(run, config=small(cell="gru+lstm", version="double"), results={"test_loss": 0.5, "warmup": None})
    write_results([run], tmp_path / "stored.json")
    assert [found.config for found in read_results(tmp_path / "stored.json")] == [run.config]


def test_every_method_has_runs_of_every_task_and_cell():
    runs = experiments()["prepare-copy"].at(SMALL)
    kinds = {(run.task.T, run.cell, run.warmup_algorithm if run.kind.warmed else None, run.seed) for run in runs}
    assert len(kinds) == len(runs) == 3 * 2 * (1 + len(GATED)) * SMALL.seeds
    assert all(run.memory_before for run in runs)
    assert all(run.cell in ("gru", "lstm", "nbrc") or "+" in run.cell for run in experiments()["mixed-copy"].at(SMALL))
