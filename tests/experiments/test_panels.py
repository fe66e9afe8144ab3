"""Figures of many panels: which runs are in which, and that they can be compared."""

from dataclasses import replace

import numpy as np
import pytest

from multistable.experiments.experiment import Result
from multistable.experiments.panels import Panels
from multistable.experiments.paper import experiments
from multistable.experiments.pictures import by_version
from multistable.experiments.scales import PAPER
from small_runs import small

ALL = experiments()


def made(config, loss, accuracy=None):
    """A run whose validation loss falls from ``loss`` to half of it."""
    rows = [{"epoch": epoch, "validation_loss": loss * (1 - epoch / 2), "vaa": 0.5} for epoch in range(2)]
    return Result(config, rows, {"test_accuracy": accuracy}, {})


def lines(axes):
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines if not line.get_label().startswith("_")}


@pytest.mark.parametrize("name", ["selection-denoising", "selection-line-mnist"])
def test_the_curves_after_a_selection_are_those_of_the_final_runs(name):
    cells = ("lstm", "gru", "mgu", "chrono", "nbrc")
    final = [small(cell=cell, version=version, data_seed=0) for cell in cells for version in ("classic", "warmup")]
    selecting = [replace(config, selection=0.2, learning_rate=1e-2) for config in final]
    results = [made(config, 9.0) for config in selecting]
    results += [made(replace(config, seed=seed), 1.0 + seed) for config in final for seed in range(3)]
    picture = ALL[name].pictures[-1]
    drawn = picture.draw(results)
    assert [axes.get_title() for axes in drawn.axes] == ["LSTM", "GRU", "MGU"]
    for axes in drawn.axes:
        assert lines(axes) == {"classic": [2.0, 1.0], "warmed up": [2.0, 1.0]}
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "validation squared error")
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["classic", "warmed up"]
    header, rows = picture.table(results)
    assert header == ["cell", "version", "runs", "validation_loss, first to last"]
    assert rows[1] == ["LSTM", "warmed up", "3", "2.0000 to 1.0000"]


