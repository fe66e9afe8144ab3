"""The most direct probe: copies of the model as it is, warmed up and double, each trained for a short while."""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from multistable.dynamics.advise.material import IGNORED, Answers, Material, rows_of
from multistable.dynamics.system.batches import DICTS, Forward
from multistable.dynamics.system.progress import Line
from multistable.dynamics.system.reading import global_randomness_kept
from multistable.dynamics.warmup import WarmupDivergedError, WarmupHistory, warmup
from multistable.networks import RNN, doubled

PIECE = 32
"""The sequences of a training step, where the user's batches can be cut into so many."""
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

Loss = Callable[[Any, Any], Tensor]


class NoTrialError(Exception):
    """No trial is possible; the message says why."""


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
    pieces = _pieces(given, generator)
    held = pieces[: min(MOST_HELD, max(FEWEST, int(HELD * len(pieces))))]
    others = pieces[len(held) :]
    if len(held) < FEWEST or len(others) < FEWEST:
        raise NoTrialError(f"there are only {len(pieces)} batches to train with and to hold out")
    seed = int(torch.randint(2**31, (), generator=generator))
    loss = how.loss or usual_loss
    guess = _guessing(copied(given, seed), held, others, how.forward, loss)
    versions, missing = _versions(given, how, seed, line)
    adjust = {name: torch.optim.Adam(_trainable(model), lr=how.lr) for name, model in versions.items()}
    order = torch.randint(len(others), (how.steps,), generator=generator).tolist()
    steps: list[int] = [0]
    losses: dict[str, list[float]] = {name: [] for name in versions}
    verdicts: list[tuple[str | None, dict[str, float]]] = []
    for look in sorted({math.ceil(how.steps * share / LOOKS) for share in range(1, LOOKS + 1)}):
        if time.monotonic() > how.deadline or _clear(verdicts, how.aim):
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
    if not verdicts:
        raise NoTrialError("the time was up before the copies were trained")
    return Trial(steps[1:], losses, None if guess is None else float(guess.mean()), *verdicts[-1], missing)


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


def _clear(verdicts: list[tuple[str | None, dict[str, float]]], aim: float) -> bool:
    """Whether the same version was best several times, and has learned most of what can be."""
    last = [best for best, _ in verdicts[-SAME:]]
    if len(last) < SAME or last[-1] is None or len(set(last)) > 1:
        return False
    return max(verdicts[-1][1].values()) >= (ENOUGH * aim if aim > LEARNED else PERFECT)


def usual_loss(output: Any, target: Any) -> Tensor:
    """Cross entropy for classes, squared error for numbers, if the shapes of output and target say which.

    Steps without a target (-100, NaN) do not count.
    """
    output = output[0] if isinstance(output, tuple) else output
    if not (isinstance(output, Tensor) and isinstance(target, Tensor)):
        raise NoTrialError(f"loss= is needed for outputs of type {type(output).__name__}")
    target = target.to(output.device)
    if target.dtype == torch.bool and target.numel() == output.numel():
        return functional.binary_cross_entropy_with_logits(output, target.to(output.dtype).view_as(output))
    if target.is_floating_point() and target.numel() == output.numel():
        there = ~target.isnan()
        return (output.reshape(target.shape)[there] - target[there].to(output.dtype)).square().mean()
    squeezed = target.squeeze(-1) if target.shape[-1:] == (1,) and target.dim() == output.dim() else target
    if not target.is_floating_point() and squeezed.shape == output.shape[:-1]:
        return functional.cross_entropy(output.flatten(0, -2), squeezed.long().flatten(), ignore_index=IGNORED)
    raise NoTrialError(
        f"outputs of shape {tuple(output.shape)} and targets of shape {tuple(target.shape)} do not say the loss; "
        "loss= does"
    )


class WithReadout(nn.Module):
    """A network and a linear readout: of its last output, or of all ``(n, time, features)``."""

    def __init__(self, network: nn.Module, given: Material, seed: int) -> None:
        super().__init__()
        answers = cast(Answers, given.answers)
        self.network, self._every_step = network, answers.every_step
        like = next(network.parameters())
        with torch.no_grad():
            features = outputs_of(network, like.new_zeros(1, 1, given.read.features)).shape[-1]
        self.readout = nn.Linear(features, answers.outputs, device=like.device, dtype=like.dtype)
        bound, generator = 1 / math.sqrt(features), torch.Generator().manual_seed(seed)
        for weights in self.readout.parameters():
            drawn = torch.rand(weights.shape, generator=generator, dtype=torch.float64)
            weights.data.copy_(bound * (2 * drawn - 1))

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """``(n, outputs)`` or ``(n, time, outputs)`` for inputs ``(n, time, features)`` and their lengths ``(n,)``."""
        u, lengths = batch
        output = outputs_of(self.network, u)
        if not self._every_step:
            output = output[torch.arange(len(u), device=u.device), lengths - 1]
        return cast(Tensor, self.readout(output))


