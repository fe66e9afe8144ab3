"""The VAA after a long stabilisation, foreseen from a short one wherever it is clear.

States at rest are where they will be after 10,000 steps, and in a network that is firmly multistable most states are
at rest after a few hundred. So only those are advanced further whose fate is open: states that are near each other for
the way that they may still go.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from multistable.dynamics.measure.vaa_and_vaa_star import distances
from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import States, flat, map_states, rows_of

# States are looked at after so many steps, and then each time that their number has doubled.
FIRST_LOOK = 60
# The inputs of a layer above another are in memory for so many steps.
WINDOW = 120
# A pair stays apart if enough of what tells its states apart is at rest, at two looks in a row. In each unit they may
# come together in all the steps left, at so many times the mean speed since the last look at which one moves for the
# other; of their distance has to be left more than so many times eps. States that come to rest were faster before.
#
# Distances are of saturated states, tanh(x), as in VAA*: a c of an LSTM that goes on growing changes nothing any more.
SAFETY, LEFT = 2.0, 100.0
# So many numbers are compared at once.
AT_ONCE = 4_000_000


@dataclass
class Foresight:
    """The fates of pairs of states, each in its own group, under a constant input.

    Args:
        members: R, or nothing for a single network: the dimensions ``...``.
        groups: how many groups there are, and
        states: how many states each has; n of the system's states is their product.
        horizon: M of the measure.
        eps: the tolerance of VAA.
        deadline: the ``time.monotonic()`` at which to stop, and tell the VAA as it is then.
        on_steps: called now and then with how many states are followed, the steps done, and those to do.
    """

    members: tuple[int, ...]
    groups: int
    states: int
    horizon: int
    eps: float
    deadline: float = math.inf
    on_steps: Callable[[int, int, int], None] = lambda states, done, steps: None
    vaa: Tensor = field(init=False)
    """``(..., groups)``, of all pairs as they are now, on the CPU; 0 where states diverge."""
    after: int = field(init=False)
    """The steps of which the VAA is known: ``horizon``, but fewer if the time was up."""

    @torch.no_grad()
    def run(self, system: System, start: States, u: Tensor, hopeless: Callable[[Tensor], Tensor]) -> Tensor:
        """The VAA of each group after ``horizon`` steps.

        Args:
            system: the networks over their present weights.
            start: states ``(..., n, d)``.
            u: the input of each state, ``(..., n, features)``.
            hopeless: whether a network need not be followed any further ``(...)``, by the ``vaa`` so far. States come
                together as time goes on, seldom apart.

        Returns:
            ``(..., groups)`` on the CPU; of a hopeless network what it was when it was given up.
        """
        x = flat(start)
        shape = (*self.members, self.groups, self.states)
        apart = torch.zeros(*shape, self.states, dtype=torch.bool, device=x.device)
        at_rest = torch.zeros_like(apart)
        same = torch.eye(self.states, dtype=torch.bool, device=x.device).expand_as(apart).clone()
        self.vaa = torch.ones(shape[:-1], dtype=torch.float64, device="cpu")
        given_up = torch.zeros(self.members, dtype=torch.bool, device="cpu")
        # The states that are followed, of each network as many as of the one with the most.
        rows = torch.arange(x.shape[-2], device=x.device).expand(x.shape[:-1])
        before, gap, done = _saturated(x), torch.full_like(apart, torch.inf, dtype=torch.float64), 0
        states, now = start, x.clone()
        while True:
            steps = min(max(FIRST_LOOK, done), self.horizon - done)
            for first in range(0, steps, WINDOW):
                self.on_steps(rows.shape[-1], done + first, self.horizon)
                window = min(WINDOW, steps - first)
                states = system.only_last(u.expand(window, *u.shape), states)
                if time.monotonic() > self.deadline:
                    steps = first + window
                    break
            done += steps
            after = flat(states)
            moved = _put(torch.zeros_like(now, dtype=torch.float64), rows, (_saturated(after) - before) / steps)
            now = _put(now, rows, after)
            here = now.double().unflatten(-2, shape[-2:])
            finite = here.isfinite().all(dim=-1)
            # A margin for the rounding of the states, as in a VAA.
            margin = 1 + 4 * torch.finfo(x.dtype).eps
            d = distances(here.nan_to_num())
            near = d <= self.eps * margin
            self._judge(torch.where(apart, False, same | near), finite, given_up)
            self.after = done
            if done == self.horizon or time.monotonic() > self.deadline:
                return self.vaa
            if done > FIRST_LOOK:
                way = SAFETY * (self.horizon - done) * moved.unflatten(-2, shape[-2:])
                settled = self._stay_apart(_saturated(here), way, ~(apart | same))
                apart, at_rest = apart | settled & at_rest, settled
                same = same | near & (d <= gap) & ~apart
            gap = d
            given_up = given_up | hopeless(self.vaa)
            open_ = ~(apart | same).all(dim=-1) & ~given_up.to(x.device)[..., None, None]
            open_ = open_.flatten(-2)
            most = int(open_.sum(dim=-1).max())
            if most == 0:
                self.after = self.horizon
                return self.vaa
            order = open_.gather(-1, rows).to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :most]
            rows = rows.gather(-1, order)
            states = map_states(lambda f, order=order: rows_of(f, order), states)
            before, u = rows_of(_saturated(after), order), rows_of(u, order)

    def _stay_apart(self, x: Tensor, way: Tensor, open_: Tensor) -> Tensor:
        """Which of the pairs that are ``open_ (..., groups, n, n)`` stay apart.

        Args:
            x: states ``(..., groups, n, d)``.
            way: how far each may still go, in the same form.
            open_: the pairs asked about.
        """
        found = torch.zeros_like(open_)
        asked = open_.any(dim=-1).any(dim=-1)
        for chosen in asked.nonzero().split(max(1, AT_ONCE // (x.shape[-2] ** 2 * x.shape[-1]))):
            where = tuple(chosen.unbind(-1))
            near, far = (y[where] for y in (x, way))
            left = (near.unsqueeze(-2) - near.unsqueeze(-3)).abs() - (far.unsqueeze(-2) - far.unsqueeze(-3)).abs()
            found[where] = left.clamp(min=0).square().sum(dim=-1).sqrt() > LEFT * self.eps
        return found & open_

    def _judge(self, same: Tensor, finite: Tensor, given_up: Tensor) -> None:
        """Set ``vaa``, but that of networks that were given up."""
        value = (1 / same.sum(dim=-1).clamp(min=1).double()).sum(dim=-1).round(decimals=12) / self.states
        value = torch.where(finite.all(dim=-1), value, 0.0).cpu()
        self.vaa = torch.where(given_up.unsqueeze(-1), self.vaa, value)


def _put(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """``x (..., n, d)`` with ``values`` in the rows ``(..., k)``."""
    return x.scatter(-2, index.unsqueeze(-1).expand_as(values), values)


def _saturated(x: Tensor) -> Tensor:
    return x.double().nan_to_num().tanh()
