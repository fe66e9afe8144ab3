"""Auxiliary losses (appendix H, Trinh et al. 2018): a decoder reconstructs stretches of the input from the states."""

from collections.abc import Sequence

import torch
from torch import Tensor

from multistable.networks import RNN
from multistable.networks.layers import LayerState
from multistable.training.config import RunConfig, check_stretches
from multistable.training.model import Model
from multistable.training.seeds import generator


def decoder_of(config: RunConfig) -> Model:
    """The decoder of a run: a network as large as the run's own, with other weights, whose outputs are inputs."""
    return Model.of(config, outputs=config.task.input_size, purpose="decoder")


def auxiliary_loss(
    inputs: Tensor,
    states: Sequence[LayerState],
    decoder: Model,
    ends: Tensor,
    stretch: int,
    *,
    ahead: bool = False,
    teacher_forcing: bool = True,
) -> Tensor:
    """The mean squared error of a decoder that reconstructs stretches of the input.

    It starts in the network's state after time step ``e`` and gives ``u_{e-stretch+1}, ..., u_e`` in this order. With
    ``ahead`` it predicts the next inputs ``u_{e+1}, ..., u_{e+stretch}``. All stretches are decoded in one pass, as
    further rows of the batch.

    Args:
        inputs: what the network read, ``(time, ..., n, input_size)``.
        states: those of all its layers after each step, as ``RNN.advance`` returns them; gradients flow through them.
        decoder: has the layers of the network; its outputs have ``input_size`` values.
        ends: the time step e of each decoding, counted from 1: ``(..., k, n)`` for k stretches of each sequence.
        stretch: time steps of a stretch.
        ahead: predict the next stretch instead of reconstructing the last one.
        teacher_forcing: the decoder reads the true value of the step before, and zero at the first step; otherwise it
            reads zero at every step.

    Returns:
        The mean over all values, ``(...)``.
    """
    targets = stretches_of(inputs, ends if ahead else ends - stretch, stretch)
    first = torch.zeros_like(targets[:1])
    given = torch.cat([first, targets[:-1]]) if teacher_forcing else first.expand_as(targets)
    decoded = decoder(given, state=states_at(decoder.rnn, states, ends))
    return (decoded - targets).square().mean((0, -2, -1))


def states_at(rnn: RNN, states: Sequence[LayerState], ends: Tensor) -> object:
    """The states after ``ends (..., k, n)`` time steps, as rows ``(..., k n, units)`` of a state that ``rnn`` takes."""
    index = (ends - 1).movedim(-2, 0).unsqueeze(-1)

    def at(field: Tensor) -> Tensor:
        chosen = field.gather(0, index.expand(*index.shape[:-1], field.shape[-1]))
        return chosen.movedim(0, -3).flatten(-3, -2)

    return rnn.pack_state([tuple(cell._make(at(field) for field in cell) for cell in layer) for layer in states])


def stretches_of(inputs: Tensor, starts: Tensor, stretch: int) -> Tensor:
    """The ``stretch`` time steps after the first ``starts (..., k, n)``: ``(stretch, ..., k n, input_size)``."""
    steps = torch.arange(stretch, device=starts.device).reshape(-1, *[1] * starts.dim())
    index = (starts + steps).unsqueeze(-1)
    rows = inputs.unsqueeze(-3).expand(len(inputs), *index.shape[1:-1], inputs.shape[-1])
    return rows.gather(0, index.expand(*index.shape[:-1], inputs.shape[-1])).flatten(-3, -2)


def ends_of_cuts(lengths: Tensor, stretch: int, stretches: int, *, ahead: bool = False) -> Tensor:
    """The ends of stretches that follow one another from the beginning of sequences of ``lengths (..., n)``.

    Returns:
        ``(..., stretches, n)``: ``stretch``, twice that, and so on.
    """
    check_stretches(stretch, stretches, int(lengths.min()), ahead=ahead)
    ends = stretch * torch.arange(1, stretches + 1, device=lengths.device)
    return ends.unsqueeze(-1).expand(*lengths.shape[:-1], stretches, lengths.shape[-1])


class Auxiliary:
    """The decoders of runs that train together, and the ends of their stretches.

    Args:
        configs: the runs, which differ in their seed and learning rate alone.
        decoders: one for each run.
    """

    def __init__(self, configs: Sequence[RunConfig], decoders: Sequence[Model]) -> None:
        self.configs = list(configs)
        self.decoder = Model.stacked(decoders)
        self.weight = configs[0].auxiliary_weight

    def loss(self, inputs: Tensor, states: Sequence[LayerState], ends: Tensor) -> Tensor:
        """The loss of each run, ``(R,)``. Arguments are those of :func:`auxiliary_loss`, with R before k and n."""
        config = self.configs[0]
        return auxiliary_loss(
            inputs,
            states,
            self.decoder,
            ends,
            config.stretch,
            ahead=config.looks_ahead,
            teacher_forcing=config.teacher_forcing,
        )

    def ends(self, n: int, device: torch.device, *purpose: str | int) -> Tensor:
        """The ends of the stretches of ``n`` sequences of each run, ``(R, k, n)``; ``purpose`` is for random ones."""
        config = self.configs[0]
        length, stretch, stretches = config.task.length, config.stretch, config.stretches
        if config.anchors == "cut":
            lengths = torch.full((len(self.configs), n), length, device=device)
            return ends_of_cuts(lengths, stretch, stretches, ahead=config.looks_ahead)
        low, high = stretch, length - stretch * config.looks_ahead
        drawn = [
            torch.randint(low, high + 1, (stretches, n), generator=generator(run.seed, "anchors", *purpose))
            for run in self.configs
        ]
        return torch.stack(drawn).to(device)
