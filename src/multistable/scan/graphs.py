"""Steps replayed as CUDA graphs: one launch in place of hundreds."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Graphed:
    """A step on tensors of fixed shapes, recorded once and then replayed with one launch.

    A training step of small networks is many short kernels, and launching them takes longer than running them. The
    first calls run the step as it is, so that everything it allocates and compiles is there; the next one records
    it. Every call is exactly one step, with the same numbers as without. On the CPU the step always runs as it is.

    The step must be fit for recording: no number read back to the host, optimisers with ``capturable=True``, the
    same tensors (parameters, gradients, optimiser state) updated in place at each call. What it returns is
    overwritten by the next call.

    Args:
        step: takes tensors and returns a tensor or a tuple of tensors.
        eager_calls: how many calls run the step as it is before it is recorded.
    """

    def __init__(self, step: Callable[..., Any], eager_calls: int = 3) -> None:
        self._step = step
        self._eager_calls = eager_calls
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._result: Any = None

    def __call__(self, *inputs: Tensor) -> Any:
        self._calls += 1
        if not inputs or not all(tensor.is_cuda for tensor in inputs):
            return self._step(*inputs)
        with torch.cuda.device(inputs[0].device):
            if self._calls <= self._eager_calls:
                return _on_a_side_stream(self._step, inputs)
            if self._graph is None:
                self._record(inputs)
            return self._replay(inputs)

    def _record(self, inputs: Sequence[Tensor]) -> None:
        self._inputs = [tensor.clone() for tensor in inputs]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = self._step(*self._inputs)

    def _replay(self, inputs: Sequence[Tensor]) -> Any:
        for place, tensor in zip(self._inputs, inputs, strict=True):
            if place.shape != tensor.shape or place.dtype != tensor.dtype:
                raise ValueError(
                    f"a recorded step takes inputs of the shape and type it was recorded with, {tuple(place.shape)} "
                    f"of {place.dtype}, got {tuple(tensor.shape)} of {tensor.dtype}"
                )
            place.copy_(tensor)
        assert self._graph is not None
        self._graph.replay()
        return self._result


def _on_a_side_stream(step: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """Run a step off the default stream, which recording requires of the runs before it."""
    side, present = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(present)
    with torch.cuda.stream(side):
        result = step(*inputs)
    present.wait_stream(side)
    return result
