"""What pictures are made of: the states they show, the curves, the SVG."""

import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch

import multistable as ms
from generators import generator
from multistable.experiments import figures
from multistable.experiments.settling import Settling, settling
from multistable.experiments.styles import STYLES, cell_name, style_of
from small_networks import make


@pytest.fixture(scope="module")
def sequences():
    return torch.randn(7, 10, 2, generator=generator(), dtype=torch.float64)


@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True)])
def test_states_follow_the_network_under_a_constant_input(cell, double, sequences):
    rnn = make(cell, num_layers=2, double=double)
    told = settling(rnn, sequences, stabilisation=300, generator=generator(1))
    assert told.times[0] == 0
    assert told.times[-1] == 300
    assert (told.times.diff() > 0).all()
    start = ms.reachable_states(rnn, sequences, generator=generator(1))
    torch.testing.assert_close(told.states[0], start)
    # Whatever the constant input is, told states are on one path: the same from any of them to the next.
    draws = generator(1)
    torch.rand(10, generator=draws, dtype=torch.float64)  # the time steps
    u = torch.randn(1, 2, generator=draws, dtype=torch.float64)
    state = flat_to_state(rnn, told.states[0])
    for step in range(1, 6):
        _, state = rnn(u.expand(1, 10, 2), state)
        torch.testing.assert_close(told.states[step], state_to_flat(rnn, state))


def flat_to_state(rnn, flat):
    """The inverse of a network's flat state, by trying: ``flat`` of marked states says where each number goes."""
    _, like = rnn(torch.zeros(1, len(flat), rnn.input_size, dtype=flat.dtype))
    fields = (like,) if isinstance(like, torch.Tensor) else like
    count = sum(field.shape[0] * field.shape[2] for field in fields)
    marked, offset = [], 0
    for field in fields:
        size = field.shape[0] * field.shape[2]
        numbers = torch.arange(offset, offset + size, dtype=flat.dtype)
        marked.append(numbers.reshape(field.shape[0], 1, field.shape[2]).expand_as(field).contiguous())
        offset += size
    order = state_to_flat(rnn, tuple(marked) if len(marked) > 1 else marked[0])[0].long()
    back = torch.empty(len(flat), count, dtype=flat.dtype)
    back[:, order] = flat
    parts = back.split([f.shape[0] * f.shape[2] for f in fields], dim=1)
    found = [p.unflatten(1, (f.shape[0], f.shape[2])).movedim(1, 0) for p, f in zip(parts, fields, strict=True)]
    return tuple(found) if len(found) > 1 else found[0]


def state_to_flat(rnn, state):
    from multistable.dynamics.system.whole_states import flat

    return flat(rnn.unpack_state(state))


def test_the_points_are_those_that_vaa_counts(sequences):
    rnn = make("gru")
    settled = settling(rnn, sequences, stabilisation=2000, generator=generator(1))
    assert settled.points == pytest.approx(10 * ms.vaa(settled.states[-1]).item())
    assert settling(ms.RNN("gru", 2, 8), sequences.float(), generator=generator(1)).points == 1


def test_the_nearest_state_is_the_nearest_other_one():
    """Also where it is so near that products of matrices would not tell the two apart."""
    states = torch.tensor([[0.0, 1.0, 4.0, 9.0], [100.0, 100.0 + 1e-6, 107.0, 105.0]], dtype=torch.float64)[..., None]
    nearest = Settling(torch.tensor([0, 1]), states).nearest()
    torch.testing.assert_close(nearest[0], torch.tensor([1.0, 1.0, 3.0, 5.0], dtype=torch.float64))
    torch.testing.assert_close(nearest[1, :2], torch.tensor([1e-6, 1e-6], dtype=torch.float64), rtol=1e-6, atol=0)


def test_the_plane_is_that_of_the_principal_components_of_the_settled_states():
    settled = torch.randn(40, 5, generator=generator(), dtype=torch.float64) * torch.tensor([1.0, 9.0, 2.0, 4.0, 1.0])
    states = torch.stack([settled + 3, settled])
    plane = Settling(torch.tensor([0, 1]), states).projected()[-1].numpy()
    spread = np.linalg.eigvalsh(np.cov(settled.numpy().T))
    np.testing.assert_allclose(np.cov(plane.T), np.diag(spread[[-1, -2]]), atol=1e-9)


