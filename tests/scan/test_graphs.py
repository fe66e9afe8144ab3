"""Without a GPU a recorded step is the step."""

import torch

from multistable.scan.graphs import Graphed


def test_on_the_cpu_every_call_is_one_step():
    total = torch.zeros(2)

    def step(x):
        total.add_(x)
        return total.clone()

    graphed = Graphed(step, eager_calls=1)
    seen = [graphed(torch.tensor([1.0, float(i)])).tolist() for i in range(4)]
    assert seen == [[1.0, 0.0], [2.0, 1.0], [3.0, 3.0], [4.0, 6.0]]
