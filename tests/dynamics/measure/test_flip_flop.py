"""Networks that learn to hold three bits have eight attractors while nothing comes."""

import runpy

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.tasks import FlipFlop
from paths import ROOT

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "flip_flop.py"))


@pytest.mark.parametrize("cell", [nn.GRU, nn.LSTM])
def test_a_trained_flip_flop_has_an_attractor_for_each_combination_of_bits(cell):
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rnn = cell(3, 24)
    inputs, targets = FlipFlop(60).draw(400, generator)
    EXAMPLE["train"](rnn, 200, generator, batch=64)
    found = ms.attractors(rnn, inputs, inputs="zero", generator=generator)
    assert (len(found), found.fixed_points, found.stable.all()) == (8, 1.0, True)
    assert EXAMPLE["agreement"](found, targets) >= 0.99
    assert found.bits(EXAMPLE["held_bits"](found, targets)) == pytest.approx(3, abs=0.1)
    points = ms.fixed_points(rnn, "zero", found.starts)
    assert points.stable.sum() == 8
    apart = torch.cdist(points.points[points.stable], found.points.double())
    assert apart.min(dim=0).values.max() < 1e-3
    # Between two neighbours there is a saddle with one direction that leads to either.
    assert (points.unstable == 1).sum() >= 12
    # A pulse that does not end leaves fewer: its own bit can only be the pulse's.
    pulse = ms.attractors(rnn, inputs, inputs=torch.tensor([1.0, 0.0, 0.0]), generator=generator)
    assert 1 <= len(pulse) <= 4
