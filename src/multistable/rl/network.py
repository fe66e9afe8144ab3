"""Recurrent Q-networks, one for each of R agents, as one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from multistable.dynamics.system.whole_states import at_time
from multistable.networks import RNN, Ensemble
from multistable.training.model import Readout


class Stage(NamedTuple):
    """Time steps ``start`` to ``end``, which only the first ``rows`` histories of each agent reach."""

    start: int
    end: int
    rows: int


def stages_of(lengths: Tensor, count: int) -> list[Stage]:
    """Divide the time of histories of ``lengths (R, n)``, longest first, into ``count`` stages of equal length."""
    longest = int(lengths.max())
    width = -(-longest // count)
    return [
        Stage(start, min(start + width, longest), int((lengths > start).sum(dim=-1).max()))
        for start in range(0, longest, width)
    ]


class QNetwork(nn.Module):
    """Q_theta(eta, a) for all actions: y_t = g(h_t), a linear readout of the last layer's output.

    Args:
        members: the recurrent part of each agent; copied, not changed.
        readouts: the linear part of each.
    """

    def __init__(self, members: Sequence[RNN], readouts: Sequence[Readout]) -> None:
        super().__init__()
        self.rnn = Ensemble(members)
        self.readout = Readout.stacked(readouts).to(next(self.rnn.parameters()).device)

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Values ``(R, n, actions)`` after one more input ``x (R, n, features)``, and the new state."""
        output, state = self.rnn(x.unsqueeze(0), state)
        return self.readout(output[0]), state

    def all_values(self, inputs: Tensor) -> Tensor:
        """Values ``(time, R, n, actions)`` of every prefix of ``inputs (time, R, n, features)``."""
        return self.readout(self.rnn.network.advance(inputs)[0])

    def values(self, inputs: Tensor, rows: Tensor, times: Tensor, stages: Sequence[Stage] = ()) -> Tensor:
        """Values ``(R, B, actions)`` of histories, all in one pass.

        Args:
            inputs: ``(time, R, n, features)``.
            rows: the number of the sequence, of n, that each history is a prefix of, ``(R, B)``.
            times: the last time step of each history, ``(R, B)``; later inputs have no influence.
            stages: the rows to advance in each stretch of time; when not given, all rows over all time steps.
        """
        network = self.rnn.network
        found = inputs.new_zeros(*times.shape, network.hidden_size)
        state: Any = None
        for start, end, n in stages or [Stage(0, len(inputs), inputs.shape[2])]:
            state = None if state is None else _map(state, lambda field, n=n: field[:, :, :n])
            output, states = network.advance(inputs[start:end, :, :n], state)
            state = network.pack_state(at_time(states, -1))
            here = (times >= start) & (times < end)
            index = torch.where(here, (times - start) * n + rows, 0).unsqueeze(-1).expand_as(found)
            reached = output.movedim(0, 1).flatten(1, 2).gather(1, index)
            found = torch.where(here.unsqueeze(-1), reached, found)
        return self.readout(found)

    @torch.no_grad()
    def replace(self, index: int, member: RNN) -> None:
        """Give an agent the recurrent weights of ``member``."""
        for name, parameter in member.named_parameters():
            self.rnn.network.get_parameter(name)[index].copy_(parameter)


@torch.no_grad()
def initial_state(network: nn.Module, agents: int, n: int, features: int) -> tuple[Tensor, ...]:
    """Zero states of n copies of each of R agents; the caller may overwrite them in place.

    Args:
        network: called as ``network(x, state) -> (values, state)`` with inputs ``(R, n, features)``.
    """
    _, state = network(next(network.parameters()).new_zeros(agents, n, features), None)
    return tuple(torch.zeros_like(field) for field in fields_of(state))


def fields_of(state: Any) -> tuple[Tensor, ...]:
    """The tensors of a network's state: h, or h and c."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def _map(state: Any, change: Any) -> Any:
    return change(state) if isinstance(state, Tensor) else tuple(change(field) for field in state)
