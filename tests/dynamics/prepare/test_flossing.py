"""Flossing: its exponents, and that they end near zero, by computations of their own."""

import numpy as np
import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.prepare import flossing
from multistable.dynamics.system.step import Step
from multistable.dynamics.system.system import studying
from networks import Leaky

INPUT = 2


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sequences(n=6, length=12, seed=9):
    return torch.randn(length, n, INPUT, generator=generator(seed), dtype=torch.float64)


def numpy_exponents(rnn, x):
    """The exponents of a tanh network along each sequence, by QR of Jacobians, over the second half of its steps."""
    W, U = rnn.weight_hh_l0.detach().numpy(), rnn.weight_ih_l0.detach().numpy()
    b = (rnn.bias_ih_l0 + rnn.bias_hh_l0).detach().numpy()
    found = []
    for u in x.numpy().transpose(1, 0, 2):
        h, ways, growth = np.zeros(len(W)), np.eye(len(W)), []
        for u_t in u:
            h = np.tanh(W @ h + U @ u_t + b)
            ways, r = np.linalg.qr(np.diag(1 - h**2) @ W @ ways)
            growth.append(np.log(np.abs(np.diag(r))))
        found.append(np.mean(growth[len(u) // 2 :], axis=0))
    return np.array(found)


def test_the_exponents_are_pushed_to_zero():
    torch.manual_seed(0)
    rnn, x = nn.RNN(INPUT, 6, dtype=torch.float64), sequences()
    before = numpy_exponents(rnn, x).mean(axis=0)
    done = ms.prepare(rnn, x, method="flossing", exponents=2, steps=50, lr=3e-2, batch_size=6, generator=generator())
    after = numpy_exponents(rnn, x).mean(axis=0)
    assert np.abs(before[:2]).min() > 0.3
    assert np.abs(after[:2]).max() < 0.05
    assert done.history.exponents.shape == (50, 2)
    assert set(done.changed) == {name for name, _ in rnn.named_parameters()}
    measured = ms.lyapunov(rnn, x, inputs="sequences", exponents=2, batches=1, batch_size=6).spectrum
    assert np.abs(measured).max() < 0.05


@pytest.mark.parametrize("make", [
    lambda: nn.LSTM(INPUT, 3, 2, dtype=torch.float64),
    lambda: ms.RNN(("gru", "lstm"), INPUT, 4, dtype=torch.float64),
    lambda: ms.RNN("mgu", INPUT, 3, dtype=torch.float64),
    lambda: Leaky(INPUT, 3).double(),
], ids=["lstm", "double", "mgu", "module"])  # fmt: skip
def test_ways_are_multiplied_with_the_jacobian(make):
    torch.manual_seed(1)
    network, x = make(), sequences(n=3)
    with studying(network, x) as (system, _):
        like = system.only_last(x[:1])
        step = Step(network, system, like, None)
        states = 0.5 * torch.randn(3, step.size, generator=generator(), dtype=torch.float64)
        ways = torch.randn(3, step.size, 2, generator=generator(1), dtype=torch.float64)
        after, grown = flossing.after_step(step, states, x[3], ways)
        expected = step(states, x[3])
        for n in range(3):
            jacobian = torch.autograd.functional.jacobian(lambda s, n=n: step(s, x[3, n : n + 1]), states[n : n + 1])
            torch.testing.assert_close(grown[n], jacobian[0, :, 0] @ ways[n], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(after, expected, rtol=1e-12, atol=1e-12)


def test_the_sum_of_all_exponents_is_that_of_the_determinants_for_sequences_of_any_length():
    torch.manual_seed(2)
    rnn, x = nn.RNN(INPUT, 4, dtype=torch.float64), sequences(n=3)
    lengths, expected = [12, 5, 1], []
    for length, u in zip(lengths, x.unbind(dim=1), strict=True):
        expected.append(numpy_exponents(rnn, u[:length].unsqueeze(1)).sum())
    some = [u[:length] for length, u in zip(lengths, x.unbind(dim=1), strict=True)]
    done = ms.prepare(rnn, some, method="flossing", exponents=4, steps=1, batch_size=3)
    assert float(done.history.exponents[0].sum()) == pytest.approx(np.mean(expected), rel=1e-9)


def test_only_the_first_steps_of_long_sequences_are_followed():
    torch.manual_seed(3)
    x, weights = sequences(), []
    for given in (x, x[:5]):
        torch.manual_seed(3)
        rnn = nn.GRU(INPUT, 3, dtype=torch.float64)
        ms.prepare(rnn, given, method="flossing", steps=2, longest=5, generator=generator())
        weights.append(rnn.weight_hh_l0.detach())
    assert torch.equal(*weights)


def test_members_of_an_ensemble_are_flossed_as_single_networks():
    members = [ms.RNN("gru", INPUT, 3, dtype=torch.float64, generator=generator(s)) for s in range(2)]
    ensemble = ms.Ensemble(members)
    options = {"method": "flossing", "steps": 3, "exponents": 2}
    ms.prepare(ensemble, sequences(), **options, generator=[generator(seed) for seed in (5, 6)])
    for seed, member, alone in zip((5, 6), ensemble.unstack(), members, strict=True):
        ms.prepare(alone, sequences(), **options, generator=generator(seed))
        for a, b in zip(member.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_only_the_half_to_prepare_is_flossed():
    rnn = ms.RNN(("gru", "lstm"), INPUT, 4)
    done = ms.prepare(rnn, sequences(), method="flossing", steps=2)
    assert done.changed
    assert all(name.startswith("layers.0.warmed.") for name in done.changed)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_a_network_is_as_before_if_flossing_stops(kind, monkeypatch):
    rnn, calls, step = nn.GRU(INPUT, 3), [], torch.optim.Adam.step

    def stopping(self):
        step(self)
        calls.append(1)
        if len(calls) == 2:
            raise kind

    monkeypatch.setattr(torch.optim.Adam, "step", stopping)
    before = [weight.detach().clone() for weight in rnn.parameters()]
    with pytest.raises(kind):
        ms.prepare(rnn, sequences(), method="flossing", steps=4)
    assert all(torch.equal(a, b) for a, b in zip(before, rnn.parameters(), strict=True))


def test_a_network_whose_exponents_are_not_finite_is_reported():
    rnn = nn.RNN(INPUT, 3, nonlinearity="relu")
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(1e30)
    with pytest.raises(ms.WarmupDivergedError, match="exponents or their gradient are not finite at step 1"):
        ms.prepare(rnn, sequences(), method="flossing", steps=2)


def test_bad_options_are_refused():
    rnn = nn.GRU(INPUT, 3)
    for options, message in [
        ({"exponents": 4}, "exponents must not exceed the size of the state, 3, got 4"),
        ({"exponents": 0}, "exponents must be a positive integer, got 0"),
        ({"steps": 0}, "steps must be a positive integer, got 0"),
        ({"lr": -1}, "lr must be a positive number, got -1"),
        ({"longest": 0}, "longest must be a positive integer, got 0"),
        ({"batch_size": 7}, "batch_size must not exceed the number of sequences, 6, got 7"),
    ]:
        with pytest.raises(ValueError, match=message):
            ms.prepare(rnn, sequences(), method="flossing", **options)
