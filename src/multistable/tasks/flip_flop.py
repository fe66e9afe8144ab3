"""The flip-flop of Sussillo and Barak (2013), "Opening the black box"."""

from dataclasses import dataclass

import torch

from multistable.arguments import positive_integer
from multistable.arguments import share as probability
from multistable.setting import TASK, documented, setting, unchanged
from multistable.tasks.base import Data
from multistable.tasks.generated import Numbers


@documented
@dataclass(frozen=True)
class FlipFlop(Numbers):
    """Channels that each give a pulse of +1 or -1 now and then: at every time step, what was the last pulse of each?

    The first time step has a pulse in every channel.
    """

    bits: int = setting(3, "Channels.", positive_integer, TASK)
    pulses: float = setting(0.1, "Probability of a pulse, of each channel and time step.", unchanged(probability), TASK)

    guessing = 1.0

    @property
    def input_size(self) -> int:  # type: ignore[override]
        return self.bits

    @property
    def output_size(self) -> int:  # type: ignore[override]
        return self.bits

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, bits)``, targets ``(n, T * bits)``: all bits of a time step together."""
        shape, device = (self.T, n, self.bits), generator.device
        chance = torch.rand(shape, generator=generator, device=device)
        chance[0] = -1.0
        signs = torch.randint(0, 2, shape, generator=generator, device=device) * 2.0 - 1
        inputs = torch.where(chance < self.pulses, signs, 0.0)
        times = torch.arange(self.T, device=device)[:, None, None].expand(shape)
        last = torch.where(inputs != 0, times, 0).cummax(0).values
        return Data(inputs, inputs.gather(0, last).transpose(0, 1).flatten(1))