def test_states_of_a_single_attractor_are_shown_by_where_they_begin():
    start = torch.randn(30, 4, generator=generator(), dtype=torch.float64)
    states = torch.stack([start, torch.ones_like(start)])
    plane = Settling(torch.tensor([0, 1]), states).projected()
    assert plane[0].std(0).min() > 0.5
    torch.testing.assert_close(plane[-1], plane[-1, :1].expand(30, 2))


def test_a_curve_is_the_mean_and_one_standard_deviation_to_either_side():
    _, axes = figures.figure(4, 3)
    runs = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, np.nan], [5.0, 2.0, 6.0]])
    figures.curve(axes, [0, 1, 2], runs, STYLES["warmup"])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [3.0, 2.0, 5.0])
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(1.0)  # 3 - 2
    assert band[:, 1].max() == pytest.approx(5 + np.sqrt(2))


def test_where_no_run_has_a_value_the_curve_has_a_gap():
    _, axes = figures.figure(4, 3)
    figures.curve(axes, [0, 1, 2], [[1.0, np.nan, 4.0], [3.0, np.nan, np.inf]], STYLES["warmup"])
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [2.0, np.nan, 4.0])


def test_one_run_has_no_spread():
    _, axes = figures.figure(4, 3)
    figures.curve(axes, [0, 1], [1.0, 2.0], STYLES["classic"])
    assert not axes.collections


def test_styles_are_told_apart_without_colour():
    assert len({(style.marker, style.line) for style in STYLES.values()}) == len(STYLES)


def test_a_cell_of_ones_own_has_a_name_and_a_style():
    assert style_of("mine.cells:Mine", 2).label == cell_name("mine.cells:Mine") == "Mine"
    assert style_of("gru", 2).label == cell_name("gru") == "GRU"
    assert len({(style_of(f"seed {i}", i).marker, style_of(f"seed {i}", i).line) for i in range(6)}) == 6


def drawn():
    figure, axes = figures.figure(4, 3)
    figures.curve(axes, [0, 1], [[1.0, 2.0], [2.0, 5.0]], STYLES["classic"])
    figures.rule(axes, 1.5, "a value")
    figures.name_axes(axes, "epoch", "loss", "A title & more")
    figures.legend(axes)
    dots = axes.scatter([0, 1], [1, 2], c=[0.0, 1.0], cmap=figures.MAP)
    figure.colorbar(dots)
    return figure


def test_svg_takes_its_ink_from_the_page_and_is_well_formed():
    text = figures.svg(drawn(), "one", 'what it shows, "quoted"')
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'what it shows, "quoted"'
    assert root.get("fill") == "currentColor"
    assert "stroke: currentColor" in text
    assert "#000000" not in text
    assert STYLES["classic"].colour in text
    assert "data:image/png;base64," in text  # the colour bar
    assert "A title &amp; more" in text


def test_ids_of_figures_in_one_page_do_not_meet():
    one, two = figures.svg(drawn(), "one", "first"), figures.svg(drawn(), "two", "second")
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, known in zip((one, two), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text)) == known


def test_labels_of_a_state_space_stay_inside_whatever_its_ticks():
    for low in (-3.0, -1.9, -1.1, -1.0, -0.5):
        states = torch.tensor([[[0.0, low], [1.0, 0.4], [-1.0, 0.4]]] * 2, dtype=torch.float64)
        states -= states.mean(1, keepdim=True)
        figure, axes = figures.figure(4.2, 3.9)
        dots = figures.state_space(axes, Settling(torch.tensor([0, 1]), states), [0.0, 0.5, 1.0])
        figures.name_axes(axes, "first", "second")
        figure.colorbar(dots, location="bottom", label="colour")
        place = re.search(r'<text[^>]* x="([^"]*)"[^>]*>second', figures.svg(figure, "one", "first"))
        assert float(place[1]) > 9  # the height of the letters, which stand upright to the left of it


def test_svg_is_the_same_each_time():
    assert figures.svg(drawn(), "one", "first") == figures.svg(drawn(), "one", "first")


def test_drawing_changes_no_global_setting(tmp_path):
    before = dict(matplotlib.rcParams)
    figure = drawn()
    figures.svg(figure, "one", "first")
    figures.png(figure, tmp_path / "one.png")
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
