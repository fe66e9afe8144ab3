"""Pictures have a mark for each thing that they show, where it is."""

import pytest
import torch

import multistable as ms
from bistable_units import units
from multistable.experiments.figures import svg


def states(n, m):
    return 2 * torch.rand(n, m, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1


def marks(axes):
    return [len(drawn.get_offsets()) for drawn in axes.collections]


def test_attractors_are_drawn_with_paths_shares_eigenvalues_and_lifetimes():
    found = ms.attractors(units(0.0, 0.0), states=states(50, 2), inputs="zero")
    space, shares, circle, lifetimes = found.plot().axes
    assert marks(space) == [1] * 4
    assert len(space.lines) == 50
    assert space.get_title() == "4 attractors"
    # Paths end where their attractors are drawn.
    drawn = torch.tensor([list(mark.get_offsets()[0]) for mark in space.collections])
    for line, label in zip(space.lines, found.labels.tolist(), strict=True):
        assert list(line.get_xydata()[-1]) == pytest.approx(drawn[label].tolist(), abs=1e-6)
    assert [bar.get_height() for bar in shares.patches] == pytest.approx(found.fractions.tolist())
    assert marks(circle) == [2] * 4
    heights = [mark.get_offsets()[0][1] for mark in lifetimes.collections]
    assert heights == pytest.approx(found.time_constants.tolist())


def test_under_several_inputs_the_shares_are_drawn_along_them():
    u = torch.tensor([0.3, -0.3, 0.0], dtype=torch.float64)
    found = ms.attractors(units(0.0), states=states(30, 1), inputs=u)
    shares = found.plot().axes[1]
    for i, line in enumerate(shares.lines):
        assert line.get_xdata() == pytest.approx([-0.3, 0.0, 0.3])
        assert line.get_ydata() == pytest.approx(found.fractions_under()[[1, 2, 0], i].tolist())


def test_saddles_are_drawn_with_their_unstable_directions():
    found = ms.fixed_points(units(0.0, 0.0), "zero", states(100, 2))
    space, circle, constants = found.plot(states(100, 2)).axes
    assert marks(space) == [100, 4, 5]
    # Four saddles of one direction each, and a repellor of two.
    assert len(space.lines) == 6
    assert space.get_title() == "4 stable, 4 saddles, 1 repellor"
    assert marks(circle) == [8, 8, 2]
    assert sum(marks(constants)) == 9


def test_very_many_dots_are_a_bitmap_in_a_picture_of_lines(monkeypatch):
    found = ms.fixed_points(units(0.0, 0.0), "zero", states(100, 2))
    assert "<image" not in svg(found.plot(), "few", "points")
    monkeypatch.setattr("multistable.dynamics.measure.plots.DOTS", 7)
    assert svg(found.plot(), "many", "points").count("<image") == 1  # for the eight eigenvalues that two kinds have


def test_what_has_nothing_to_show_is_drawn_too():
    class Turn(torch.nn.Module):
        def forward(self, x, state=None):
            h = x[0] if state is None else state
            for _ in x:
                h = torch.stack([0.6 * h[:, 0] - 0.8 * h[:, 1], 0.8 * h[:, 0] + 0.6 * h[:, 1]], dim=-1)
            return h, h + 1e-3

    found = ms.attractors(Turn(), states=states(5, 2), inputs=torch.zeros(1, 2), stabilisation=50, longest=20)
    assert found.plot().axes[0].get_title() == "0 attractors, 100% still moving"

    class Slide(torch.nn.Module):
        def forward(self, x, state=None):
            h = torch.zeros_like(x[0]) if state is None else state
            return h + len(x), h + len(x)

    none = ms.fixed_points(Slide(), torch.zeros(2), states(5, 2))
    assert none.plot().axes[0].get_title() == "no fixed points"


def test_a_continuation_is_drawn_along_its_path():
    found = ms.continuation(units(0.0), states=states(40, 1), inputs=torch.linspace(-0.8, 0.8, 9))
    places, shares = found.plot().axes
    assert sum(marks(places)) == sum(found.counts)
    assert len(shares.lines) == found.fractions.shape[-1]


def test_members_are_drawn_one_by_one():
    found = ms.attractors(ms.Ensemble([units(0.0), units(0.0)]), states=states(5, 1), inputs="zero")
    with pytest.raises(ValueError, match=r"take one of its members"):
        found.plot()
    assert len(found.members[0].plot().axes) == 4
