"""Random numbers of tests."""

import torch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)
