"""``ms.advise``: its arguments, its probes, and what follows from them."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import check_callable, count, positive_number, truth_value
from multistable.dynamics.advise.advice import Advice
from multistable.dynamics.advise.material import Chosen, Material, material
from multistable.dynamics.advise.pieces import NoTrialError
from multistable.dynamics.advise.rule import Found, decided
from multistable.dynamics.advise.trial import Training, Trial, trial
from multistable.dynamics.advise.windows import Window, window
from multistable.dynamics.measure import lyapunov, measure
from multistable.dynamics.system.batches import Forward, call
from multistable.dynamics.system.contexts import on_the_cpu
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.progress import Line
from multistable.dynamics.system.sequences import PaddedSequences, SequenceSet
from multistable.networks import Ensemble
from multistable.networks.wrappers import unwrapped

STATES = 32
"""The states of the measure, and the sequences along which differences are followed."""
FOLLOWED, LEAST = 200, 5
"""The most time steps of a sequence along which differences are followed, and the fewest."""


@interrupted_once
def advise(
    rnn: nn.Module,
    sequences: Any,
    *,
    targets: Chosen = None,
    loss: Callable[[Any, Any], Tensor] | None = None,
    steps: int = 1000,
    lr: float = 1e-3,
    minutes: float | None = None,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Advice:
    """Say whether to warm up a network for a task, by a few cheap probes. The network is not changed.

    It measures how many attractors the network reaches and how long differences between states last. With targets it
    also finds out how far back these reach: a reader that is no recurrent network answers from the last 2, 4, 8 ...
    steps alone, on sequences that are held out. And it trains three copies for a short while: the network as it is,
    warmed up, and with double layers that are warmed up. Where the probes do not tell, ``warmup`` is None.

    Args:
        rnn: a network, or a model with recurrent parts inside, see :func:`measure`; before it is trained.
        sequences: its sequences or batches, see :func:`measure`; of those with targets up to 6,000 sequences are read.
            A network that is not inside a model is trained with a linear readout.
        targets: where the targets are. If it is not given, in ``batch[1]`` of a tuple or list, or of a dict under
            ``labels``, ``label``, ``targets``, ``target`` or ``y``. Else the number or name of an entry of each batch,
            ``targets(batch)``, or, for a tensor of sequences, the targets themselves. Classes are integers, all else
            are numbers; one a sequence ``(n, ...)``, or one a step ``(n, time, ...)``, of a network whose sequences are
            ``(time, n, features)`` also ``(time, n, ...)``. Steps without a target have class -100, or NaN.
        loss: ``loss(output, target)`` of what the model returns; if it is not given, cross entropy of classes, and
            squared error of numbers.
        steps: for how many steps of Adam each copy is trained at most; with 0 there is no such probe.
        lr: their learning rate.
        minutes: the time after which training ends, if it has not. The advice then depends on the machine.
        generator: where all is drawn from; see :func:`measure`.
        progress: see :func:`measure`.
        part: the part to advise on, see :func:`measure`.
        forward: ``forward(model, batch)``, see :func:`measure`.
    """
    if not isinstance(rnn, nn.Module):
        raise TypeError(f"rnn must be a torch.nn.Module, got {type(rnn).__name__}")
    if isinstance(unwrapped(rnn), Ensemble):
        raise TypeError(
            "rnn must be a single network or a model, got an Ensemble: take one of its networks, .unstack()"
        )
    if forward is not None:
        check_callable("forward", forward, "called as forward(model, batch)")
    if loss is not None:
        check_callable("loss", loss, "called as loss(output, target)")
    steps, lr = count("steps", steps), positive_number("lr", lr)
    deadline = time.monotonic() + (math.inf if minutes is None else 60 * positive_number("minutes", minutes))
    progress = progress if progress is None else truth_value("progress", progress)
    draws = Draws(generator)
    seeds = [int(draws.integer(2**31)) for _ in range(4)]
    with torch.inference_mode(False), torch.enable_grad(), Line.showing("advice", progress) as line:
        line.tell("reading")
        given = material(unwrapped(rnn), sequences, targets, part, forward)
        measured = _of_parts(given, part, forward, lambda network, data: _dynamics(network, data, seeds[0], line))
        missing: dict[str, str] = {}
        line.tell("training a reader of windows")
        windows = _window(given, missing, _from(seeds[1]))
        aim = windows.scores[-1] if windows is not None else 0.0
        how = Training(steps, lr, loss, forward or call, part, deadline, aim)
        trained = _trial(given, how, missing, _from(seeds[2]), line)
    vaa, lifetime = ({name: of[place] for name, of in measured.items()} for place in range(2))
    length = int(given.read.lengths.max())
    one = 1 / min(STATES, len(given.read))
    found = Found(min(vaa.values()), one, max(lifetime.values()), length, windows, trained, missing)
    warmup, reasons = decided(found)
    return Advice(warmup, reasons, _single(vaa), _single(lifetime), length, windows, trained)


def _of_parts(
    given: Material, part: str | None, forward: Forward | None, act: Callable[[nn.Module, Any], Any]
) -> dict[str, Any]:
    """The result of each part, by its name."""

    def of_turn(network: nn.Module, data: Any, turn: Turn) -> Any:
        return act(network, data)

    found = each_part(of_turn, given.model, given.batches, part=part, forward=forward, least=STATES)
    return found if isinstance(found, dict) else {"": found}


def _single(by_part: dict[str, float]) -> Any:
    return next(iter(by_part.values())) if len(by_part) == 1 else by_part


def _dynamics(network: nn.Module, data: SequenceSet, seed: int, line: Line) -> tuple[float, float]:
    """The VAA of a network, and how long small differences between its states last along the sequences."""
    line.tell("measuring")
    vaa = measure(network, data, generator=_from(seed), progress=False).vaa
    n = min(STATES, len(data))
    u, lengths = data.select(torch.arange(n, device="cpu"))
    short = PaddedSequences(
        u[:FOLLOWED], lengths.clamp(max=FOLLOWED), before=data.states_before(torch.arange(n, device="cpu"))
    )
    along = "sequences" if int(short.lengths.min()) >= LEAST else "data"
    found = lyapunov(network, short, inputs=along, batches=1, batch_size=n, steps=FOLLOWED, generator=_from(seed))
    return vaa, found.lifetime


def _window(given: Material, missing: dict[str, str], generator: torch.Generator) -> Window | None:
    if given.answers is None:
        missing["window"] = given.why_not
        return None
    if any(getattr(module, "bidirectional", False) for module in given.model.modules()):
        missing["window"] = "a bidirectional network reads from both ends"
        return None
    with on_the_cpu():
        found = window(*given.rows(), generator)
    if found is None:
        missing["window"] = "there are too few sequences with targets, or all targets are the same"
    return found


def _trial(
    given: Material, how: Training, missing: dict[str, str], generator: torch.Generator, line: Line
) -> Trial | None:
    if not how.steps:
        missing["trial"] = "steps=0"
        return None
    try:
        return trial(given, how, generator, line)
    except NoTrialError as error:
        missing["trial"] = str(error)
        return None


def _from(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
