"""Networks to warm up, what they read, and warmups that take a moment."""

import warnings

import torch

import multistable as ms
from generators import generator


def copy_sequences(time, n, features=1, dtype=torch.float32):
    return torch.randn(time, n, features, generator=generator(1)).to(dtype)


def seeded(kind, *sizes, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(*sizes)


def quick(rnn, x, **settings):
    settings = {"batch_size": 8, "max_stabilisation": 20, "generator": generator()} | settings
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        return ms.warmup(rnn, x, **settings)


def zero(rnn):
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
    return rnn


def pushes(n=64, units=12):
    signs = 2.0 * torch.randint(0, 2, (n, units), generator=generator()) - 1
    return 5e3 * signs.expand(20, n, units)


def remember(rnn, seen):
    """What to do at each step: keep the weights after it."""
    return lambda step: seen.append([p.detach().clone() for p in rnn.parameters()])
