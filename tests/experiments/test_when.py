"""The experiment on when to warm up: its runs, and the scores in which tasks are compared."""

from dataclasses import replace

import pytest

from multistable.experiments.beyond.when import NEEDS, TASKS, sized
from multistable.experiments.catalogue import experiments
from multistable.experiments.experiment import Result, finished
from multistable.experiments.reproduce import plan, reproduce
from multistable.experiments.scales import PAPER, SCALES, SMALL, SMOKE
from multistable.experiments.score_pictures import Scores, score, task_name
from multistable.tasks import Adding, FirstWord, WordCounts
from small_runs import RECORD, small

WHEN = experiments()["when"]
SCORES, CONTRAST = WHEN.pictures


def test_every_task_can_be_compared_and_is_told_of():
    assert all(task.guessing > 0 for task in TASKS)
    assert {type(task) for task in TASKS} == set(NEEDS)
    assert len({task_name(task) for task in TASKS}) == len(TASKS)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_each_task_is_run_with_both_cells_in_three_versions_as_often(scale):
    configs = WHEN.at(scale)
    tasks = {config.task for config in configs}
    seeds = {"smoke": 2}.get(scale.name, 5)
    assert len(configs) == len(tasks) * 2 * 3 * seeds
    assert len({(c.task, c.cell, c.version, c.seed) for c in configs}) == len(configs)
    assert len(tasks) == {"paper": 21, "small": 19, "smoke": 16}[scale.name]


def test_sizes_at_the_scales():
    """Tasks are as long on a CPU as on a GPU, but for those that are not run there; a precision stays."""
    small, paper, smoke = ({config.task for config in WHEN.at(scale)} for scale in (SMALL, PAPER, SMOKE))
    assert small == paper - {Adding(400), Adding(1000)}
    assert {(c.hidden_size, c.epochs, c.warmup_algorithm) for c in WHEN.at(SMALL)} == {(32, 10, "fast")}
    assert {(c.hidden_size, c.epochs, c.warmup_algorithm) for c in WHEN.at(PAPER)} == {(128, 50, "fast")}
    assert max(task.length for task in smoke) == 16
    assert sized(SMALL.computed_in("tf32")).changes["precision"] == "tf32"
    assert sized(replace(SMALL, name="mine")).changes == SMALL.changes


def test_other_experiments_have_the_sizes_of_the_scale():
    assert experiments()["copy"].sized(SMALL) is SMALL


def test_a_task_is_named_by_the_settings_it_was_given():
    assert task_name(Adding(100)) == "adding, T = 100"
    assert task_name(FirstWord(50)) == task_name(FirstWord(50, topics=4)) == "first-word, T = 50"
    assert task_name(FirstWord(50, topics=3)) == "first-word, T = 50, topics = 3"


def made(task, version, seed, loss, curve, warmup=0.0):
    """A run in which an epoch took ten seconds, trained with four others, and a warmup before."""
    config = small(task=task, version=version, seed=seed, epochs=len(curve) - 1)
    metrics = [{"epoch": epoch, "validation_loss": value} for epoch, value in enumerate(curve)]
    results = {"test_loss": loss, "validation_loss": min(curve)}
    record = RECORD | {"seconds": 10.0 * config.epochs + 6.0}
    return Result(config, metrics, results, record, {"seconds": warmup, "outcome": "multistable"} if warmup else None)


RESULTS = [
    made(Adding(100), "classic", 0, 1 / 60, [1.0, 0.5, 0.2]),
    made(Adding(100), "classic", 1, 2 / 60, [1.0, 0.5, 0.4]),
    made(Adding(100), "warmup", 0, 1 / 6, [1.0, 0.29, 0.2], 6.0),
    made(Adding(100), "warmup", 1, 1 / 6, [1.0, 0.31, 0.31], 6.0),
    made(Adding(100), "double", 0, None, [1.0, 0.9, 0.9], 6.0),
]


def test_a_score_is_the_loss_as_a_share_of_that_of_guessing():
    assert [score(result) for result in RESULTS] == pytest.approx([0.1, 0.2, 1, 1, None])


def test_the_table_of_scores():
    """The classic ones come to 0.3 in the mean: one warmed-up run gets there after one epoch, ten seconds."""
    header, (row,) = SCORES.table(RESULTS)
    told = dict(zip(header, row, strict=True))
    assert told["task"] == "adding, T = 100"
    assert told["cell"] == "GRU"
    assert told["classic"] == "0.15 ± 0.071"
    assert told["warmed up"] == "1 ± 0"
    assert told["double layer"] == "not run"
    assert told["seeds"] == "2, 1"
    assert told["warmup, s"] == "6 / 6"
    assert told["classic: s to the classic's best"] == "20 (1 of 2)"
    assert told["warmed up: s to the classic's best"] == "16 (1 of 2)"
    assert told["double layer: s to the classic's best"] == "never (0 of 1)"


def test_the_picture_of_scores_has_a_row_for_each_task():
    runs = [*RESULTS, *(replace(run, config=replace(run.config, task=WordCounts(50))) for run in RESULTS[:4])]
    drawn = SCORES.draw(runs)
    (axes,) = drawn.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["adding, T = 100", "word-counts, T = 50"]
    means = [bars.lines[0].get_xdata()[0] for bars in axes.containers]
    assert means[0] == pytest.approx(0.15)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["classic", "warmed up"]
    assert Scores("none", "", {}).draw([]).axes


def test_a_run_through_everything(tmp_path):
    scale = SMOKE.only({"task": {"word-counts"}, "cell": {"gru"}})
    assert reproduce(plan([WHEN], scale, tmp_path), tmp_path) == []
    results = finished(WHEN.at(scale), tmp_path)
    assert len(results) == 6
    assert all(0 < score(result) < 10 for result in results)
    _, rows = SCORES.table(results)
    assert [row[:3] for row in rows] == [["word-counts, T = 16", "all inputs, in any order", "GRU"]]
    assert [axes.get_title() for axes in CONTRAST.draw(results).axes] == ["word-counts, T = 16"] * 2
