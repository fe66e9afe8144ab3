"""What a network's first call compiles, before that call."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from multistable.networks.ensemble import Ensemble
from multistable.networks.rnn import RNN


def precompile(network: RNN | Ensemble, x: Tensor | PackedSequence) -> None:
    """Compile now what ``network`` needs to read inputs like ``x``, forward and back, and without a gradient.

    It is what the present engine settings lead to, for any values and for sequences of any length but 1; in small
    layers, of which cuDNN takes the shorter ones, for those that go the same way. Another batch size may need kernels
    of its own. Kernels for a GPU are kept on disk, where later processes find them. Nothing is changed: no gradients,
    no random state, no mode. Hooks of the network are not called.

    Args:
        x: inputs as the network takes them; only their form matters.
    """
    if not isinstance(network, RNN | Ensemble):
        raise TypeError(f"network must be an ms.RNN or an ms.Ensemble, got {type(network).__name__}")
    data = x.data if isinstance(x, PackedSequence) else x
    if not isinstance(data, Tensor):
        raise TypeError(f"x must be a tensor or a PackedSequence, got {type(x).__name__}")
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    devices = [data.device] if data.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.inference_mode(False):
        zeros = torch.zeros_like(data, requires_grad=False)
        given: Any = x._replace(data=zeros) if isinstance(x, PackedSequence) else zeros
        with torch.no_grad():
            network.forward(given)
        if weights:
            with torch.enable_grad():
                output = network.forward(given)[0]
                output = output.data if isinstance(output, PackedSequence) else output
                torch.autograd.grad(output, weights, torch.zeros_like(output), allow_unused=True)
