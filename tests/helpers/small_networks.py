"""Small networks with random weights, for the tests of networks."""

import torch
from torch import Tensor

import multistable as ms
from numpy_cells import fields, normal, with_random_weights

TIME, N, INPUT, HIDDEN = 5, 3, 2, 4


def make(cell="gru", num_layers: int = 1, input_size: int = INPUT, hidden_size: int = HIDDEN, **options) -> ms.RNN:
    return with_random_weights(ms.RNN(cell, input_size, hidden_size, num_layers, dtype=torch.float64, **options))


def random_state(rnn: ms.RNN, n: int = N):
    """A state in the form that ``rnn`` returns, but drawn at random."""
    _, end = rnn(normal(1, n, rnn.input_size).movedim(0, 1 if rnn.batch_first else 0))
    drawn = tuple(0.5 * normal(*field.shape, seed=40 + i) for i, field in enumerate(fields(end)))
    return drawn[0] if isinstance(end, Tensor) else drawn
