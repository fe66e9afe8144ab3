"""The denoising benchmark (section 4.1)."""

from dataclasses import dataclass, field

import torch

from multistable.arguments import positive_integer, truth_value
from multistable.setting import TASK, about, documented, setting
from multistable.tasks.base import Data
from multistable.tasks.generated import Numbers, distinct_times


@documented
@dataclass(frozen=True)
class Denoising(Numbers):
    """Five marked values of a stream of noise, to be given back in order at the last five time steps.

    The first channel is u_t ~ N(0, 1). The second is 1 at five time steps t_1 < ... < t_5, drawn without replacement
    from {1, ..., T - N}, and 0 elsewhere. The targets y_{T-4:T} are u at those five.

    The paper writes the loss as a sum over the five answers and calls it the mean squared error: here it is the mean,
    as in its tables (0.997 for an LSTM that has not learned): the best answer without any memory, 0, has a loss of 1.0.

    The cue is a -1 on the second channel at T - 4. The paper's text has none (``cue=False``), but its tables fit the
    benchmark that has it.
    """

    N: int = field(metadata=about("Time steps at the end without anything to learn.", positive_integer, TASK))
    cue: bool = setting(True, "Tell the network when to answer.", truth_value, TASK)

    input_size = 2
    answers = 5
    guessing = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers > self.N:
            raise ValueError(f"N must be at least {self.answers}, the number of answers, got {self.N}")
        if self.N + self.answers > self.T:
            raise ValueError(
                f"T must be at least N + {self.answers} = {self.N + self.answers}, to hold {self.answers} marks before "
                f"the last N = {self.N} time steps, got {self.T}"
            )

    @property
    def paper_stretch(self) -> int:
        return 150 if self.T == 200 else super().paper_stretch

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 2)``, targets ``(n, 5)``."""
        noise = torch.randn(self.T, n, generator=generator, device=generator.device, dtype=torch.float32)
        times = distinct_times(self.answers, self.T - self.N, n, generator)
        marks = torch.zeros_like(noise).scatter_(0, times, 1.0)
        if self.cue:
            marks[-self.answers] = -1.0
        return Data(inputs=torch.stack([noise, marks], -1), targets=noise.gather(0, times).T.contiguous())
