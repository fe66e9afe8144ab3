"""Algorithm 2: reachable states, those that the input sequences lead a network to."""

from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.states import StateSet
from multistable.dynamics.system.system import System, studying
from multistable.dynamics.system.whole_states import States, flat, map_states

MOST_PADDING = 4
"""How many times the sum of their lengths sequences may take in memory when they are padded to the longest."""


@interrupted_once
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

    def one(network: nn.Module, sequences: Any, _: Turn) -> Tensor:
        return every_state(network, sequences, generator)

    return each_part(one, rnn, sequences, part=part, forward=forward)


def every_state(network: nn.Module, sequences: Any, generator: Generators) -> Tensor:
    """:func:`reachable_states` of a network."""
    with studying(network, sequences) as (system, data):
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
    lengths = data.lengths_of(indices)
    times = draws.times(lengths)

    def reached(some: Tensor) -> States:
        u, _ = data.select(indices[..., some])
        before = system.before(data, indices[..., some])
        return system.reached(u.to(device=system.device, dtype=system.dtype), times[..., some], before)

    groups = _groups(lengths)
    if len(groups) == 1:
        return reached(groups[0]), times
    order = torch.cat(groups).argsort().to(system.device)
    return map_states(lambda *fields: torch.cat(fields, dim=-2)[..., order, :], *map(reached, groups)), times


def _groups(lengths: Tensor) -> list[Tensor]:
    """The numbers of sequences of ``lengths (..., n)`` that are padded together: all, or those of similar length."""
    longest = lengths.flatten(0, -2).amax(dim=0) if lengths.dim() > 1 else lengths
    if len(longest) * int(longest.max()) <= MOST_PADDING * int(longest.sum()):
        return [torch.arange(len(longest), device="cpu")]
    doublings = longest.double().log2().floor()
    return [(doublings == doubling).nonzero().squeeze(-1) for doubling in doublings.unique()]
