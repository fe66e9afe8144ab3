"""The most direct probe: copies of the model as it is, warmed up and double, each trained for a short while."""

import copy
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import shown
from multistable.dynamics.advise.material import Material
from multistable.dynamics.advise.pieces import Loss, NoTrialError, Piece, WithReadout, pieces_of, usual_loss
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.progress import Line
from multistable.dynamics.system.reading import global_randomness_kept
from multistable.dynamics.warmup import WarmupDivergedError, WarmupHistory, warmup
from multistable.networks import doubled

HELD, MOST_HELD, FEWEST = 0.25, 16, 4
"""The share of the pieces that is held out, the most of them, and the fewest that are enough."""
LOOKS, SAME = 20, 3
"""How often the held-out pieces are looked at, and how many looks in a row must find the same version best."""
ENOUGH, PERFECT = 0.9, 0.95
"""Training ends early once the best version saves so much of what the reader of windows does; and where the reader has
found nothing, so much of the loss of guessing. Before, a version that learns later may still come out ahead."""
LEARNED = 0.1
"""The share of the loss of guessing that a version must save to have learned anything."""
AS_GOOD = 0.9
"""A version that saves so much of what the best one saves is as good."""
CLEAR = 3.0
"""A difference is clear beyond so many standard errors."""
GUESSED = 32
"""The pieces on which the best guess is found."""
WARMUP_SHARE = 0.5
"""The share of the time left that all warmups may take."""

WARMED = ("whole", "double")
"""The versions that are warmed up."""


@dataclass(frozen=True)
class Trial:
    """Copies of the model that were trained for a short while.

    Attributes:
        steps: the training steps after which each was looked at.
        losses: for each version, ``"none"``, ``"whole"`` and ``"double"``, the held-out loss at each look.
        guessing: the held-out loss of the best output that does not depend on the sequence; None where it is not known.
        best: the version that has learned most, ``"none"`` if others have learned no more; None if none has learned.
        saved: for each version the share of the loss of guessing that it saves at the end.
        missing: why a version is not there, by its name.
    """

    steps: list[int]
    losses: dict[str, list[float]]
    guessing: float | None
    best: str | None
    saved: dict[str, float]
    missing: dict[str, str]


@dataclass(frozen=True)
class Training:
    """How copies are trained.

    Attributes:
        steps: how many steps.
        lr: the learning rate of Adam.
        loss: ``loss(output, target)``; None for the usual one.
        forward: runs the model on a batch.
        part: the part to warm up.
        deadline: when to end, by ``time.monotonic()``.
        aim: the share of the loss of guessing that can be saved, as far as is known.
    """

    steps: int
    lr: float
    loss: Loss | None
    forward: Forward
    part: str | None
    deadline: float
    aim: float


def trial(given: Material, how: Training, generator: torch.Generator, line: Line) -> Trial:
    """Train the versions, each with the same pieces in the same order, until it is clear which is best."""
    pieces = pieces_of(given, generator)
    held = pieces[: min(MOST_HELD, max(FEWEST, int(HELD * len(pieces))))]
    others = pieces[len(held) :]
    if len(others) < FEWEST:
        raise NoTrialError(f"there are only {len(pieces)} batches to train with and to hold out")
    seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))
    loss = _checked(how.loss) if how.loss else usual_loss
    guess = _guessing(copied(given, seed), held, others, how.forward, loss)
    versions, missing = _versions(given, how, seed, line)
    adjust = {name: torch.optim.Adam(_trainable(model), lr=how.lr) for name, model in versions.items()}
    order = torch.randint(len(others), (how.steps,), generator=generator, device="cpu").tolist()
    steps, losses = [0], {name: list[float]() for name in versions}
    verdicts: list[tuple[str | None, dict[str, float]]] = []
    took = 0.0
    for look in sorted({math.ceil(how.steps * share / LOOKS) for share in range(1, LOOKS + 1)}):
        began = time.monotonic()
        if began + took > how.deadline or clear(verdicts, how.aim):
            break
        line.tell(f"training {len(versions)} copies, step {steps[-1]} of at most {how.steps}")
        ends: dict[str, Tensor] = {}
        for name, model in versions.items():
            with _random(seed + look):
                for index in order[steps[-1] : look]:
                    _step(model, adjust[name], others[index], how.forward, loss)
                ends[name] = _held_out(model, held, how.forward, loss)
            losses[name].append(float(ends[name].mean()))
        steps.append(look)
        verdicts.append(compared(ends, guess))
        took = time.monotonic() - began
    if not verdicts:
        raise NoTrialError("the time was up before the copies were trained")
    return Trial(steps[1:], losses, None if guess is None else float(guess.mean()), *verdicts[-1], missing)


def _checked(loss: Loss) -> Loss:
    """The user's loss, with an error if it gives no number."""

    def found(output: Any, target: Any) -> Tensor:
        value = loss(output, target)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise TypeError(f"loss must return a tensor of one number, got {shown(value)}")
        return value.squeeze()

    return found


def compared(ends: dict[str, Tensor], guess: Tensor | None) -> tuple[str | None, dict[str, float]]:
    """The best version by the losses ``(pieces,)`` of each, and the shares of the loss of guessing that they save."""
    if guess is None:
        return None, {}
    scale = abs(float(guess.mean())) or 1.0
    saved = {name: float((guess - end).mean()) / scale for name, end in ends.items()}
    learned = [name for name in saved if saved[name] > LEARNED and _less(ends[name], guess)]
    if not learned:
        return None, saved
    best = max(learned, key=lambda name: saved[name])
    as_good = [name for name in learned if saved[name] >= AS_GOOD * saved[best] or not _less(ends[best], ends[name])]
    return "none" if "none" in as_good else best, saved


