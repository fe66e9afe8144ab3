"""Warm up the recurrent modules of torchrl: a policy with a GRUModule or an LSTMModule is a model like any other.

pip install ".[torchrl]"
python examples/warm_up_torchrl.py
"""

from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.modules import GRUModule, LSTMModule, set_recurrent_mode

import multistable as ms


def main(hidden_size: int = 32, episodes: int = 300, **warmup: Any) -> list[Any]:
    """Warm up a policy with each of the two modules. Further arguments are those of the warmup."""
    is_init = torch.zeros(episodes, 20, 1, dtype=torch.bool)
    is_init[:, 0] = is_init[::3, 12] = True  # where episodes begin; what a collector yields has it too
    batch = TensorDict({"observation": torch.randn(episodes, 20, 4), "is_init": is_init}, [episodes, 20])
    histories = []
    for kind in (GRUModule, LSTMModule):
        memory = kind(input_size=8, hidden_size=hidden_size, in_key="features", out_key="embedded")
        encoder = TensorDictModule(nn.Linear(4, 8), in_keys=["observation"], out_keys=["features"])
        actor = TensorDictModule(nn.Linear(hidden_size, 2), in_keys=["embedded"], out_keys=["action"])
        policy = TensorDictSequential(encoder, memory, actor)
        with set_recurrent_mode(True):
            histories.append(ms.warmup(policy, batch, **warmup))
    print(histories)
    return histories


if __name__ == "__main__":
    main()
