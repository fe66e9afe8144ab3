"""The scores that tasks share. Outputs ``(answers, ..., n, size)`` are those of the time steps with an answer."""

from torch import Tensor
from torch.nn import functional


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over answers and batch ``(...)``; ``targets (..., n, answers * size)``."""
    given = outputs.movedim(0, -2).flatten(-2)
    return (given - targets).square().mean((-2, -1))


def log_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Minus the log probability of the right classes, mean over answers and batch ``(...)``.

    ``targets (..., n, answers)`` are classes from 0 on, probabilities the softmax of the outputs.
    """
    scores = functional.log_softmax(outputs, -1).movedim(0, -2)
    classes = targets.expand(scores.shape[:-1]).unsqueeze(-1)
    return -scores.gather(-1, classes).squeeze(-1).mean((-2, -1))


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share ``(...)`` of answers whose class has the highest output, for the shapes of :func:`log_loss`."""
    return (outputs.argmax(-1).movedim(0, -1) == targets).to(outputs.dtype).mean((-2, -1))
