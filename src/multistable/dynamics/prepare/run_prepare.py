"""``ms.prepare``: one way of several to prepare a network for training."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from multistable.dynamics.prepare.methods import find
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Generators
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import all_or_none


@dataclass(frozen=True)
class Preparation:
    """The result of :func:`prepare`.

    Attributes:
        method: how the network was prepared.
        seconds: how long it took.
        changed: the names of the parameters whose values are not those of before.
        history: of ``"warmup"`` and ``"paper"`` the :class:`WarmupHistory`, of ``"flossing"`` the exponents at each of
            its steps (``history.exponents``), of several parts a dict of these by name; None for other methods.
    """

    method: str
    seconds: float = field(compare=False, repr=False)
    changed: tuple[str, ...]
    history: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        weights = ", ".join(self.changed) or "nothing"
        told = "" if self.history is None else f"\n{self.history}"
        return f"{self.method}: changed {weights} in {self.seconds:.3g} s{told}"


@interrupted_once
def prepare(
    rnn: nn.Module,
    sequences: Any,
    *,
    method: str = "warmup",
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
    **options: Any,
) -> Preparation:
    """Prepare a network for training, in place, by one of several methods.

    Only parameters of recurrent layers change, and of double layers only those of the half that :func:`warmup` changes.
    If an exception stops it, the parameters are as they were before.

    The methods, and what options they take:

    - ``"warmup"``, the default of :func:`warmup`, and ``"paper"``, Algorithm 3: those of :func:`warmup`;
    - ``"chrono"`` draws time scales up to ``t_max``, by default the longest sequence's (Tallec and Ollivier, 2018);
    - ``"uniform-gates"`` draws which share of its past each of d units keeps from U(1/d, 1 - 1/d) (Gu et al., 2020);
    - ``"orthogonal"`` draws an orthogonal recurrent matrix for each gate;
    - ``"identity"`` sets W_h = I and b = 0 (Le et al., 2015);
    - ``"flossing"`` pushes the first Lyapunov exponents to zero (Engelken, 2023): ``exponents`` (16) of them, in
      ``steps`` (100) gradient steps of rate ``lr`` (0.01), each on ``batch_size`` (16) sequences of which at most
      ``longest`` (100) time steps are followed;
    - ``"none"`` changes nothing.

    Args:
        rnn: the network, or a model with recurrent parts inside, see :func:`measure`. A method that does not fit one of
            its cells is refused; what it needs is data of the cell (``Cell.keep_gate``, ``Cell.recurrent_matrices``).
        sequences: the input sequences, or the batches that the model is run on, see :func:`measure`.
        method: how.
        generator: where weights, batches and inputs are drawn from; see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.
        options: of the method.
    """
    run = find(method, options)
    if not isinstance(rnn, nn.Module):
        raise TypeError(f"rnn must be a torch.nn.Module, got {type(rnn).__name__}")
    weights = dict(rnn.named_parameters())
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    began = time.perf_counter()
    with all_or_none([rnn]):
        history = run(rnn, sequences, generator=generator, part=part, forward=forward, **options)
    seconds = time.perf_counter() - began
    changed = tuple(name for name, value in before.items() if not torch.equal(value, weights[name].detach()))
    return Preparation(method, seconds, changed, history)
