"""Recurrent networks with a policy and a value, one for each of R agents, and episodes played with them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multistable.networks import Ensemble
from multistable.rl.play import Chance, Player
from multistable.rl.pomdp import POMDP
from multistable.training.model import Readout

# The initial weights of the policy's readout are so many times PyTorch's.
POLICY_SCALE = 0.01


class ActorCritic(nn.Module):
    """Policies and values of R agents: linear readouts of the last layer's output.

    Args:
        rnn: an ``ms.Ensemble`` of R networks, or the network of a single agent: any module that is called as
            ``(input, state) -> (output, state)``.
        readouts: of each agent, with an output for each action and one for the value.
    """

    def __init__(self, rnn: nn.Module, readouts: Sequence[Readout]) -> None:
        super().__init__()
        self.rnn = rnn
        self.readout = Readout.stacked(readouts).to(next(rnn.parameters()).device)
        with torch.no_grad():
            self.readout.weight[..., :-1] *= POLICY_SCALE
            self.readout.bias[..., :-1] *= POLICY_SCALE

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits ``(R, n, actions)`` after one more input ``x (R, n, features)``, and the new state."""
        output, state = self._advance(x.unsqueeze(0), state)
        return self.readout(output[0])[..., :-1], state

    def sequences(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of probabilities ``(time, R, n, actions)`` and values ``(time, R, n)``."""
        read = self.readout(self._advance(inputs, None)[0])
        return read[..., :-1].log_softmax(dim=-1), read[..., -1]

    def _advance(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The output ``(time, R, n, hidden)``, and the state at the end."""
        if isinstance(self.rnn, Ensemble):
            return self.rnn(inputs, state)
        x = inputs.squeeze(1)
        if getattr(self.rnn, "batch_first", False):
            output, state = self.rnn(x.transpose(0, 1), state)
            return output.transpose(0, 1).unsqueeze(1), state
        output, state = self.rnn(x, state)
        return output.unsqueeze(1), state


class Sampler(Player):
    """Plays with actions drawn from the policy."""

    def __init__(self, network: ActorCritic, agents: int, pomdp: POMDP, copies: int, **inputs: bool) -> None:
        self._draws = torch.zeros(pomdp.horizon, agents, copies, device=pomdp.device, dtype=pomdp.dtype)
        super().__init__(network, agents, pomdp, copies, **inputs)

    def sample(self, starts: Tensor, draws: Tensor) -> None:
        """Play; ``starts (R, n)`` decide the initial states, and ``draws (H, R, n)`` from U(0, 1) the actions."""
        self._draws.copy_(draws)
        self.play(Chance(starts, self._explores, self._exploration))  # which keep what they are: no exploration

    def _choose(self, t: Tensor, values: Tensor) -> Tensor:
        below = values.softmax(dim=-1).cumsum(dim=-1)[..., :-1]
        return (self._draws[t][0].unsqueeze(-1) >= below).sum(dim=-1)
