"""``ms.RNN`` as ``torch.nn`` on a GPU: packed sequences, resets, both directions, types under autocast."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.testing import assert_close

import multistable as ms
from numpy_cells import fields

DEVICE = "cuda"
FORMS = [("gru", {"num_layers": 2}), ("lstm", {"num_layers": 2, "bidirectional": True}), ("brc", {"double": True})]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def everything(rnn: ms.RNN, x, **options) -> list[torch.Tensor]:
    """Output, last state and the gradients of all weights, in float64 on the CPU."""
    output, end = rnn(x, **options)
    results = [output if isinstance(output, torch.Tensor) else output.data, *fields(end)]
    gradients = torch.autograd.grad(sum(result.square().sum() for result in results), list(rnn.parameters()))
    return [tensor.detach().cpu().double() for tensor in (*results, *gradients)]


@pytest.mark.parametrize(("cell", "options"), FORMS)
@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5])
def test_resets_on_a_gpu_are_those_on_the_cpu(cell, options, rate):
    rnn, x = ms.RNN(cell, 3, 32, **options), drawn(40, 17, 3)
    resets = torch.rand(40, 17, generator=torch.Generator().manual_seed(0)) < rate
    expected = everything(rnn.double(), x.double(), resets=resets)
    found = everything(rnn.float().to(DEVICE), x.to(DEVICE), resets=resets)
    assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("cell", "options"), FORMS)
def test_packed_sequences_on_a_gpu_are_those_on_the_cpu(cell, options):
    rnn = ms.RNN(cell, 3, 32, **options)
    packed = pack_sequence([drawn(length, 3) for length in (2, 40, 17, 3, 40, 1)], enforce_sorted=False)
    expected = everything(rnn.double(), packed.to(torch.float64))
    found = everything(rnn.float().to(DEVICE), packed.to(torch.float32).to(DEVICE))
    assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("given", [torch.float32, None], ids=str)
def test_types_under_autocast_are_those_of_torch(kind, dtype, given):
    theirs = kind(3, 32).to(DEVICE)
    ours, x = ms.from_torch(theirs), drawn(10, 4, 3).to(DEVICE)
    h = torch.zeros(1, 4, 32, device=DEVICE)
    state = None if given is None else (h, h) if kind is nn.LSTM else h
    with torch.autocast(DEVICE, dtype=dtype):
        results = [network(x, state) for network in (ours, theirs)]
        with ms.engine(backend="fused"):
            ours(x, state)
    types = [[tensor.dtype for tensor in (output, *fields(end))] for output, end in results]
    assert types[0] == types[1]
    assert_close(results[0][0].float(), ours(x, state)[0], rtol=1e-2, atol=1e-2)
