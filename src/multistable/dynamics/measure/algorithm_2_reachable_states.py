"""Algorithm 2: reachable states, those that the input sequences lead a network to."""

from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.models import each_part
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.system import States, System, flat, studying


def reachable_states(
    rnn: nn.Module,
    sequences: Any,
    *,
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """The state of a network at a random time step of each sequence (Algorithm 2), in one batched pass.

    Gradients flow to the network's parameters, unless they are switched off (``torch.no_grad``).

    Args:
        rnn: the network, or a model with recurrent parts inside, see :func:`measure`.
        sequences: n input sequences, or batches, see :func:`measure`.
        generator: where the time steps are drawn from, see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Returns:
        ``(n, d)``, or ``(R, n, d)`` for an ensemble: the whole state of all layers, [h, c] for LSTM. For several parts
        a dict of these by name.
    """

    def one(network: nn.Module, sequences: Any) -> Tensor:
        with studying(network, sequences) as (system, data):
            draws = Draws(generator, system.members)
            everything = torch.arange(len(data), device="cpu").expand(*system.leading, -1)
            return flat(random_hidden_states(system.with_present_weights(), data, everything, draws))

    return each_part(one, rnn, sequences, part=part, forward=forward)


def random_hidden_states(system: System, data: SequenceSet, indices: Tensor, draws: Draws) -> States:
    """The state at a random time step of each of the sequences at ``indices (..., n)``."""
    u, lengths = data.select(indices)
    before = system.unflat(data.states_before(indices))
    return system.states_at(u.to(device=system.device, dtype=system.dtype), draws.times(lengths), before)
