"""Experiments as data: what is planned, run, stopped and drawn."""

from dataclasses import replace

import numpy as np
import pytest

from multistable.experiments.agent_pictures import running_mean
from multistable.experiments.archive import CURVE_DIGITS, DIGITS, VAA_STAR_DIGITS, read_results, write_results
from multistable.experiments.catalogue import experiments
from multistable.experiments.claims import CLAIMS
from multistable.experiments.estimate import seconds
from multistable.experiments.experiment import Result, finished
from multistable.experiments.pictures import Bars
from multistable.experiments.report import wall_time
from multistable.experiments.reproduce import Deadline, OutOfTimeError, plan, reproduce
from multistable.experiments.scales import PAPER, SCALES, SMOKE
from multistable.experiments.selection import Selected
from multistable.rl import Maze, Settings
from multistable.tasks import CopyFirstInput, PermutedSequentialMNIST
from multistable.training import RunFolder
from small_agents import small_agent
from small_runs import small

ALL = experiments()
MAZES = (20, 100, 200)


# Declarations


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_every_experiment_has_runs_at_every_scale(scale):
    """Runs that experiments share record the same, whichever has them run: the name does not tell what is recorded."""
    shared = {}
    for experiment in ALL.values():
        configs = experiment.at(scale)
        assert len({config.name for config in configs}) == len(configs)
        assert {config.seed for config in configs} == set(range(experiment.sized(scale).seeds_of(configs[0])))
        assert all(shared.setdefault(config.name, config) == config for config in configs)
        assert all(seconds([config], "cpu") > seconds([config], "cuda") > 0 for config in configs if config.seed == 0)


def test_every_claim_is_borne_on_by_an_experiment():
    assert {claim for experiment in ALL.values() for claim in experiment.claims} == set(CLAIMS)


def test_the_paper_scale_is_the_papers():
    copy, denoising = ALL["copy"].at(PAPER), ALL["denoising"].at(PAPER)
    assert {(c.hidden_size, c.num_layers, c.epochs, c.batch_size, c.learning_rate) for c in copy} == {
        (128, 1, 50, 32, 1e-3)
    }
    assert {(c.hidden_size, c.num_layers) for c in denoising} == {(256, 2)}
    assert {c.task for c in copy} == {CopyFirstInput(T) for T in (50, 300, 600)}
    assert len(copy) == 6 * 3 * 5


def test_the_paper_scale_of_agents_is_the_papers():
    agents = ALL["tmaze-warmup"].at(PAPER)
    assert len(agents) == 10 * 3 * 3
    assert {(c.hidden_size, c.num_layers, c.settings) for c in agents} == {(256, 2, Settings())}
    assert {c.task for c in agents} == {Maze(L) for L in MAZES}
    assert {c.name for c in ALL["tmaze-gru"].at(PAPER)} <= {c.name for c in agents}


def test_agents_as_the_command_line_of_the_authors_has_them():
    agents, papers = ALL["tmaze-32"].at(PAPER), ALL["tmaze-warmup"].at(PAPER)
    told = {(c.hidden_size, c.num_layers, c.reward_input, c.warmup_batch_size, c.episodes) for c in agents}
    assert told == {(32, 2, True, 32, 2000)}
    assert {c.task.L: c.cell_options for c in agents if c.cell == "chrono"} == {L: {"t_max": 3 * L} for L in MAZES}
    assert all(c.cell_options == {} for c in agents if c.cell != "chrono")
    kinds = [(c.task, c.cell, c.version, c.seed) for c in agents]
    assert kinds == [(c.task, c.cell, c.version, c.seed) for c in papers]


def test_a_small_batch_of_the_warmup_stays_at_every_scale():
    """The scale small has n = 100 in place of the paper's 200."""
    told = {name: {c.warmup_batch_size for c in ALL[name].at(SCALES["small"])} for name in ("tmaze-32", "tmaze-warmup")}
    assert told == {"tmaze-32": {32}, "tmaze-warmup": {100}}


def test_runs_that_experiments_share_are_planned_once(tmp_path):
    together = plan([ALL["copy"], ALL["copy-curves"]], SMOKE, tmp_path)
    assert together.runs == len(ALL["copy"].at(SMOKE)) == together.left


def test_the_course_of_a_warmup_is_recorded_for_its_figure():
    assert {config.warmup_vaa_every for config in ALL["warmup-course"].at(PAPER)} == {10}


def test_a_precision_makes_other_runs_of_the_same_settings():
    exact, fast = (ALL["copy"].at(scale) for scale in (PAPER, PAPER.computed_in("tf32")))
    assert [replace(config, precision="ieee") for config in fast] == exact
    assert not {config.name for config in fast} & {config.name for config in exact}
    assert {config.precision for config in ALL["tmaze-gru"].at(PAPER.computed_in("tf32"))} == {"tf32"}
    assert PAPER.computed_in("ieee") == PAPER


