"""Algorithm 3 with the paper's settings, on copy-first-input sequences."""

import copy
import warnings

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator


def copy_sequences(time, n, features=1):
    """Inputs u_t ~ N(0, 1) of the copy first input benchmark."""
    return torch.randn(time, n, features, generator=torch.Generator().manual_seed(1))


NETWORKS = {
    "torch.nn.GRU": lambda: nn.GRU(1, 128),
    "torch.nn.LSTM": lambda: nn.LSTM(1, 128),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_one_attractor_before_and_nearly_one_for_each_state_after(name):
    """Not every warmup gets there, and rounding decides which: it may be tried with other draws, twice."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        rnn = NETWORKS[name]()
    x = copy_sequences(50, 1000)
    assert ms.measure(rnn, x, generator=generator()).vaa == 1 / 32
    start = copy.deepcopy(rnn.state_dict())
    for seed in range(3):
        rnn.load_state_dict(start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ms.WarmupWarning)
            history = ms.warmup(rnn, x, algorithm="paper", generator=torch.Generator().manual_seed(seed))
        if history.vaa > 0.9:
            break
    assert ms.measure(rnn, x, generator=generator()).vaa > 0.9
    assert history.outcome == "multistable"


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
def test_both_layers_come_near_the_target():
    rnn = ms.RNN("gru", 2, 64, 2, generator=generator())
    history = ms.warmup(rnn, copy_sequences(50, 1000, features=2), algorithm="paper", generator=generator())
    final = history.vaa_star[-10:].mean(dim=0)
    assert ((final - 0.95).abs() < 0.1).all(), final


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *((lambda: nn.RNN(1, 48), seed) for seed in (1, 3)),  # multistable, short
        *((lambda: nn.GRU(1, 32), seed) for seed in (0, 3, 4)),  # one attractor, multistable, drifting
        *((lambda: nn.LSTM(1, 32), seed) for seed in (1, 5, 8)),  # short, collapsed, multistable
    ],
)
def test_no_failure_is_silent(kind, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        rnn = kind()
    x = copy_sequences(40, 256)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draws = torch.Generator().manual_seed(seed)
        history = ms.warmup(rnn, x, batch_size=64, algorithm="paper", generator=draws)
    failed = ms.measure(rnn, x, batches=5, generator=generator()).vaa < 0.5
    warned = any(issubclass(w.category, ms.WarmupWarning) for w in caught)
    assert warned == (history.outcome != "multistable")
    assert warned or not failed
