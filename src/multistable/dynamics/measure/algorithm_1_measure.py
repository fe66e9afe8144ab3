"""Algorithm 1: the share of reachable attractors of a network."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integers, positive_number
from multistable.dynamics.measure.algorithm_2_reachable_states import random_hidden_states
from multistable.dynamics.measure.stabilisation import Stabilised, stabilise
from multistable.dynamics.measure.vaa_and_vaa_star import vaa
from multistable.dynamics.system.contexts import measured_float32
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.sequences import AtMost, SequenceSet
from multistable.dynamics.system.system import System, map_states, studying

BATCH_SIZE = AtMost(32)
"""The default number of states of a batch."""


class DivergedError(RuntimeError):
    """The states of a network do not stay finite."""


@dataclass(frozen=True)
class Measure:
    """The result of :func:`measure`.

    Attributes:
        vaa: the mean of ``batches``; for an ensemble a list, one for each member.
        batches: the VAA of each batch, ``(batches,)``, or ``(R, batches)`` for an ensemble.
        steps: how many stabilisation steps were computed; fewer than M if more could change nothing.
        periodic: the share of states that were seen to repeat themselves to the last bit, at a fixed point or on a
            cycle; the others were still on their way, or on a cycle too long to be seen.
    """

    vaa: Any
    batches: Tensor = field(compare=False, repr=False)
    steps: int
    periodic: float


@interrupted_once
def measure(
    rnn: nn.Module,
    sequences: Any,
    *,
    batches: int = 10,
    batch_size: int = BATCH_SIZE,
    stabilisation: int = 10_000,
    eps: float = 1e-4,
    generator: Generators = None,
) -> Measure:
    """Estimate the share of reachable attractors of a network for a set of input sequences (Algorithm 1).

    A VAA of 1/batch_size means one attractor for all states, 1 means one for each state. It is computed in float32 or
    better, on a GPU in almost float32 (docs/results/engine_records.md), whatever the global flags say. The network is
    not changed.

    Args:
        rnn: a ``torch.nn`` RNN, GRU or LSTM, or one of their cells; an ``ms.RNN``, ``ms.Cell`` or ``ms.Ensemble``; or
            any module that is called as ``(input, state) -> (output, state)``.
        sequences: a tensor in the network's layout, a list of ``(time, features)`` tensors, a ``PackedSequence``, or
            an iterable of such batches, which must have an end; of tuples such as (inputs, targets) the first entry is
            taken, and of (padded, lengths) each sequence up to its length. An ensemble takes one set for all members,
            or a tensor ``(time, R, n, features)`` with one for each. NumPy arrays are accepted in place of tensors. All
            are converted to the network's type and device.
        batches: I, how many batches of states to average over, each with its own constant input u ~ N(0, 1).
        batch_size: the states of a batch, each from another sequence. If it is not given and there are fewer than 32
            sequences, all are taken.
        stabilisation: M, the steps under the constant input.
        eps: states no more than this apart are at the same attractor.
        generator: where batches, time steps and inputs are drawn from. An ensemble takes one for all members, or a
            list with one for each. If it is not given, the seed that ``torch.manual_seed`` set decides the draws, which
            are then the same at each call.
    """
    batches, batch_size, stabilisation = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation
    )
    eps = positive_number("eps", eps)
    with measuring(rnn, sequences, batch_size) as (system, data):
        size = min(batch_size, len(data))
        return estimate(system, data, Draws(generator, system.members), batches, size, stabilisation, eps)


@contextmanager
def measuring(rnn: nn.Module, sequences: Any, batch_size: int) -> Iterator[tuple[System, SequenceSet]]:
    """:func:`studying` without gradients, in almost float32 or better, over the present weights."""
    network = _in_single_precision(rnn)
    with torch.no_grad(), measured_float32(), studying(network, sequences, batch_size=batch_size) as (system, data):
        yield system.with_present_weights(), data


def estimate(
    system: System, data: SequenceSet, draws: Draws, batches: int, batch_size: int, stabilisation: int, eps: float
) -> Measure:
    """:func:`measure` without the checks."""
    settled, _ = settled_states(system.with_present_weights(), data, draws, batches, batch_size, stabilisation)
    values = vaa(settled.states.double().unflatten(-2, (batches, batch_size)), eps).cpu()
    return Measure(values.mean(dim=-1).tolist(), values, settled.steps, settled.periodic.double().mean().item())


def settled_states(
    system: System, data: SequenceSet, draws: Draws, batches: int, batch_size: int, stabilisation: int
) -> tuple[Stabilised, Tensor]:
    """The states to compare, all batches stabilised in one pass, and the constant input of each state."""
    states, inputs = [], []
    for _ in range(batches):
        states.append(random_hidden_states(system, data, draws.batch(len(data), batch_size), draws))
        inputs.append(system.constant_input(0, draws).expand(*system.leading, batch_size, -1))
    together = map_states(lambda *fields: torch.cat(fields, dim=-2), *states)
    u = torch.cat(inputs, dim=-2)
    settled = stabilise(system, together, u, stabilisation)
    check_finite(settled.states, f"{settled.steps} steps")
    return settled, u


def check_finite(states: Tensor, after: str) -> None:
    """Raise if states ``(..., n, d)`` are not finite after so many steps."""
    lost = int((~states.isfinite().all(dim=-1)).sum())
    if lost:
        raise DivergedError(
            f"{lost} of {states[..., 0].numel()} states are not finite after {after}: the "
            "network diverges under a constant input, or its parameters are not finite"
        )


def _in_single_precision(rnn: nn.Module) -> nn.Module:
    """The network itself, or a float32 copy where it has parameters or buffers of lower precision."""
    tensors = (*rnn.parameters(), *rnn.buffers()) if isinstance(rnn, nn.Module) else ()
    lower = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in tensors)
    return copy.deepcopy(rnn).float() if lower else rnn
