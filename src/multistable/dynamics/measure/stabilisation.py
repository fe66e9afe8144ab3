"""The stabilisation period: M steps under a constant input, f^M(x, u)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from multistable.dynamics.system.system import States, System, flat

# The steps between two looks at the states: at first few, so that the end comes soon, and once it has not come, more,
# since looking takes time too. Multiples of 60, which has many divisors: a state on a short cycle is back after any.
EARLY_WINDOW, LATE_WINDOW, EARLY = 60, 480, 3000


@dataclass(frozen=True)
class Stabilised:
    """States after the stabilisation period.

    Attributes:
        layers: the state of each layer.
        steps: how many steps were computed; fewer than asked for where all states were seen to repeat themselves.
        periodic: ``(..., n)``, whether a state was seen to repeat itself to the last bit: it will do so for ever.
    """

    layers: States
    steps: int
    periodic: Tensor

    @property
    def states(self) -> Tensor:
        """``(..., n, d)``, the whole state of all layers."""
        return flat(self.layers)


@torch.no_grad()
def stabilise(system: System, states: States, u: Tensor, steps: int) -> Stabilised:
    """Advance all states by ``steps`` steps under a constant input, computing only as many as decide the result.

    A state that comes back to an earlier value to the last bit repeats what came between for ever, since a step
    is a function of the state alone. So once every state has been seen to come back, where each is after all
    the steps is known exactly: the early end changes no bit of the result. Waiting for states that no longer move
    would not do, since rounding keeps them jittering, on short cycles; and a state that still drifts, however
    slowly, never ends the loop.

    Args:
        states: the states to start from.
        u: the constant input, ``(..., n, features)`` or ``(..., 1, features)``.
        steps: M, the stabilisation period.
    """
    system = system.frozen()
    start = flat(states)
    u = u.expand(*start.shape[:-1], u.shape[-1])
    snapshot, since, done = start, 0, 0
    periods = torch.zeros(start.shape[:-1], dtype=torch.long, device=start.device)
    while done < steps:
        window = min(EARLY_WINDOW if done < EARLY else LATE_WINDOW, steps - done)
        states = system.last(u.expand(window, *u.shape), states)
        done += window
        present = flat(states)
        back = (present == snapshot).all(dim=-1) & (periods == 0)
        periods = torch.where(back, done - since, periods)
        if done < steps and bool((periods > 0).all()):
            # Where in its period each state will be at the end; a whole period where it is back at the present.
            ahead = torch.remainder(steps - done - 1, periods) + 1
            last = int(ahead.max())
            states = system.states_at(u.expand(last, *u.shape), ahead.cpu(), states)
            return Stabilised(states, done + last, periods > 0)
        if done >= 2 * since:
            # Snapshots at doubling distances (Brent): a cycle of any length is found once it fits between two.
            snapshot, since = present, done
    return Stabilised(states, done, periods > 0)
