"""Associative recall: Graves, Wayne and Danihelka (2014), and in this form Ba et al. (2016), "fast weights"."""

from dataclasses import dataclass

import torch

from multistable.arguments import positive_integer
from multistable.setting import TASK, documented, setting
from multistable.tasks.base import Data
from multistable.tasks.generated import Classes, at_least, one_hot


@documented
@dataclass(frozen=True)
class AssociativeRecall(Classes):
    """Keys, each followed by its value, then nothing; at the last time step one of the keys: what was its value?

    Inputs are one-hot, keys first and then values; all channels are 0 in between. The keys of a sequence differ.
    """

    pairs: int = setting(2, "Keys of a sequence.", positive_integer, TASK)
    keys: int = setting(4, "Different keys.", positive_integer, TASK)
    values: int = setting(4, "Different values.", positive_integer, TASK)

    answers = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, 2 * self.pairs + 1, f"{self.pairs} keys with their values, and a question")
        at_least("keys", self.keys, self.pairs, "different keys in a sequence")

    @property
    def input_size(self) -> int:  # type: ignore[override]
        return self.keys + self.values

    @property
    def output_size(self) -> int:  # type: ignore[override]
        return self.values

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, keys + values)``, targets ``(n, 1)``."""
        device = generator.device
        keys = torch.rand(self.keys, n, generator=generator, device=device).argsort(0)[: self.pairs]
        values = torch.randint(self.values, keys.shape, generator=generator, device=device)
        asked = torch.randint(self.pairs, (1, n), generator=generator, device=device)
        inputs = torch.zeros(self.T, n, self.input_size, device=device)
        inputs[0 : 2 * self.pairs : 2] = one_hot(keys, self.input_size)
        inputs[1 : 2 * self.pairs : 2] = one_hot(self.keys + values, self.input_size)
        inputs[-1:] = one_hot(keys.gather(0, asked), self.input_size)
        return Data(inputs, values.gather(0, asked).T.contiguous())