def outputs_of(network: nn.Module, u: Tensor) -> Tensor:
    """The outputs ``(n, time, features)`` of a network for inputs ``(n, time, features)``."""
    if getattr(network, "batch_first", False):
        return cast(Tensor, network(u)[0])
    return cast(Tensor, network(u.transpose(0, 1))[0].transpose(0, 1))


def _pieces(given: Material, generator: torch.Generator) -> list[tuple[Any, Any]]:
    """Batches with their targets, in an order by chance, cut into small ones where that can be done."""
    if given.bare:
        pieces = _of_network(given)
    else:
        if given.targets is None:
            raise NoTrialError(given.why_not)
        pairs = zip(given.batches, given.targets, strict=True)
        pieces = [piece for pair in pairs for piece in _cut(*pair)]
    return [pieces[index] for index in torch.randperm(len(pieces), generator=generator).tolist()]


def _of_network(given: Material) -> list[tuple[Any, Any]]:
    if given.answers is None:
        raise NoTrialError(given.why_not)
    if not isinstance(given.model, nn.RNNBase | RNN):
        raise NoTrialError(f"a {type(given.model).__name__} is trained step by step: pass the model that calls it")
    like = next(given.model.parameters())
    u, lengths = rows_of(given.read, given.model)
    u, values = u.to(like.dtype), given.answers.values.to(u.device)
    values = values.to(like.dtype) if values.is_floating_point() else values
    rows = range(0, len(u), PIECE)
    parts = ([whole[row : row + PIECE] for whole in (u, lengths, values)] for row in rows)
    return [(((x, ends),), target) for x, ends, target in parts]


def _cut(batch: Any, target: Any) -> Iterator[tuple[Any, Any]]:
    """A batch of many rows as several, if its rows can be told from its shapes; else as it is."""
    n = len(target) if isinstance(target, Tensor) and target.dim() else 0
    starts = range(0, n, PIECE)
    if n <= PIECE or _rows(batch, n, 0, PIECE) is None:
        yield batch, target
        return
    for start in starts:
        yield _rows(batch, n, start, start + PIECE), target[start : start + PIECE]


def _rows(batch: Any, n: int, start: int, end: int) -> Any:
    """Some of n rows of a batch; None if it has anything that cannot be cut."""
    if isinstance(batch, Tensor):
        if batch.dim() and len(batch) == n:
            return batch[start:end]
        return batch[:, start:end] if batch.dim() > 1 and batch.shape[1] == n else None
    if isinstance(batch, DICTS):
        entries = _rows(list(batch.values()), n, start, end)
        return None if entries is None else dict(zip(batch, entries, strict=True))
    if isinstance(batch, PackedSequence) or not isinstance(batch, tuple | list) or not batch:
        return None
    found = [_rows(entry, n, start, end) for entry in batch]
    return None if any(entry is None for entry in found) else found


def copied(given: Material, seed: int) -> nn.Module:
    """A copy of the model, with a readout where it is a bare network."""
    try:
        return _whole(copy.deepcopy(given.model), given, seed)
    except (RuntimeError, TypeError) as error:
        raise NoTrialError(f"the model cannot be copied: {error}") from error


def _whole(model: nn.Module, given: Material, seed: int) -> nn.Module:
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


def _step(model: nn.Module, adjust: Any, piece: tuple[Any, Any], forward: Forward, loss: Loss) -> None:
    value = loss(forward(model, piece[0]), piece[1])
    adjust.zero_grad()
    value.backward()
    nn.utils.clip_grad_norm_(_trainable(model), 1.0)
    adjust.step()


def _held_out(model: nn.Module, held: list[tuple[Any, Any]], forward: Forward, loss: Loss) -> Tensor:
    """The loss of each held-out piece, ``(pieces,)`` on the CPU."""
    model.eval()
    with torch.no_grad():
        found = [loss(forward(model, batch), target) for batch, target in held]
    model.train()
    return torch.stack(found).double().cpu()


def _guessing(
    model: nn.Module, held: list[tuple[Any, Any]], others: list[tuple[Any, Any]], forward: Forward, loss: Loss
) -> Tensor | None:
    """The losses of the held-out pieces for the best output that is the same for all; None where it is not found."""
    with torch.no_grad():
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
