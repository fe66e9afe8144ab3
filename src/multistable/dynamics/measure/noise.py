"""Which attractors draw states back: what is left of settled states after noise, under constant and changing input."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integers, positive_number
from multistable.dynamics.measure.algorithm_1_measure import (
    BATCH_SIZE,
    BATCHES,
    batching,
    check_finite,
    measuring,
    settled_states,
    starting,
)
from multistable.dynamics.measure.stabilisation import stabilise
from multistable.dynamics.measure.vaa_and_vaa_star import distances
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.inputs import check_inputs
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.states import StateSet
from multistable.dynamics.system.system import States, System, flat, map_states

WINDOW = 120
"""Changing inputs are in memory for so many steps."""


@dataclass(frozen=True)
class Robustness:
    """The result of :func:`robustness`. Values are numbers, or for an ensemble lists with one for each member.

    Attributes:
        returned: the share of settled states that come back after noise, under their constant input.
        vaa: how many different attractors these came back to, divided by the n states of a batch.
        returned_changing: the share that come back to the path of the state without noise, while the input changes.
        vaa_changing: how many different paths these came back to, divided by n.
        told: the share of settled states that can be told after noise, under their constant input: of all states of
            the batch as they are without noise, their own is the nearest. Of several that are as near, within eps, each
            counts for its part, so that it is 1/n where all are at one attractor.
        noise: the standard deviation of the noise.
        n: the states of a batch.
    """

    returned: Any
    vaa: Any
    returned_changing: Any
    vaa_changing: Any
    told: Any
    noise: float
    n: int


@interrupted_once
def robustness(
    rnn: nn.Module,
    sequences: Any = None,
    *,
    noise: float = 0.2,
    inputs: Any = "normal",
    states: Any = None,
    batches: int = BATCHES,
    batch_size: int = BATCH_SIZE,
    stabilisation: int = 10_000,
    steps: int = 1000,
    eps: float = 1e-4,
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """The share of settled states that come back to their attractor after noise, and how many attractors do that.

    Noise from N(0, noise^2) is added to every number of each settled state. Both it and the state without noise go on
    for some steps: under the constant input, and under an input that is a new one at each step. A state has come back
    if the two then are no more than ``eps`` apart.

    A network with a single attractor forgets the noise, too: all states come back, to one attractor. On a continuum
    states stay where the noise moved them. So a network has a memory that noise does not wear away if states come back
    *and* ``vaa`` is above 1/n. On a continuum whose states are further apart than noise moves them, they do not come
    back and can still be ``told``.

    Args:
        rnn: a network, an ensemble, or a model with recurrent parts inside, see :func:`measure`.
        sequences: the input sequences or batches, see :func:`measure`.
        noise: its standard deviation. Units of a GRU lie between -1 and 1.
        inputs: the constant inputs, see :func:`measure`; changing ones are drawn from the same.
        states: states to start from in place of those that sequences lead to, see :func:`measure`.
        batches: I, how many batches of states, each with its own constant input, see :func:`measure`.
        batch_size: the states of a batch, see :func:`measure`.
        stabilisation: M, the steps after which states are called settled.
        steps: after how many steps a state must be back.
        eps: how near, and how near to each other states are at the same attractor.
        generator: see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Returns:
        :class:`Robustness`, for several parts a dict of these by name.
    """
    batches, batch_size, stabilisation, steps = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation, steps=steps
    )
    noise, eps = positive_number("noise", noise), positive_number("eps", eps)
    check_inputs(inputs)

    def one(network: nn.Module, sequences: Any, _: Turn) -> Robustness:
        with measuring(network, sequences, batch_size, inputs=inputs, states=states) as (system, data):
            sizes = batching(system, data, batches, batch_size)
            draws = Draws(generator, system.members)
            return robustness_of(system, data, draws, noise, sizes, stabilisation, steps, eps)

    return each_part(one, rnn, sequences, **starting(states, batch_size), part=part, forward=forward)


def robustness_of(
    system: System,
    data: SequenceSet | StateSet,
    draws: Draws,
    noise: float,
    sizes: tuple[int, int],
    stabilisation: int,
    steps: int,
    eps: float,
) -> Robustness:
    """:func:`robustness` without the checks, of a system over its present weights; ``sizes`` are I and n."""
    found = settled_states(system, data, draws, sizes, stabilisation)

    def with_noise(field: Tensor) -> Tensor:
        return torch.cat([field, field + noise * draws.normal(*field.shape[-2:]).to(field)], dim=-2)

    def clean_and_noisy(after: Tensor) -> tuple[Tensor, Tensor]:
        check_finite(after, f"{steps} more steps")
        clean, noisy = after.double().chunk(2, dim=-2)
        return clean.unflatten(-2, sizes), noisy.unflatten(-2, sizes)

    both, u = map_states(with_noise, found.settled.layers), torch.cat([found.u, found.u], dim=-2)
    constant = clean_and_noisy(stabilise(system, both, u, steps).states)
    changing = clean_and_noisy(flat(_under_changing(system, both, draws, sizes, steps)))
    shares = (*_shares(*constant, eps), *_shares(*changing, eps), _told(*constant, eps))
    returned, vaa, returned_changing, vaa_changing, told = (share.mean(dim=-1).tolist() for share in shares)
    return Robustness(returned, vaa, returned_changing, vaa_changing, told, noise, sizes[1])


def _under_changing(system: System, states: States, draws: Draws, sizes: tuple[int, int], steps: int) -> States:
    """The states ``(..., 2 I n, d)`` after so many steps, the input of each of the I batches a new one at each."""
    batches, n = sizes
    for start in range(0, steps, WINDOW):
        # Drawn step by step: of several given inputs the others follow in turn, so each step begins with one by chance.
        drawn = [system.constant_inputs(batches, draws) for _ in range(min(WINDOW, steps - start))]
        u = torch.stack(drawn).repeat_interleave(n, dim=-2)
        states = system.only_last(torch.cat([u, u], dim=-2), states)
    return states


def _shares(clean: Tensor, noisy: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The share of states ``(..., n, d)`` that came back, and of the different places they came back to, ``(...)``."""
    back = torch.linalg.vector_norm(noisy - clean, dim=-1) <= eps
    same = (distances(clean) <= eps) & back.unsqueeze(-2)
    places = (back / same.sum(dim=-1).clamp(min=1).double()).sum(dim=-1).round(decimals=12)
    return back.double().mean(dim=-1).cpu(), (places / clean.shape[-2]).cpu()


def _told(clean: Tensor, noisy: Tensor, eps: float) -> Tensor:
    """The share of noisy states ``(..., n, d)`` whose own clean one is the nearest, ``(...)``."""
    apart = torch.cdist(noisy, clean, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = apart <= apart.amin(dim=-1, keepdim=True) + eps
    told = nearest.diagonal(dim1=-2, dim2=-1) / nearest.sum(dim=-1)
    return told.double().mean(dim=-1).cpu()
