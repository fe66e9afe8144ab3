"""A step of Adam on a GPU, by kernels in Triton: their launches."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# The entries of one program, 8 for each of its threads.
BLOCK = 1024

# The tensors of one launch. Each takes some arguments, and a launch has room for 4 KB of arguments.
AT_ONCE = 16


class FusedStep:
    """Steps of Adam that read and write everything once. Their state is on the device.

    Nothing is read back, and nothing is copied from the host, so that a step can be recorded. The kernels are imported
    when a step is taken: Triton is not a dependency of this library.

    Args:
        parameters: the weights, each ``(R, ...)``, contiguous and in float32.
        rates: the learning rate of each member, ``(R,)``, in float32.
        taken: how many steps were taken, a number in float64; each step adds 1.
        passed_over: how many gradients of each member were not usable, ``(R,)``; each step adds its own.
    """

    def __init__(self, parameters: Sequence[Tensor], rates: Tensor, taken: Tensor, passed_over: Tensor) -> None:
        for parameter in parameters:
            if parameter.dtype != torch.float32 or not parameter.is_contiguous():
                raise ValueError(
                    "the kernels move parameters that are contiguous and in float32, got one of "
                    f"{parameter.dtype} with strides {parameter.stride()}"
                )
        self._rates = rates.contiguous()
        self._taken = taken
        self._passed_over = passed_over
        self._now = taken.new_zeros(3)
        self._unusable = torch.zeros_like(passed_over)

    def __call__(
        self,
        parameters: Sequence[Tensor],
        means: Sequence[Tensor],
        squares: Sequence[Tensor],
        gradients: Sequence[Tensor],
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        """Update parameters and moments, each ``(R, ...)`` and contiguous, by gradients of any layout."""
        from multistable.training.adam_kernels import judge, update

        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient.shape != parameter.shape or gradient.dtype != parameter.dtype:
                raise ValueError(
                    f"the gradient of a parameter {tuple(parameter.shape)} of {parameter.dtype} must be like it, "
                    f"got {tuple(gradient.shape)} of {gradient.dtype}"
                )
        members = len(self._rates)
        together = list(zip(parameters, means, squares, [g.contiguous() for g in gradients], strict=True))
        launches = [together[first : first + AT_ONCE] for first in range(0, len(together), AT_ONCE)]
        first, second = betas
        # Without fused multiply-adds, results do not depend on how a kernel was compiled.
        options = {"BLOCK": BLOCK, "num_warps": 4, "enable_fp_fusion": False}
        # Kernels are launched on the current device, which need not be that of their tensors.
        with torch.cuda.device_of(parameters[0]):
            for launch in launches:
                *_, g = zip(*launch, strict=True)
                widths = tuple(x.numel() // members for x in g)
                judge[_grid(widths, members)](
                    g, widths, members, self._taken, self._now, self._unusable, self._passed_over,
                    LOG_FIRST=math.log(first), LOG_SECOND=math.log(second), **options,
                )  # fmt: skip
            for launch in launches:
                p, m, s, g = zip(*launch, strict=True)
                widths = tuple(x.numel() // members for x in g)
                update[_grid(widths, members)](
                    p, m, s, g, widths, members, self._rates, self._taken, self._now, self._unusable,
                    FIRST=first, SECOND=second, EPS=eps, **options,
                )  # fmt: skip
        # PyTorch's own operations do this too: a graph that still needs the old weights then raises.
        torch.autograd.graph.increment_version([*parameters, *means, *squares])


def _grid(widths: Sequence[int], members: int) -> tuple[int]:
    return (members * sum(-(-width // BLOCK) for width in widths),)
