"""Networks of which all fixed points are known: units that do not see each other."""

import math

import torch

import multistable as ms

A, C = 1.8, 0.5
FOLD_AT = math.sqrt(1 - 1 / A)
FOLD = A * FOLD_AT - math.atanh(FOLD_AT)
"""A unit h -> C h + (1 - C) tanh(A h + b + u) has two stable fixed points for |b + u| below this, else one."""


def units(*biases, slope=A):
    """A BRC of independent units with gates that do not depend on anything, each with its b; ``slope`` is its A."""
    m = len(biases)
    rnn = ms.RNN("brc", 1, m).double()
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.zero_()
        rnn.layers[0].cell.bias[m : 2 * m] = math.atanh(slope - 1)
        rnn.layers[0].cell.bias[2 * m :] = torch.tensor(biases, dtype=torch.float64)
        rnn.layers[0].cell.input_weight[:, 2 * m :] = 1.0
    return rnn