def _less(some: Tensor, others: Tensor) -> bool:
    """Whether losses of the same pieces are less than others by more than chance."""
    gap = others - some
    return float(gap.mean()) > CLEAR * float(gap.std()) / math.sqrt(len(gap))


def clear(verdicts: list[tuple[str | None, dict[str, float]]], aim: float) -> bool:
    """Whether the same version was best several times, and has learned most of what can be."""
    last = [best for best, _ in verdicts[-SAME:]]
    if len(last) < SAME or last[-1] is None or len(set(last)) > 1:
        return False
    return max(verdicts[-1][1].values()) >= (ENOUGH * aim if aim > LEARNED else PERFECT)


def copied(given: Material, seed: int) -> nn.Module:
    """A copy of the model, with a readout where it is a bare network."""
    try:
        model = _whole(copy.deepcopy(given.model), given, seed)
    except (RuntimeError, TypeError) as error:
        raise NoTrialError(f"the model cannot be copied: {error}") from error
    if not _trainable(model):
        raise NoTrialError("no parameter of the model requires gradients")
    return model


def _whole(model: nn.Module, given: Material, seed: int) -> nn.Module:
    with global_randomness_kept():
        return (WithReadout(model, given, seed) if given.bare else model).train()


def _versions(given: Material, how: Training, seed: int, line: Line) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """The model as it is, warmed up, and double and warmed up; and why a version is missing."""
    versions = {"none": copied(given, seed)}
    missing: dict[str, str] = {}
    for place, name in enumerate(WARMED):
        left = how.deadline - time.monotonic()
        left = left if left == math.inf else left * WARMUP_SHARE / (len(WARMED) - place)
        line.tell(f"warming up a {'double ' * (name == 'double')}copy")
        made = copy.deepcopy(given.model)
        try:
            made = doubled(made, generator=torch.Generator().manual_seed(seed)) if name == "double" else made
            why = _warmed(made, given, how, seed, left)
        except (TypeError, ValueError, WarmupDivergedError) as error:
            why = str(error)
        if why:
            missing[name] = why
        else:
            versions[name] = _whole(made, given, seed)
    return versions, missing


def _warmed(made: nn.Module, given: Material, how: Training, seed: int, left: float) -> str:
    """Warm up a copy in the time left; why it did not become multistable, or nothing."""
    if left <= 0:
        return "the time was up"
    options: dict[str, Any] = {} if given.bare else {"part": how.part, "forward": how.forward}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = warmup(
            made,
            given.batches,
            generator=torch.Generator().manual_seed(seed),
            minutes=None if left == math.inf else left / 60,
            progress=False,
            **options,
        )
    histories: list[WarmupHistory] = list(found.values()) if isinstance(found, dict) else [found]
    failed = [str(history) for history in histories if not history.multistable]
    return failed[0] if len(failed) == len(histories) else ""


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


@contextmanager
def _random(seed: int) -> Iterator[None]:
    """The same global random numbers for each version, such as those of dropout; the user's are as before."""
    with global_randomness_kept():
        torch.manual_seed(seed)
        yield


def _step(model: nn.Module, adjust: Any, piece: Piece, forward: Forward, loss: Loss) -> None:
    value = loss(forward(model, piece[0]), piece[1])
    adjust.zero_grad()
    value.backward()
    nn.utils.clip_grad_norm_(_trainable(model), 1.0)
    adjust.step()


def _held_out(model: nn.Module, held: list[Piece], forward: Forward, loss: Loss) -> Tensor:
    """The loss of each held-out piece, ``(pieces,)`` on the CPU."""
    model.eval()
    with torch.no_grad():
        found = [loss(forward(model, batch), target) for batch, target in held]
    model.train()
    return torch.stack(found).double().cpu()


def _guessing(model: nn.Module, held: list[Piece], others: list[Piece], forward: Forward, loss: Loss) -> Tensor | None:
    """The losses of the held-out pieces for the best output that is the same for all; None where it is not found."""
    model.eval()
    with torch.no_grad(), global_randomness_kept():
        outputs = [forward(model, batch) for batch, _ in (*held, *others[:GUESSED])]
    if loss is usual_loss:
        outputs = [output[0] if isinstance(output, tuple) else output for output in outputs]
    if not all(isinstance(output, Tensor) and output.dim() for output in outputs):
        return None
    targets = [target for _, target in (*held, *others[:GUESSED])]
    wide = outputs[0].shape[-1] if outputs[0].dim() > 1 else 1
    guess = outputs[0].new_zeros(wide).requires_grad_()
    adjust = torch.optim.LBFGS([guess], max_iter=50, line_search_fn="strong_wolfe")

    def found(places: range) -> Tensor:
        return torch.stack([loss(guess.expand(outputs[place].shape), targets[place]) for place in places])

    def closure() -> Tensor:
        adjust.zero_grad()
        value = found(range(len(held), len(outputs))).mean()
        value.backward()
        return value

    adjust.step(closure)
    with torch.no_grad():
        return found(range(len(held))).double().cpu()
