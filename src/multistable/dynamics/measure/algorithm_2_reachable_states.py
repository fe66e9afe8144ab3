"""Algorithm 2: reachable states, those that the input sequences lead a network to."""

from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.states import StateSet
from multistable.dynamics.system.system import States, System, flat, studying


def reachable_states(rnn: nn.Module, sequences: Any, *, generator: Generators = None) -> Tensor:
    """The state of a network at a random time step of each sequence (Algorithm 2), in one batched pass.

    Gradients flow to the network's parameters, unless they are switched off (``torch.no_grad``).

    Args:
        rnn: the network, see :func:`measure`.
        sequences: n input sequences, see :func:`measure`.
        generator: where the time steps are drawn from, see :func:`measure`.

    Returns:
        ``(n, d)``, or ``(R, n, d)`` for an ensemble: the whole state of all layers, [h, c] for LSTM.
    """
    with studying(rnn, sequences) as (system, data):
        draws = Draws(generator, system.members)
        everything = torch.arange(len(data), device="cpu").expand(*system.leading, -1)
        return flat(random_hidden_states(system.with_present_weights(), data, everything, draws))


def random_hidden_states(system: System, data: SequenceSet | StateSet, indices: Tensor, draws: Draws) -> States:
    """The state at a random time step of each of the sequences, or the given states, at ``indices (..., n)``."""
    return states_and_times(system, data, indices, draws)[0]


def states_and_times(
    system: System, data: SequenceSet | StateSet, indices: Tensor, draws: Draws
) -> tuple[States, Tensor]:
    """:func:`random_hidden_states`, and the time steps ``(..., n)``, counted from 1; 0 for given states."""
    if isinstance(data, StateSet):
        return system.split(data.select(indices)), torch.zeros_like(indices)
    u, lengths = data.select(indices)
    times = draws.times(lengths)
    return system.states_at(u.to(device=system.device, dtype=system.dtype), times), times
