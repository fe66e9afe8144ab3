"""The stabilisation period: M steps under a constant input, f^M(x, u)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import States, flat

# The steps between two looks at the states: few at first, so that the end is seen soon, and more after the first EARLY
# steps, since looking takes time. Both are multiples of 60, which has many divisors: after so many steps a state on a
# short cycle is where it was.
EARLY_WINDOW, LATE_WINDOW, EARLY = 60, 480, 3000


OnSteps = Callable[[int, int, int], None]
"""Called with how many states are advanced, the steps done, and those to do."""


def unseen(states: int, done: int, steps: int) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Stabilised:
    """States after the stabilisation period.

    Attributes:
        layers: the state of each layer.
        steps: how many steps were computed; fewer than M if all states were seen to repeat themselves.
        periodic: ``(..., n)``, whether a state was seen to repeat itself to the last bit, which it then does for ever.
    """

    layers: States
    steps: int
    periodic: Tensor

    @property
    def states(self) -> Tensor:
        """``(..., n, d)``, the whole state of all layers."""
        return flat(self.layers)


@torch.no_grad()
def stabilise(system: System, states: States, u: Tensor, steps: int, on_steps: OnSteps = unseen) -> Stabilised:
    """Advance all states by ``steps`` steps under a constant input, computing only as many as decide the result.

    A step is a function of the state alone. So a state that comes back to an earlier value, to the last bit, repeats
    what came between for ever. Once every state has been seen to come back, it is known exactly where each will be
    after all the steps, and the early end changes no bit of the result. It would not do to wait until states no longer
    move, since rounding keeps them jittering on short cycles. A state that still drifts, however slowly, never ends the
    loop.

    Args:
        system: the network over its present weights.
        states: the states to start from.
        u: the constant input, ``(..., n, features)`` or ``(..., 1, features)``.
        steps: M, the stabilisation period.
        on_steps: called as the states advance.
    """
    start = flat(states)
    u = u.expand(*start.shape[:-1], u.shape[-1])
    snapshot, since, done = start, 0, 0
    periods = torch.zeros(start.shape[:-1], dtype=torch.long, device=start.device)
    while done < steps:
        on_steps(start[..., 0].numel(), done, steps)
        window = min(EARLY_WINDOW if done < EARLY else LATE_WINDOW, steps - done)
        states = system.only_last(u.expand(window, *u.shape), states)
        done += window
        present = flat(states)
        same = (present == snapshot) | (present.isnan() & snapshot.isnan())  # What is no number stays none.
        back = same.all(dim=-1) & (periods == 0)
        periods = torch.where(back, done - since, periods)
        if done < steps and bool((periods > 0).all()):
            # How many more steps lead each state to its end; a whole period if it is there now.
            ahead = torch.remainder(steps - done - 1, periods) + 1
            most = int(ahead.max())
            states = system.states_at(u.expand(most, *u.shape), ahead.cpu(), states)
            return Stabilised(states, done + most, periods > 0)
        if done >= 2 * since:
            # Snapshots at doubling distances (Brent): a cycle of any length is found once it fits between two of them.
            snapshot, since = present, done
    return Stabilised(states, done, periods > 0)
