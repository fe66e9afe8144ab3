"""Which settled states can be told after noise, in networks of which it is known."""

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.measure.memory import shares_recalled

SIZES = {"batches": 3, "batch_size": 8, "stabilisation": 100}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def latches(units=3, seed=0):
    """Each unit keeps the sign that its first inputs gave it, under any input after them that is not much larger."""
    rnn = nn.RNN(1, units, dtype=torch.float64)
    with torch.no_grad():
        for weight in rnn.parameters():
            weight.zero_()
        rnn.weight_hh_l0.copy_(3 * torch.eye(units))
        rnn.weight_ih_l0.normal_(std=0.3, generator=generator(seed))
        rnn.bias_ih_l0.normal_(std=0.1, generator=generator(seed + 1))
    return rnn


def sequences():
    return torch.randn(20, 30, 1, generator=generator(5), dtype=torch.float64)


def test_attractors_that_attract_are_told_and_those_that_share_one_are_not():
    """With k attractors for n states, k of the n are told: those at one attractor share it."""
    share = shares_recalled(latches(), sequences(), noise=0.1, **SIZES, generator=generator())
    assert share == pytest.approx(ms.measure(latches(), sequences(), **SIZES, generator=generator()).vaa)
    assert 2 / 8 <= share < 1


def test_noise_that_is_too_large_moves_states_to_other_attractors():
    small, large = (shares_recalled(latches(6), sequences(), noise=n, **SIZES, generator=generator()) for n in (0.1, 9))
    assert large < 0.6 * small


def test_of_a_single_attractor_no_state_is_told():
    torch.manual_seed(0)
    assert shares_recalled(nn.GRU(1, 4), sequences().float(), **SIZES) == pytest.approx(1 / 8)


def test_members_of_an_ensemble_are_as_if_alone():
    members = [ms.from_torch(latches(6, seed)) for seed in (0, 7)]
    together = shares_recalled(ms.Ensemble(members), sequences(), **SIZES, generator=[generator(1), generator(2)])
    alone = [
        shares_recalled(m, sequences(), **SIZES, generator=generator(s)) for s, m in zip((1, 2), members, strict=True)
    ]
    assert together == pytest.approx(alone)
