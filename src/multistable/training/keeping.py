"""``ms.Keep`` for networks that train together, beside gradient steps that may be recorded."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.warmup import Keep
from multistable.networks import Ensemble
from multistable.training.seeds import generator


class Keeping:
    """The term of R runs. A look cannot be recorded: it comes before a step, which adds the gradient that it left.

    Args:
        wanted: whether there is a term at all; otherwise nothing is done.
        ensemble: the networks of the runs.
        sequences: gives theirs, at the first look.
        parameters: all that a step moves.
        seeds: of the runs.
        steps: how many gradient steps were taken before; then :attr:`tensors` are to be filled.
        options: those of ``ms.Keep``.
    """

    def __init__(
        self,
        wanted: bool,
        ensemble: Ensemble,
        sequences: Callable[[], SequenceSet],
        parameters: Sequence[nn.Parameter],
        *,
        seeds: Sequence[int],
        steps: int = 0,
        **options: Any,
    ) -> None:
        self._wanted, self._ensemble, self._sequences = wanted, ensemble, sequences
        self._steps, self._options = steps, options
        self._seeds, self._parameters = list(seeds), list(parameters)
        self._gradients = [torch.zeros_like(p) for p in self._parameters if wanted]
        state = {"seeds": torch.long, "on": torch.bool, "safe": torch.long} if wanted else {}
        self._tensors = {name: torch.zeros(len(ensemble), dtype=kind, device="cpu") for name, kind in state.items()}
        self._keep: Keep | None = None

    def look(self) -> None:
        """To be called before each gradient step."""
        if not self._wanted:
            return
        if self._keep is None:
            self._keep = self._made()
        term = self._keep()
        if term.requires_grad:
            found = torch.autograd.grad(term, self._parameters, materialize_grads=True)
            torch._foreach_copy_(self._gradients, list(found))
        else:
            torch._foreach_zero_(self._gradients)

    def added_to(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of a loss, and those of the term."""
        return list(torch._foreach_add(list(gradients), self._gradients) if self._wanted else gradients)

    def looks_on(self) -> list[int] | None:
        """At how many looks since the last time the term was on, of each run; ``None`` without a term."""
        if not self._wanted:
            return None
        found = torch.zeros(len(self._ensemble), dtype=torch.long, device="cpu")
        if self._keep is not None:
            for look in self._keep.history:
                found += look.on
            self._keep.history.clear()
        return found.tolist()

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, each ``(R,)``."""
        if self._keep is not None:
            (network,) = self._keep.state_dict()["networks"].values()
            for name, tensor in self._tensors.items():
                tensor.copy_(torch.tensor(network[name], device="cpu"))
        return self._tensors

    def _made(self) -> Keep:
        draws = [generator(seed, "keep") for seed in self._seeds]
        keep = Keep(self._ensemble, self._sequences(), generator=draws, **self._options)
        if self._steps:
            network = {name: tensor.tolist() for name, tensor in self._tensors.items()}
            keep.load_state_dict({"calls": self._steps, "networks": {"": network}, "history": []})
        keep.history.clear()
        return keep
