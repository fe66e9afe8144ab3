"""How sequences are sorted into cells, and which corner of the cube of states each cell has."""

import pytest
import torch

import multistable as ms
from generators import generator
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.system import studying
from multistable.dynamics.warmup.wanted_vaa import (
    ASTRAY,
    AXES,
    CORNER,
    Code,
    Corners,
    _filled,
    beginnings,
    cells_for,
    levels_for,
    places,
)


def all_cells(levels):
    return torch.cartesian_prod(*(torch.arange(int(level)) for level in levels))


@pytest.mark.parametrize("wanted", [0.1, 0.25, 0.5, 0.8])
def test_random_sequences_meet_the_wanted_share_of_cells(wanted):
    states = 32
    cells = round(float(cells_for(torch.tensor(wanted), states)))
    drawn = torch.randint(cells, (2000, states), generator=generator())
    met = torch.nn.functional.one_hot(drawn, cells).amax(dim=1).sum(dim=-1).double().mean() / states
    assert float(met) == pytest.approx(wanted, abs=0.02)


def test_a_grid_has_about_as_many_cells_as_are_needed():
    wanted = torch.tensor([0.0, 0.1, 0.25, 0.5])
    levels = levels_for(wanted, 32)
    assert levels.tolist() == [[1, 1], [2, 2], [3, 3], [5, 5]]


def test_the_more_attractors_are_wanted_the_more_cells_and_never_without_bound():
    cells = levels_for(torch.linspace(0.05, 0.949, 40), 32).prod(dim=-1)
    assert (cells.diff() >= 0).all()
    assert int(cells[-1]) < 1000


@pytest.mark.parametrize("levels", [(3, 4), (40, 40)])
def test_cells_with_a_sequence_are_counted(levels):
    levels = torch.tensor(levels)
    place = (all_cells(levels) + 0.5) / levels
    assert int(_filled(place, levels)) == len(place)
    assert int(_filled(place[:-5].repeat(2, 1), levels)) == len(place) - 5


def test_one_unit_has_a_place_on_one_axis():
    place = places(torch.tensor([[0.3], [-0.2], [0.1]]))
    assert sorted(place[:, 0].tolist()) == pytest.approx([0, 1 / 3, 2 / 3])
    assert place[2, 0] == pytest.approx(1 / 3)
    assert not place[:, 1].any()


def test_every_cell_has_a_corner_of_its_own_and_neighbours_the_nearest():
    levels, code = torch.tensor([5, 4]), Code.of(32, Draws(generator()))
    cells = all_cells(levels)
    corners = code.corner(cells, levels)
    assert corners.abs().unique().tolist() == pytest.approx([CORNER])
    assert len(corners.unique(dim=0)) == 20
    steps = torch.cdist(cells.double(), cells.double(), p=1)
    differing = (corners.unsqueeze(0) != corners.unsqueeze(1)).sum(dim=-1)
    nearest = differing[steps == 1]
    assert int(nearest.min()) >= 4  # 16 units share the 4 or 3 borders of an axis
    assert int(nearest.max()) <= 6
    assert (differing[steps > 1] > nearest.min()).all()


def test_places_are_shares_along_the_principal_directions_and_equal_for_equal_states():
    states = torch.randn(200, 5, generator=generator()) * torch.tensor([0.1, 3.0, 0.2, 1.0, 0.1])
    place = places(states)
    assert place.shape == (200, AXES)
    for axis, unit in enumerate((1, 3)):
        order = states[:, unit].argsort().argsort() / 200
        correlation = torch.corrcoef(torch.stack([order, place[:, axis]]))[0, 1]
        assert abs(float(correlation)) > 0.95
        assert place[:, axis].sort().values.tolist() == pytest.approx([i / 200 for i in range(200)])
    twins = states.double().repeat_interleave(2, dim=0)
    twins[1::2] *= 1 + 1e-12  # Equal but for rounding.
    twins = places(twins)
    assert torch.equal(twins[::2], twins[1::2])


def test_sequences_that_begin_alike_are_followed_until_they_differ():
    x = torch.randn(20, 100, 1, generator=generator())
    alike = torch.cat([torch.zeros(5, 100, 1), x])
    rnn, levels = ms.RNN("gru", 1, 8, generator=generator()), torch.tensor([3, 3])
    for sequences, steps in ((x, 2), (alike, 8)):
        with studying(rnn, sequences) as (system, data):
            known = beginnings(system, data, Draws(generator()), levels)
        assert int(known.steps) == steps
        assert known.place.shape == (100, AXES)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradient_steps_bring_states_to_their_corners(cell):
    rnn, x = ms.RNN(cell, 1, 16, generator=generator()), torch.randn(20, 200, 1, generator=generator())
    optimiser = torch.optim.Adam(rnn.parameters(), lr=1e-2)
    with studying(rnn, x) as (system, data):
        corners = Corners.of(system, data, Draws(generator()), torch.tensor([2, 2]))
        losses = []
        for _ in range(80):
            outcome = corners.step(system, 32, 200, 1e-4)
            optimiser.zero_grad()
            outcome.losses.sum().backward()
            optimiser.step()
            losses.append(outcome.losses.sum().item())
            assert 1 <= int(outcome.period) <= 3
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_some_units_are_astray_and_never_beyond_their_corner():
    corner = CORNER * torch.randn(500, 40, generator=generator()).sign()
    near = Corners(None, Draws(generator()), None, None, [])._astray(corner)
    astray = (near != corner).double().mean(dim=-1)
    assert float(astray.mean()) == pytest.approx(ASTRAY / 2, abs=0.03)
    assert (astray < 0.1).any()
    assert (astray > 0.4).any()
    assert (near.abs() <= CORNER).all()
    assert (near * corner < 0).any()