# Running


def test_an_experiment_is_run_and_never_repeated(tiny, tmp_path):
    scale = SCALES["smoke"]
    assert reproduce(plan([tiny], scale, tmp_path), tmp_path) == []
    again = plan([tiny], scale, tmp_path)
    assert (again.runs, again.left) == (2, 0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    reproduce(again, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_minutes_given_end_at_the_end_of_an_epoch(tiny, tmp_path):
    clock = iter([0.0, 30.0, 61.0, 90.0]).__next__
    with pytest.raises(OutOfTimeError):
        reproduce(plan([tiny], SCALES["smoke"], tmp_path), tmp_path, callbacks=[Deadline(1, clock)])
    assert [RunFolder.of(config, tmp_path).checkpoints()[-1] for config in tiny.at(SCALES["smoke"])] == [1, 1]


def test_missing_data_does_not_stop_the_others(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("MULTISTABLE_DATA", str(tmp_path / "nowhere"))
    images = replace(tiny, name="images", order=0, runs=(small(task=PermutedSequentialMNIST()),))
    problems = reproduce(plan([images, tiny], SCALES["smoke"], tmp_path), tmp_path)
    assert len(problems) == 1
    assert "nowhere" in problems[0]
    assert len(finished(tiny.at(SCALES["smoke"]), tmp_path)) == 2


def test_agents_are_run_drawn_and_judged_as_other_runs_are(command, tmp_path, monkeypatch):
    kinds = [("gru", "classic"), ("gru", "warmup"), ("brc", "classic")]
    runs = tuple(small_agent(cell=cell, version=version) for cell, version in kinds)
    made = replace(ALL["tmaze-warmup"], runs=runs)
    scale = replace(SMOKE, agents={}, agent_seeds=2, units=lambda n: n, tasks=lambda task: task)
    monkeypatch.setattr("multistable.cli.experiments.experiments", lambda: {"tmaze-warmup": made})
    monkeypatch.setitem(SCALES, "smoke", scale)
    result = command("reproduce", "tmaze-warmup", "--scale", "smoke", "--out", tmp_path, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "6 of 6 runs to train, in 2 groups" in result.output
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 3
    assert "C12" in page
    results = finished(made.at(scale), tmp_path)
    write_results(results, tmp_path / "stored.json")
    stored = read_results(tmp_path / "stored.json")
    assert [result.config for result in stored] == [result.config for result in results]
    assert [result.curve("return")[0] for result in stored] == [[0, 2, 4, 5]] * 6
    header, rows = made.pictures[0].table(stored)
    assert header == ["agents", "L = 2"]
    assert [row[0] for row in rows] == ["GRU", "GRU, warmed up", "BRC"]


def test_agents_of_the_authors_command_line_are_run_and_drawn(command, tmp_path):
    """Chrono, whose T_max depends on the maze, in the shortest maze of the smallest scale."""
    where = ("--where", "cell=chrono", "--where", "L=1")
    result = command("reproduce", "tmaze-32", "--scale", "smoke", *where, "--out", tmp_path, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "4 of 4 runs to train" in result.output
    assert (tmp_path / "report.html").read_text().count("<svg") == 3
    pictures = {path.name for path in (tmp_path / "pictures").glob("*.png")}
    assert pictures == {f"tmaze-32-{name}.png" for name in ("return", "vaa", "first-optimal")}


def test_the_bars_of_agents_that_never_were_optimal_reach_to_their_last_episode():
    first = {0: 20, 1: None}
    results = [
        Result(small_agent(episodes=60, seed=seed), [], {"first_optimal": value}, {}) for seed, value in first.items()
    ]
    picture = ALL["tmaze-warmup"].pictures[-1]
    (axes,) = picture.draw(results).axes
    assert [patch.get_height() for patch in axes.patches] == [(20 + 60) / 2]
    assert picture.table(results)[1] == [["GRU", "20 (1 of 2)"]]


# Results in one file


def test_results_are_read_as_they_were_written(tiny, tmp_path):
    scale = SCALES["smoke"]
    reproduce(plan([tiny], scale, tmp_path), tmp_path)
    results = finished(tiny.at(scale), tmp_path)
    assert wall_time(results) == results[0].record["seconds"], "runs that were trained together count once"
    write_results(results, tmp_path / "stored.json")
    stored = read_results(tmp_path / "stored.json")
    assert [result.config for result in stored] == [result.config for result in results]
    for a, b in zip(stored, results, strict=True):
        assert [row["epoch"] for row in a.metrics] == [row["epoch"] for row in b.metrics]
        assert a.config.name == b.config.name
        for name in ("validation_loss", "vaa"):
            assert a.curve(name)[0] == b.curve(name)[0]
            np.testing.assert_allclose(a.curve(name)[1], b.curve(name)[1], rtol=0.5 * 10 ** (1 - CURVE_DIGITS))
        assert a.results["test_loss"] == pytest.approx(b.results["test_loss"], rel=0.5 * 10 ** (1 - DIGITS))
    assert stored[1].warmup["outcome"] == results[1].warmup["outcome"]
    stars, former = (np.array(one.warmup["vaa_star"]) for one in (stored[1], results[1]))
    np.testing.assert_allclose(stars, former, rtol=0.5 * 10 ** (1 - VAA_STAR_DIGITS))


# Pictures


def test_pictures_show_each_series_and_name_their_axes(tiny, tmp_path):
    reproduce(plan([tiny], SCALES["smoke"], tmp_path), tmp_path)
    results = finished(tiny.at(SCALES["smoke"]), tmp_path)
    for picture in tiny.pictures:
        drawn = picture.draw(results)
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in drawn.axes)
        assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["classic", "warmed up"]
    header, rows = tiny.pictures[0].table(results)
    assert header == ["cell", "version", "T = 6"]
    assert [row[:2] for row in rows] == [["GRU", "classic"], ["GRU", "warmup"]]


def test_a_version_that_the_first_cell_lacks_is_in_the_legend():
    kinds = [("lstm", "classic"), ("gru", "classic"), ("gru", "warmup")]
    results = [Result(small(cell=cell, version=version), [], {"test_loss": 0.5}, {}) for cell, version in kinds]
    drawn = Bars(name="test_loss", caption="The test loss.").draw(results)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["classic", "warmed up"]


def test_the_cost_of_a_run_is_its_share_and_a_missing_one_leaves_its_place():
    warmed = Result(
        small(cell="gru", version="warmup"), [], {}, {}, {"vaa_star": [[0.0]] * 100, "step_seconds": 6.0, "together": 3}
    )
    record = {"together": 2, "pretraining": {"seconds": 80.0, "steps": 20_000}}
    pretrained = [Result(small(cell=cell, version="auxiliary"), [], {}, record) for cell in ("lstm", "gru")]
    picture = ALL["auxiliary-copy-50"].pictures[-1]
    (axes,) = picture.draw([*pretrained, warmed]).axes
    assert [text.get_text() for text in axes.texts] == ["2", "40", "40"]
    assert axes.get_ylim()[0] == 0
    assert axes.get_xlim() == pytest.approx((-0.6, 1.6))


def test_bars_of_settled_states_are_divided_by_what_they_settle_on():
    shares = {"initial_fixed_points": 1.0, "initial_cycles": 0.0, "final_fixed_points": 0.5, "final_cycles": 0.125}
    results = [Result(small(cell="gru", version="warmup"), [], shares, {})]
    (picture,) = ALL["attractors-copy"].pictures
    before, after = picture.draw(results).axes
    assert [patch.get_height() for patch in before.patches] == [1.0, 0.0, 0.0]
    assert [(patch.get_y(), patch.get_height()) for patch in after.patches] == [(0, 0.5), (0.5, 0.125), (0.625, 0.375)]
    assert picture.table(results)[1] == [
        ["GRU", "warmed up", "1", "1.000 / 0.000 / 0.000", "0.500 / 0.125 / 0.375"],
    ]


def test_runs_without_a_record_of_where_states_settle_have_no_bar():
    results = [Result(small(), [], {"test_loss": 1.0}, {})]
    (picture,) = ALL["attractors-copy"].pictures
    assert not any(axes.patches for axes in picture.draw(results).axes)
    assert picture.table(results)[1] == [["GRU", "classic", "1", "", ""]]


@pytest.mark.parametrize("name", ["random-warmup-denoising", "other-settings-warmup"])
def test_a_legend_fits_into_its_picture(name):
    values = {"test_loss": 1.0, "test_accuracy": 0.5, "initial_vaa": 0.5}
    metrics = [{"epoch": 0, "validation_loss": 1.0}]
    results = [Result(config, metrics, values, {}) for config in ALL[name].at(SMOKE)]
    for picture in ALL[name].pictures:
        drawn = picture.draw(results)
        drawn.draw_without_rendering()
        (legend,) = drawn.legends
        box = legend.get_window_extent()
        assert drawn.bbox.x0 <= box.x0 < box.x1 <= drawn.bbox.x1


def test_every_picture_can_be_drawn_without_any_result():
    """The experiments of one kind share the code of their pictures."""
    pictures = {type(picture): picture for experiment in ALL.values() for picture in experiment.pictures}
    for picture in pictures.values():
        picture.draw([])
        assert len(picture.table([])[1]) == len(
            getattr(picture, "printed", ()) if isinstance(picture, Selected) else ()
        )


def test_a_running_mean_has_the_values_before_each():
    assert running_mean([1.0, 3.0, 5.0, 100.0], 2) == [1.0, 2.0, 4.0, 52.5]
    assert running_mean([1.0, 3.0], 1) == [1.0, 3.0]
