"""Hyperparameter selection: the lowest mean selection loss wins, and the final runs follow from it."""

from dataclasses import replace

import pytest

from multistable.experiments.experiment import Experiment, Result, finished, spread
from multistable.experiments.paper import printed
from multistable.experiments.paper.hyperparameters import candidates
from multistable.experiments.reproduce import plan, reproduce
from multistable.experiments.scales import PAPER, SMOKE, Scale
from multistable.experiments.selection import Selected, best, final_runs
from multistable.tasks import Denoising
from small_runs import small

AS_IT_IS = Scale("as it is", "nothing is changed", seeds=2)


def made(losses, **settings):
    """Made-up results of a setting, one for each split."""
    config = small(selection=0.2, data_seed=0, **settings)
    return [
        Result(replace(config, seed=seed), [], {"selection_loss": loss, "test_loss": 1 - (loss or 0)}, {})
        for seed, loss in enumerate(losses)
    ]


def test_the_lowest_mean_selection_loss_wins_for_each_cell_and_version():
    results = [
        *made([0.5, 0.1], learning_rate=1e-3),
        *made([0.2, 0.2], learning_rate=1e-4),
        *made([0.1, 0.1], learning_rate=1e-4, version="warmup"),
        *made([0.0, 0.3], learning_rate=5e-4, version="warmup"),
        *made([0.9, 0.9], learning_rate=1e-3, cell="lstm"),
    ]
    chosen = {kind: config.learning_rate for kind, config in best(results).items()}
    assert chosen == {("gru", "classic"): 1e-4, ("gru", "warmup"): 1e-4, ("lstm", "classic"): 1e-3}


def test_a_setting_that_diverged_is_out():
    results = [*made([0.0, None], learning_rate=1e-1), *made([0.4, 0.4], learning_rate=1e-3)]
    assert best(results)["gru", "classic"].learning_rate == 1e-3


def test_final_runs_have_the_setting_that_won_and_keep_nothing_to_select_by():
    results = [*made([0.5, 0.5], batch_size=8), *made([0.2, 0.2], batch_size=16)]
    runs = final_runs(results, AS_IT_IS)
    assert [(run.batch_size, run.selection, run.seed, run.data_seed) for run in runs] == [(16, 0, 0, 0), (16, 0, 1, 0)]


def test_the_grid_is_the_appendixs():
    runs = candidates(Denoising(200, 100))
    assert {run.num_layers for run in runs} == {1, 2, 3}
    assert {run.hidden_size for run in runs} == {256, 512}
    assert {run.learning_rate for run in runs} == {1e-3, 5e-4, 1e-4}
    assert {run.batch_size for run in runs} == {32, 64}
    assert {(run.cell, run.version) for run in runs} == set(printed.DENOISING)
    assert len(runs) == 36 * 14
    splits = {(run.seed, run.data_seed) for run in PAPER.of(runs)}
    assert splits == {(seed, 0) for seed in range(5)}


def test_rates_and_splits_go_together(tmp_path):
    experiment = Experiment("one", 1, (), "", candidates(Denoising(200, 100)), (), ())
    groups = plan([experiment], SMOKE, tmp_path).groups
    assert all(len({(c.seed, c.learning_rate) for c in group}) > 1 for group in groups)


@pytest.fixture
def experiment():
    runs = tuple(small(selection=0.2, data_seed=0, vaa_every=0, learning_rate=rate) for rate in (1e-3, 1e-2))
    picture = Selected("chosen", "What won.", "test_loss", {("gru", "classic"): ((1, 512, 1e-3, 32), 0.2656, 0.4593)})
    return Experiment("choice", 1, (), "A choice", runs, (picture,), (), then=final_runs)


def test_the_final_runs_are_planned_once_the_others_are_there(experiment, tmp_path):
    first = plan([experiment], AS_IT_IS, tmp_path)
    assert (first.runs, first.left) == (4, 4)
    reproduce(first, tmp_path)
    second = plan([experiment], AS_IT_IS, tmp_path)
    assert (second.runs, second.left) == (6, 2)
    reproduce(second, tmp_path)
    assert plan([experiment], AS_IT_IS, tmp_path).left == 0
    results = finished(experiment.at(AS_IT_IS, tmp_path), tmp_path)
    header, rows = experiment.pictures[0].table(results)
    ours = f"{spread(results[-2:], 'test_loss')}"
    assert header == ["cell", "version", "test loss", "in the paper", "L, H, rate, B", "in the paper"]
    (row,) = rows
    assert row[:4] == ["GRU", "classic", ours, "0.2656 ± 0.4593"]
    assert row[4] in ("1, 8, 0.001, 16", "1, 8, 0.01, 16")
    assert row[5] == "1, 512, 0.001, 32"
    assert experiment.pictures[0].draw(results).axes
