"""A recurrent network and the linear readout of its output."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multistable.networks import RNN, Ensemble
from multistable.training.seeds import generator
from multistable.training.settings import Config


class Readout(nn.Module):
    """o_t = h_t W + b, with PyTorch's initial weights of a linear layer.

    ``weight`` is ``(..., hidden, out)`` and ``bias`` is ``(..., out)``; ``...`` is empty for one network and R for an
    ensemble.
    """

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(
        self,
        hidden_size: int,
        output_size: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden_size)
        shapes = (hidden_size, output_size), (output_size,)
        weight, bias = (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1 for shape in shapes)
        self.weight = nn.Parameter((bound * weight).to(dtype))
        self.bias = nn.Parameter((bound * bias).to(dtype))

    def forward(self, h: Tensor) -> Tensor:
        """``(time, ..., n, hidden)`` to ``(time, ..., n, out)``."""
        return h @ self.weight + self.bias.unsqueeze(-2)

    @classmethod
    def stacked(cls, readouts: Sequence["Readout"]) -> "Readout":
        """Several readouts as one, their weights stacked."""
        together = copy.deepcopy(readouts[0])
        together.weight = nn.Parameter(torch.stack([readout.weight.detach() for readout in readouts]))
        together.bias = nn.Parameter(torch.stack([readout.bias.detach() for readout in readouts]))
        return together


class Model(nn.Module):
    """What a run trains, a network ``rnn`` and its ``readout``; or those of several runs with stacked weights."""

    def __init__(self, rnn: RNN, readout: Readout) -> None:
        super().__init__()
        self.rnn = rnn
        self.readout = readout

    def forward(self, u: Tensor, answers: int | None = None, state: Any = None) -> Tensor:
        """The outputs ``(time, ..., n, out)`` over inputs ``(time, ..., n, in)``, or the last ``answers`` of them.

        ``state`` is the state before the first step, as ``RNN.forward`` takes it; zero when not given.
        """
        h, _ = self.rnn.advance(u, state)
        return self.readout(h if answers is None else h[-answers:])

    @classmethod
    def stacked(cls, models: Sequence["Model"]) -> "Model":
        """The models of several runs as one, their weights stacked."""
        rnn = Ensemble([model.rnn for model in models]).network
        return cls(rnn, Readout.stacked([model.readout for model in models]))

    @classmethod
    def of(cls, config: Config, outputs: int | None = None, purpose: str = "weights") -> "Model":
        """The network of a run with its initial weights, before any warmup.

        Args:
            config: the run.
            outputs: how many outputs the readout has; by default as many as the task.
            purpose: names the random numbers that the weights are drawn from.
        """
        dtype = getattr(torch, config.dtype)
        draw = generator(config.seed, purpose)
        rnn = RNN(
            config.cell,
            config.input_size,
            config.hidden_size,
            config.num_layers,
            double=config.kind.double,
            generator=draw,
            dtype=dtype,
            **config.cell_options,
        )
        outputs = config.output_size if outputs is None else outputs
        return cls(rnn, Readout(config.hidden_size, outputs, generator=draw, dtype=dtype))