@pytest.mark.parametrize("name", ["other-settings-vaa", "other-settings-warmup"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_figure_of_appendix_e_has_two_panels_for_each_setting_in_the_papers_order(name, layers):
    results = [made(config, 1.0, 0.5) for config in ALL[name].at(PAPER)]
    drawn = ALL[name].pictures[layers - 1].draw([run for run in results if run.config.num_layers == layers])
    settings = [(H, rate, B) for H in (64, 256) for rate in ("0.001", "0.0001") for B in (32, 64)]
    titles = [f"H = {H}, α = {rate}, B = {B}" for H, rate, B in settings]
    assert [axes.get_title() for axes in drawn.axes] == [title for title in titles for _ in range(2)]
    assert drawn.axes[0].get_subplotspec().get_gridspec().get_geometry() == (4, 4)
    others = ALL[name].pictures[layers - 1].draw([run for run in results if run.config.num_layers != layers])
    assert not any(axes.lines for axes in others.axes)


def test_validation_losses_stand_beside_the_accuracies_at_the_end():
    accuracies = {"classic": (0.25, 0.75), "warmup": (0.75, 1.0)}
    results = [
        made(small(version=version, seed=seed), 1.0, accuracy)
        for version, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]
    curves, bars = ALL["other-settings-warmup"].pictures[0].draw(results).axes
    assert lines(curves) == {"classic": [1.0, 0.5], "warmed up": [1.0, 0.5]}
    assert [patch.get_height() for patch in bars.patches] == [0.5, 0.875]
    assert [label.get_text() for label in bars.get_xticklabels()] == ["classic", "warmed up"]
    assert (bars.get_xlabel(), bars.get_ylabel()) == ("version", "test accuracy")


def test_panels_of_a_quantity_have_one_scale_and_places_without_any_are_empty():
    picture = Panels("parts", "Parts.", part=lambda config: f"H = {config.hidden_size}", series=by_version)
    drawn = picture.draw([made(small(hidden_size=size), loss) for size, loss in ((4, 1.0), (8, 3.0), (16, 2.0))])
    *panels, empty = drawn.axes
    assert {axes.get_ylim() for axes in panels} == {panels[0].get_ylim()}
    assert panels[0].get_ylim()[0] == 0
    assert panels[0].get_ylim()[1] >= 3
    assert [axes.axison for axes in drawn.axes] == [True, True, True, False]
    assert not empty.get_title()


def test_a_version_without_accuracies_keeps_its_place():
    values = {"classic": None, "warmup": 0.5}
    results = [made(small(version=version), 1.0, accuracy) for version, accuracy in values.items()]
    picture = ALL["other-settings-warmup"].pictures[0]
    (bar,) = picture.draw(results).axes[1].patches
    assert bar.get_x() + bar.get_width() / 2 == pytest.approx(1)
    assert [row[-1] for row in picture.table(results)[1]] == ["", "0.5 ± 0"]


def test_settings_that_are_still_selected_among_have_no_curves():
    results = [made(small(selection=0.2, data_seed=0), 1.0)]
    picture = ALL["selection-denoising"].pictures[-1]
    (axes,) = picture.draw(results).axes
    assert [text.get_text() for text in axes.texts] == ["no finished run"]
    assert picture.table(results)[1] == []


def test_the_three_cells_of_double_layers_are_in_one_figure():
    runs = ALL["double-curves"].at(PAPER)
    drawn = ALL["double-curves"].pictures[0].draw([made(config, 1.0) for config in runs])
    assert [axes.get_title() for axes in drawn.axes] == ["LSTM", "GRU", "MGU"]
    for axes in drawn.axes:
        assert list(lines(axes)) == ["classic", "warmed up", "double layer", "double layer, no warmup"]
        np.testing.assert_array_equal(axes.lines[0].get_xdata(), [0, 1])


def test_a_warmup_has_a_panel_for_each_layer_and_one_for_the_network():
    courses = [[[0.2, 0.1], [0.4, 0.3], [0.9, 0.5]], [[0.4, 0.1], [0.6, 0.3], [0.9, 0.5]]]
    results = [
        Result(small(version="warmup", seed=seed), [], {}, {}, {"vaa_star": course, "vaa": vaa})
        for seed, (course, vaa) in enumerate(zip(courses, (0.5, 1.0), strict=True))
    ]
    first, second, network = ALL["warmup-course"].pictures[0].draw(results).axes
    np.testing.assert_allclose(lines(first)["layer 1"], [0.3, 0.5, 0.9])
    np.testing.assert_allclose(lines(second)["layer 2"], [0.1, 0.3, 0.5])
    assert [axes.get_ylabel() for axes in (first, second, network)] == ["VAA*", "VAA*", "VAA"]
    marks = [(list(line.get_xdata()), list(line.get_ydata())) for line in network.lines]
    assert ([3], [0.75]) in marks
    assert ([3, 3], [0.5, 1.0]) in marks
    assert not any(line.get_label().startswith("on the way") for line in network.lines)


def test_vaa_on_the_way_of_a_warmup_is_drawn_where_it_was_recorded():
    """Of two of three runs; at one step the second has none, since its states did not stay finite."""
    courses = [[[0, 0.1], [2, 0.5], [3, 0.9]], [[0, 0.3], [2, None], [3, 0.9]], None]
    results = [
        Result(small(version="warmup", seed=seed), [], {}, {}, {"vaa_star": [[0.5]] * 3, "vaa": 0.8} | course)
        for seed, course in enumerate({} if course is None else {"vaa_course": course} for course in courses)
    ]
    _, network = ALL["warmup-course"].pictures[0].draw(results).axes
    drawn = {line.get_label(): line for line in network.lines}["on the way, M = 50"]
    np.testing.assert_array_equal(drawn.get_xdata(), [0, 2, 3])
    np.testing.assert_allclose(drawn.get_ydata(), [0.2, 0.5, 0.9])
    lowest = min(path.vertices[:, 1].min() for path in network.collections[0].get_paths())
    assert lowest == pytest.approx(0.2 - 0.1 * 2**0.5), "one standard deviation below the mean"
    assert ([3] * 3, [0.8] * 3) in [(list(line.get_xdata()), list(line.get_ydata())) for line in network.lines]
