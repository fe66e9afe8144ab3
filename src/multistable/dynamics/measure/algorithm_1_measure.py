"""Algorithm 1: the share of reachable attractors of a network."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integers, positive_number, truth_value
from multistable.dynamics.measure.algorithm_2_reachable_states import random_hidden_states
from multistable.dynamics.measure.stabilisation import OnSteps, Stabilised, stabilise, unseen
from multistable.dynamics.measure.vaa_and_vaa_star import vaa
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.contexts import measured_float32
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, at_least, each_part
from multistable.dynamics.system.progress import Line
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
        n: the states of a batch. A single attractor for all of them gives a VAA of 1/n.
    """

    vaa: Any
    batches: Tensor = field(compare=False, repr=False)
    steps: int
    periodic: float
    n: int

    def __str__(self) -> str:
        values = self.vaa if isinstance(self.vaa, list) else [self.vaa]
        ends = (_in_words(value, self.n) for value in values)
        named = ends if len(values) == 1 else (f"network {index}: {end}" for index, end in enumerate(ends))
        how = f"(mean of {self.batches.shape[-1]} batches, {self.steps:,} steps; one attractor gives {1 / self.n:.3g})"
        return "\n".join([*named, how])


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
    progress: bool | None = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """Estimate the share of reachable attractors of a network, or of the recurrent parts of a model (Algorithm 1).

    A VAA of 1/batch_size means one attractor for all states, 1 means one for each state. It is computed in float32 or
    better, on a GPU in almost float32 (docs/results/engine_records.md), whatever the global flags say. The network is
    not changed.

    Args:
        rnn: a ``torch.nn`` RNN, GRU or LSTM, or one of their cells; an ``ms.RNN``, ``ms.Cell`` or ``ms.Ensemble``; or
            any module that is called as ``(input, state) -> (output, state)``. Or any model with such parts inside
            (:func:`recurrent_parts`): it is run in evaluation on the batches, and each part is taken by itself with
            what it reads there. Each direction of a bidirectional network is a part of its own.
        sequences: for a network a tensor in its layout, a list of ``(time, features)`` tensors, a ``PackedSequence``,
            or an iterable of such batches, which must have an end; of tuples such as (inputs, targets) the first entry
            is taken, and of (padded, lengths) each sequence up to its length. An ensemble takes one set for all
            members, or a tensor ``(time, R, n, features)`` with one for each. NumPy arrays are accepted in place of
            tensors. All are converted to the network's type and device. For a model batches, of which as many are read
            as give 1,000 sequences of each part: one batch, an iterable of them, or a data set of rows. The model is
            called as ``model(**batch)`` with a dict, ``model(batch[0])`` with a tuple or list, else as
            ``model(batch)``.
        batches: I, how many batches of states to average over, each with its own constant input u ~ N(0, 1).
        batch_size: the states of a batch, each from another sequence. If it is not given and there are fewer than 32
            sequences, all are taken.
        stabilisation: M, the steps under the constant input.
        eps: states no more than this apart are at the same attractor.
        generator: where batches, time steps and inputs are drawn from. An ensemble takes one for all members, or a
            list with one for each. If it is not given, the seed that ``torch.manual_seed`` set decides the draws, which
            are then the same at each call.
        progress: whether to show on the standard error how far the measure is; if it is not given, only on a terminal,
            and only if it takes more than a few seconds.
        part: the name of the part of a model to take, by default all; also that of any module inside which is called as
            ``(input, state) -> (output, state)``.
        forward: ``forward(model, batch)``, where a batch is given to the model in another way.

    Returns:
        The result, for several parts a dict with the result of each by name.
    """
    batches, batch_size, stabilisation = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation
    )
    eps = positive_number("eps", eps)
    progress = progress if progress is None else truth_value("progress", progress)

    def one(network: nn.Module, sequences: Any, turn: Turn) -> Measure:
        shown = Line.showing(turn.of_call("measure"), progress)
        with measuring(network, sequences, batch_size) as (system, data), shown as line:
            size = min(batch_size, len(data))
            if size < 2:
                raise ValueError(
                    "sequences and batch_size must be at least two: the VAA of a single state is 1 in any network, "
                    f"got {len(data)} sequences and batch_size = {batch_size}"
                )
            draws = Draws(generator, system.members)
            return estimate(system, data, draws, batches, size, stabilisation, eps, line.stabilising)

    return each_part(one, rnn, sequences, part=part, forward=forward, least=at_least(batch_size))


def _in_words(vaa: float, n: int) -> str:
    """What a VAA of n states says."""
    different = vaa * n
    if different < 1.0 + 1e-9:
        return f"VAA {vaa:.3f}: all {n} states end at one attractor"
    return f"VAA {vaa:.3f}: {n} states end at {different:.3g} different places on average"


@contextmanager
def measuring(rnn: nn.Module, sequences: Any, batch_size: int) -> Iterator[tuple[System, SequenceSet]]:
    """:func:`studying` without gradients, in almost float32 or better, over the present weights."""
    network = _in_single_precision(rnn)
    with torch.no_grad(), measured_float32(), studying(network, sequences, batch_size=batch_size) as (system, data):
        yield system.with_present_weights(), data


def estimate(
    system: System,
    data: SequenceSet,
    draws: Draws,
    batches: int,
    batch_size: int,
    stabilisation: int,
    eps: float,
    on_steps: OnSteps = unseen,
) -> Measure:
    """:func:`measure` without the checks."""
    settled, _ = settled_states(
        system.with_present_weights(), data, draws, batches, batch_size, stabilisation, on_steps
    )
    values = vaa(settled.states.double().unflatten(-2, (batches, batch_size)), eps).cpu()
    return Measure(
        values.mean(dim=-1).tolist(), values, settled.steps, settled.periodic.double().mean().item(), batch_size
    )


def settled_states(
    system: System,
    data: SequenceSet,
    draws: Draws,
    batches: int,
    batch_size: int,
    stabilisation: int,
    on_steps: OnSteps = unseen,
) -> tuple[Stabilised, Tensor]:
    """The states to compare, all batches stabilised in one pass, and the constant input of each state."""
    states, inputs = [], []
    for _ in range(batches):
        states.append(random_hidden_states(system, data, draws.batch(len(data), batch_size), draws))
        inputs.append(system.constant_input(0, draws).expand(*system.leading, batch_size, -1))
    together = map_states(lambda *fields: torch.cat(fields, dim=-2), *states)
    u = torch.cat(inputs, dim=-2)
    settled = stabilise(system, together, u, stabilisation, on_steps)
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
