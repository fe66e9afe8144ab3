"""The auxiliary loss itself, against NumPy and by hand, and the stretches it is of."""

import numpy as np
import pytest
import torch

import multistable as ms
from multistable.cells.elman import Elman
from multistable.training import Model, Readout
from multistable.training.auxiliary import auxiliary_loss, ends_of_cuts, stretches_of

CPU = torch.device("cpu")


def network(cell="gru", features=2, units=3, layers=2, outputs=None, seed=0, **options):
    draw = torch.Generator().manual_seed(seed)
    rnn = ms.RNN(cell, features, units, layers, generator=draw, dtype=torch.float64, **options)
    return Model(rnn, Readout(units, outputs or features, generator=draw, dtype=torch.float64))


def sequences(time=9, n=4, features=2, seed=5):
    return torch.randn(time, n, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The loss


def explicit_loss(u, encoder, decoder, ends, stretch, ahead, forced):
    """Sequence by sequence, stretch by stretch, step by step."""
    errors = []
    for row in range(u.shape[1]):
        for end in ends[:, row].tolist():
            state = None
            for t in range(end):
                _, state = encoder.rnn(u[t : t + 1, row : row + 1], state)
            start = end if ahead else end - stretch
            given = torch.zeros(1, 1, u.shape[-1], dtype=u.dtype)
            for t in range(start, start + stretch):
                h, state = decoder.rnn(given, state)
                answer = h[0, 0].numpy() @ decoder.readout.weight.numpy() + decoder.readout.bias.numpy()
                errors += list((answer - u[t, row].numpy()) ** 2)
                given = u[t : t + 1, row : row + 1] if forced else given
    return np.mean(errors)


@pytest.mark.parametrize(
    ("cell", "ahead", "forced"),
    [("gru", False, True), ("gru", False, False), ("gru", True, True), ("lstm", False, True)],
)
def test_the_loss_is_what_its_definition_says(cell, ahead, forced):
    encoder, decoder = (network(cell, seed=seed).requires_grad_(False) for seed in (0, 1))
    u, ends = sequences(), torch.tensor([[3, 4, 5, 6], [6, 3, 4, 3]])
    _, states = encoder.rnn.advance(u)
    loss = auxiliary_loss(u, states, decoder, ends, 3, ahead=ahead, teacher_forcing=forced)
    expected = explicit_loss(u, encoder, decoder, ends, 3, ahead, forced)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_the_loss_by_hand():
    """One unit, h_t = tanh(w u_t + v h_{t-1} + b): numbers that anyone can follow."""
    encoder, decoder = (network(Elman, features=1, units=1, layers=1, seed=s) for s in (0, 1))
    values = {"input_weight": 0.5, "recurrent_weight": 0.8, "bias": 0.1}
    for model, factor in ((encoder, 1.0), (decoder, -1.0)):
        for name, parameter in model.rnn.named_parameters():
            torch.nn.init.constant_(parameter, factor * values[name.rpartition(".")[2]])
    torch.nn.init.constant_(decoder.readout.weight, 2.0)
    torch.nn.init.constant_(decoder.readout.bias, 0.3)
    u = torch.tensor([0.4, -1.0, 0.7], dtype=torch.float64).reshape(3, 1, 1)
    h = 0.0
    for value in (0.4, -1.0):
        h = np.tanh(0.5 * value + 0.8 * h + 0.1)
    first = np.tanh(-0.8 * h - 0.1)
    second = np.tanh(-0.5 * 0.4 - 0.8 * first - 0.1)
    expected = ((2 * first + 0.3 - 0.4) ** 2 + (2 * second + 0.3 + 1.0) ** 2) / 2
    loss = auxiliary_loss(u, encoder.rnn.advance(u)[1], decoder, torch.tensor([[2]]), 2)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_reach_the_encoder_through_the_states(cell):
    encoder, decoder = (network(cell, seed=seed) for seed in (0, 1))
    parameters = [*encoder.rnn.parameters(), *decoder.parameters()]
    u, ends = sequences(), ends_of_cuts(torch.full((4,), 9), 3, 2)

    def loss():
        return auxiliary_loss(u, encoder.rnn.advance(u)[1], decoder, ends, 3)

    gradients = torch.autograd.grad(loss(), parameters)
    assert all(gradient.abs().max() > 0 for gradient in gradients)
    draw = torch.Generator().manual_seed(3)
    direction = [torch.randn(p.shape, generator=draw, dtype=p.dtype) for p in parameters]
    ends_of_a_step = []
    for step in (1e-5, -1e-5):
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p += step * d
            ends_of_a_step.append(loss().item())
            for p, d in zip(parameters, direction, strict=True):
                p -= step * d
    slope = sum((g * d).sum().item() for g, d in zip(gradients, direction, strict=True))
    assert (ends_of_a_step[0] - ends_of_a_step[1]) / 2e-5 == pytest.approx(slope, rel=1e-6)


def test_what_comes_after_a_stretch_does_not_matter():
    encoder, decoder = (network(seed=seed) for seed in (0, 1))
    u, ends = sequences(), torch.tensor([[3] * 4, [6] * 4])
    changed = torch.cat([u[:6], sequences(3, seed=8)])
    first, second = (auxiliary_loss(x, encoder.rnn.advance(x)[1], decoder, ends, 3) for x in (u, changed))
    assert first == second


def test_members_of_an_ensemble_have_the_losses_they_have_alone():
    encoders, decoders = ([network(seed=seed) for seed in pair] for pair in ((0, 1, 2), (3, 4, 5)))
    u = torch.stack([sequences(seed=seed) for seed in (6, 7, 8)], dim=1)
    ends = torch.randint(3, 10, (3, 2, 4), generator=torch.Generator().manual_seed(0))
    together = auxiliary_loss(u, Model.stacked(encoders).rnn.advance(u)[1], Model.stacked(decoders), ends, 3)
    alone = [
        auxiliary_loss(u[:, i], encoders[i].rnn.advance(u[:, i])[1], decoders[i], ends[i], 3).item() for i in range(3)
    ]
    assert together.shape == (3,)
    assert together.tolist() == pytest.approx(alone, rel=1e-12)


# Stretches


def test_cuts_lie_one_after_another_and_cover_the_sequence():
    ends = ends_of_cuts(torch.full((2, 4), 9), 3, 3)
    assert ends.shape == (2, 3, 4)
    u = sequences()
    covered = stretches_of(u, ends[0] - 3, 3).unflatten(1, (3, 4)).transpose(0, 1).reshape(9, 4, 2)
    assert torch.equal(covered, u)


def test_cuts_of_sequences_of_different_lengths_fit_the_shortest():
    lengths = torch.tensor([6, 9, 12])
    assert ends_of_cuts(lengths, 3, 2).tolist() == [[3, 3, 3], [6, 6, 6]]
    with pytest.raises(ValueError, match="room for 3 stretches in a sequence of 6 time steps, got 3"):
        ends_of_cuts(lengths, 3, 3)
    with pytest.raises(ValueError, match="room for 2 stretches and as much to be predicted in a sequence of 6"):
        ends_of_cuts(lengths, 3, 2, ahead=True)
