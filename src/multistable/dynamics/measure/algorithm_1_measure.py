"""Algorithm 1: the share of reachable attractors of a network."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import counted, positive_integers, positive_number, truth_value
from multistable.dynamics.measure.algorithm_2_reachable_states import states_and_times
from multistable.dynamics.measure.stabilisation import OnSteps, Stabilised, stabilise, unseen
from multistable.dynamics.measure.vaa_and_vaa_star import vaa
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.contexts import measured_float32
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.inputs import check_inputs
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, at_least, each_part
from multistable.dynamics.system.progress import Line
from multistable.dynamics.system.sequences import AtMost, SequenceSet
from multistable.dynamics.system.states import StateSet
from multistable.dynamics.system.system import System, as_system, network_of, studying, studying_states
from multistable.dynamics.system.whole_states import States, map_states

BATCH_SIZE = AtMost(32)
"""The default number of states of a batch."""
BATCHES = AtMost(10)
"""The default number of batches. Of given inputs each has as many batches as the others: there may be a few more."""


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
        batches = self.batches.shape[-1]
        mean = f"mean of {batches} batches, " if batches > 1 else ""
        return "\n".join([*named, f"({mean}{counted(self.steps, 'step')}; one attractor gives {1 / self.n:.3g})"])


@interrupted_once
def measure(
    rnn: nn.Module,
    sequences: Any = None,
    *,
    inputs: Any = "normal",
    states: Any = None,
    batches: int = BATCHES,
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
        inputs: the constant inputs: ``"normal"``, u ~ N(0, 1), as in the paper; ``"zero"``; ``"data"``, each from a
            random time step of a random sequence; or a tensor ``(features,)`` or ``(k, features)`` of one or several,
            which batches take in turn. Of a part of a model they are what that part reads.
        states: states ``(n, d)`` to start from, in place of those that the sequences lead to: whole states as
            :func:`reachable_states` returns them; for an ensemble also ``(R, n, d)``. The sequences of a network may
            then be left out, except for ``inputs="data"``.
        batches: I, how many batches of states to average over, each with its own constant input. If it is not given,
            10, or a few more so that each of several given inputs has as many; with ``states``, one for each given
            input.
        batch_size: the states of a batch, each from another sequence. If it is not given, 32, or all where there are
            fewer sequences; with ``states`` all of them, in their order.
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
    check_inputs(inputs)

    def one(network: nn.Module, sequences: Any, turn: Turn) -> Measure:
        shown = Line.showing(turn.of_call("measure"), progress)
        with measuring(network, sequences, batch_size, inputs=inputs, states=states) as (system, data), shown as line:
            sizes = batching(system, data, batches, batch_size)
            if sizes[1] < 2:
                what = "sequences" if states is None else "states"
                raise ValueError(
                    f"{what} and batch_size must be at least two: the VAA of a single state is 1 in any network, "
                    f"got {len(data)} {what} and batch_size = {batch_size}"
                )
            draws = Draws(generator, system.members)
            return estimate(system, data, draws, sizes, stabilisation, eps, line.stabilising)

    return each_part(one, rnn, sequences, **starting(states, batch_size), part=part, forward=forward)


def starting(states: Any, batch_size: int) -> dict[str, Any]:
    """What :func:`each_part` must know of where a measure starts: from given states, or from those of sequences."""
    driven = states is None
    return {"driven": driven, "least": at_least(batch_size) if driven else 1}


def _in_words(vaa: float, n: int) -> str:
    """What a VAA of n states says."""
    different = vaa * n
    if different < 1.0 + 1e-9:
        return f"VAA {vaa:.3f}: all {n} states end at one attractor"
    return f"VAA {vaa:.3f}: {n} states end at {different:.3g} different places on average"


@contextmanager
def measuring(
    rnn: nn.Module, sequences: Any, batch_size: int, *, inputs: Any = "normal", states: Any = None
) -> Iterator[tuple[System, SequenceSet | StateSet]]:
    """:func:`studying` without gradients, in almost float32 or better, over the present weights."""
    network, chosen = _in_single_precision(rnn), {"batch_size": batch_size, "inputs": inputs}
    if states is None:
        study: Any = studying(network, sequences, **chosen)
    else:
        study = studying_states(network, states, sequences, **chosen)
    with torch.no_grad(), measured_float32(), study as (system, data):
        yield system.with_present_weights(), data


@contextmanager
def measured_system(rnn: nn.Module, features: int) -> Iterator[System]:
    """A network as a system under the conditions of a measure, over its present weights."""
    network = _in_single_precision(network_of(rnn))
    with torch.no_grad(), measured_float32(), as_system(network, features) as system:
        yield system.with_present_weights()


def batching(system: System, data: SequenceSet | StateSet, batches: int, batch_size: int) -> tuple[int, int]:
    """How many batches of how many states: what was asked for, or what suits the inputs and the states."""
    inputs, given = system.inputs.count or 1, isinstance(data, StateSet)
    if isinstance(batches, AtMost):
        batches = inputs if given and system.inputs.count else -(-batches // inputs) * inputs
    elif batches < inputs:
        raise ValueError(f"batches must be at least the number of inputs, {inputs}, got {batches}")
    everything = given and isinstance(batch_size, AtMost)
    return int(batches), len(data) if everything else min(batch_size, len(data))


def estimate(
    system: System,
    data: SequenceSet | StateSet,
    draws: Draws,
    sizes: tuple[int, int],
    stabilisation: int,
    eps: float,
    on_steps: OnSteps = unseen,
) -> Measure:
    """:func:`measure` without the checks; ``sizes`` are I and n."""
    settled = settled_states(system.with_present_weights(), data, draws, sizes, stabilisation, on_steps).settled
    values = vaa(settled.states.double().unflatten(-2, sizes), eps).cpu()
    return Measure(
        values.mean(dim=-1).tolist(), values, settled.steps, settled.periodic.double().mean().item(), sizes[1]
    )


@dataclass(frozen=True)
class Settled:
    """The states of all batches, stabilised under their inputs.

    Attributes:
        start: the states before the first step.
        settled: the states after the last.
        u: the constant input of each state, ``(..., n, features)``.
        origins: the number of the sequence or of the given state that each comes from, ``(..., n)``.
        times: the time step of the sequence, from 1 on, ``(..., n)``; 0 for given states.
    """

    start: States
    settled: Stabilised
    u: Tensor
    origins: Tensor
    times: Tensor


def settled_states(
    system: System,
    data: SequenceSet | StateSet,
    draws: Draws,
    sizes: tuple[int, int],
    stabilisation: int,
    on_steps: OnSteps = unseen,
) -> Settled:
    """The states to compare, I batches of n, all stabilised in one pass."""
    batches, n = sizes
    states, inputs, origins, times = [], [], [], []
    for place in range(batches):
        indices = _batch(data, draws, n)
        reached, when = states_and_times(system, data, indices, draws)
        states.append(reached)
        times.append(when)
        inputs.append(system.constant_inputs(1, draws, first=place).expand(*system.leading, n, -1))
        origins.append(indices)
    together = map_states(lambda *fields: torch.cat(fields, dim=-2), *states)
    u = torch.cat(inputs, dim=-2)
    settled = stabilise(system, together, u, stabilisation, on_steps)
    check_finite(settled.states, f"{settled.steps} steps")
    return Settled(together, settled, u, torch.cat(origins, dim=-1), torch.cat(times, dim=-1))


def _batch(data: SequenceSet | StateSet, draws: Draws, size: int) -> Tensor:
    """Which sequences or given states a batch takes, ``(..., size)``; all given states are taken in their order."""
    indices = draws.batch(len(data), size)
    if isinstance(data, StateSet) and size == len(data):
        return torch.arange(size, device="cpu").expand(indices.shape)
    return indices


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
