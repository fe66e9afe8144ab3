"""What copies are trained with: small batches and their targets, a loss, and a readout for a bare network."""

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from multistable.dynamics.advise.material import IGNORED, Answers, Material
from multistable.dynamics.system.batches import DICTS
from multistable.networks import RNN

PIECE = 32
"""The sequences of a training step, where the user's batches can be cut into so many."""

Loss = Callable[[Any, Any], Tensor]
Piece = tuple[Any, Any]


class NoTrialError(Exception):
    """No trial is possible; the message says why."""


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
            drawn = torch.rand(weights.shape, generator=generator, dtype=torch.float64, device="cpu")
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


def pieces_of(given: Material, generator: torch.Generator) -> list[Piece]:
    """Batches with their targets, in an order by chance, cut into small ones where that can be done."""
    if given.bare:
        pieces = _of_network(given, generator)
    elif given.targets is None:
        raise NoTrialError(given.why_not)
    else:
        pairs = zip(given.batches, given.targets, strict=True)
        pieces = [piece for pair in pairs for piece in cut(*pair, given.rows_dim, generator)]
    return [pieces[index] for index in _order(len(pieces), generator)]


def _order(n: int, generator: torch.Generator) -> list[int]:
    return torch.randperm(n, generator=generator, device="cpu").tolist()


def _of_network(given: Material, generator: torch.Generator) -> list[Piece]:
    if given.answers is None:
        raise NoTrialError(given.why_not)
    if not isinstance(given.model, nn.RNNBase | RNN):
        raise NoTrialError(f"a {type(given.model).__name__} is trained step by step: pass the model that calls it")
    u, lengths, answers = given.rows()
    like = next(given.model.parameters())
    values = answers.values.to(u.device, like.dtype if answers.values.is_floating_point() else None)
    order = torch.tensor(_order(len(u), generator), device=u.device).split(PIECE)
    return [(((u[rows].to(like.dtype), lengths[rows]),), values[rows]) for rows in order]


def cut(batch: Any, target: Any, rows_dim: int | None, generator: torch.Generator) -> Iterator[Piece]:
    """A batch of many rows as several, with its rows in an order by chance; as it is if it cannot be cut.

    Args:
        batch: a batch.
        target: its targets.
        rows_dim: where these have their rows; None where that is not known.
        generator: what the order is drawn from.
    """
    n = 0 if rows_dim is None else target.shape[rows_dim]
    order = torch.tensor(_order(n, generator), device="cpu", dtype=torch.long).split(PIECE)
    if n <= PIECE or _rows(batch, n, rows_dim, order[0]) is None:
        yield batch, target
        return
    for rows in order:
        yield _rows(batch, n, rows_dim, rows), target.index_select(rows_dim, rows.to(target.device))


def _rows(batch: Any, n: int, likely: int | None, rows: Tensor) -> Any:
    """Some of n rows of a batch, by their numbers; None if it has anything that cannot be cut.

    Args:
        batch: the batch, or a part of it.
        n: how many rows it has.
        likely: in which of the first two dimensions of a tensor they are, if both fit.
        rows: the numbers.
    """
    if isinstance(batch, Tensor):
        dims = [dim for dim in ((1, 0) if likely else (0, 1)) if batch.dim() > dim and batch.shape[dim] == n]
        return batch.index_select(dims[0], rows.to(batch.device)) if dims else None
    if isinstance(batch, DICTS):
        entries = _rows(list(batch.values()), n, likely, rows)
        return None if entries is None else dict(zip(batch, entries, strict=True))
    if isinstance(batch, PackedSequence) or not isinstance(batch, tuple | list) or not batch:
        return None
    found = [_rows(entry, n, likely, rows) for entry in batch]
    return None if any(entry is None for entry in found) else found
