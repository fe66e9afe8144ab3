"""Where a network comes to rest: the zeros and the minima of its speed |f(x, u) - x|, from many states at once."""

from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.system.step import Step, at_once

# The steps of Levenberg and Marquardt: N = A'A of the derivative A of f(x) - x, and a multiple of the identity that
# grows where a step fails and shrinks where it succeeds. It begins as a share of the mean square of the entries on the
# diagonal of N, and is at least so much that N can be factorised.
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING, CHANGE = 1e-3, 1e-14, 1e8, 10.0
# With one derivative so many steps are taken, as long as each leaves less than a share of the speed.
CHORDS, GAIN = 6, 0.25
# The search of a state ends after so many steps in a row that leave more than a share of its speed.
PATIENCE, HARDLY = 4, 0.95
REST = 1e-10
"""The speed at a fixed point, for states of norm 1: rounding leaves a thousandth of it."""


class Resting(NamedTuple):
    """Where the search ended.

    Attributes:
        points: ``(n, d)``.
        speeds: ``(n,)``, how far a step leads from there.
        slopes: ``(n,)``, the length of the gradient of the speed there, 0 at a minimum.
    """

    points: Tensor
    speeds: Tensor
    slopes: Tensor

    @property
    def fixed(self) -> Tensor:
        """Which are fixed points, ``(n,)``."""
        at_rest = self.speeds <= REST * (1 + torch.linalg.vector_norm(self.points, dim=-1))
        return at_rest & self.speeds.isfinite()


def come_to_rest(step: Step, x: Tensor, u: Tensor, iterations: int) -> Resting:
    """Follow each of the states ``x (n, d)`` downhill in speed, to a zero or to a minimum.

    Args:
        step: the network.
        x: where to begin.
        u: the constant input, ``(1, features)``.
        iterations: the most derivatives to compute for a state.
    """
    parts = [_descend(step, some, u, iterations) for some in x.split(at_once(x))]
    return Resting(*(torch.cat(values) for values in zip(*parts, strict=True)))


def _descend(step: Step, x: Tensor, u: Tensor, iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    x = x.clone()
    residual = step(x, u) - x
    speed = torch.linalg.vector_norm(residual, dim=-1)
    damping, stalled, slope = torch.full_like(speed, FIRST_DAMPING), torch.zeros_like(speed), torch.ones_like(speed)
    left = torch.arange(len(x), device=x.device)
    for _ in range(iterations):
        norm = 1 + torch.linalg.vector_norm(x[left], dim=-1)
        going_on = (speed[left] > REST / 100 * norm) & (stalled[left] < PATIENCE) & (damping[left] < MOST_DAMPING)
        left = left[going_on & speed[left].isfinite()]
        if not len(left):
            break
        derivative = step.jacobians(x[left], u)
        derivative.diagonal(dim1=-2, dim2=-1).sub_(1)
        normal = derivative.mT @ derivative
        diagonal = normal.diagonal(dim1=-2, dim2=-1)
        size = diagonal.mean(dim=-1)
        gradient = torch.linalg.vector_norm((derivative.mT @ residual[left].unsqueeze(-1)).squeeze(-1), dim=-1)
        slope[left] = gradient / speed[left]
        diagonal.add_((damping[left] * size).clamp_min(1e-300).unsqueeze(-1))
        factor, failed = torch.linalg.cholesky_ex(normal)
        before, better = speed[left].clone(), torch.zeros_like(left, dtype=torch.bool)
        moving = (failed == 0).nonzero().squeeze(-1)
        for chord in range(CHORDS):
            if not len(moving):
                break
            here = left[moving]
            uphill = derivative[moving].mT @ residual[here].unsqueeze(-1)
            trial = x[here] - torch.cholesky_solve(uphill, factor[moving]).squeeze(-1)
            after = step(trial, u) - trial
            found = torch.linalg.vector_norm(after, dim=-1)
            good = found < (speed[here] if chord == 0 else GAIN * speed[here])
            here, moving = here[good], moving[good]
            x[here], residual[here], speed[here] = trial[good], after[good], found[good]
            better[moving] = True
            moving = moving[found[good] > 0]
        change = torch.where(better, 1 / CHANGE, CHANGE)
        damping[left] = (damping[left] * change).clamp_min(LEAST_DAMPING)
        hardly = speed[left] > HARDLY * before
        stalled[left] = torch.where(hardly, stalled[left] + 1, 0)
    return x, speed, slope
