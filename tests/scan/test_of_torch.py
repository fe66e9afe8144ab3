"""PyTorch's own kernels with the weights of our cells: oneDNN on the CPU, and the layout of weights for cuDNN."""

from types import SimpleNamespace

import pytest
import torch

import multistable as ms
from fused_problems import DEVICE, HAS_GPU
from multistable.cells import CELLS
from multistable.cells.elman import Elman
from multistable.scan import choice, cudnn, of_torch, onednn, read, reference
from multistable.scan.program import RefusedError

MAKERS = {name: CELLS[name] for name in ("gru", "lstm", "chrono")} | {"elman": Elman}
of_each_kind = pytest.mark.parametrize("name", MAKERS)


def made(name, second=False, inputs=3, hidden=6):
    draw = torch.Generator().manual_seed(0)
    cell = MAKERS[name](inputs, hidden, recurrent_bias=second, generator=draw)
    with torch.no_grad():
        for bias in (cell.bias, cell.recurrent_bias):
            if bias is not None:
                bias.copy_(torch.randn(bias.shape, generator=draw))
    return cell


def plainly(cell, u, state):
    states = reference.scan(cell, cell.project(u), state)
    return states[0], cell.State(*(field[-1] for field in states))


def results(run, cell, u, state):
    leaves = [u.clone().requires_grad_(), *(field.clone().requires_grad_() for field in state)]
    output, end = run(cell, leaves[0], cell.State(*leaves[1:]))
    upstream = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x) for x in (output, *end)]
    return [output, *end, *torch.autograd.grad([output, *end], [*leaves, *cell.parameters()], upstream)]


@pytest.mark.parametrize("second", [False, True])
@of_each_kind
def test_outputs_and_gradients_are_those_of_the_plain_loop(name, second):
    cell, u = made(name, second), torch.randn(7, 4, 3)
    state = cell.State(*(torch.randn(4, 6) for _ in cell.State._fields))
    with ms.engine(backend="torch"):
        found = results(read, cell, u, state)
    for value, expected in zip(found, results(plainly, cell, u, state), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)


def test_lstms_take_them_on_the_cpu_by_themselves(monkeypatch):
    taken = []
    original = onednn.advance
    monkeypatch.setattr(onednn, "advance", lambda *given: taken.append(1) or original(*given))
    x = torch.randn(5, 2, 3)
    for name, count in (("gru", 0), ("lstm", 2)):
        ms.RNN(name, 3, 4, 2)(x)
        assert len(taken) == count
    ms.RNN("lstm", 3, 4, double=True)(x)
    ms.Ensemble([ms.RNN("lstm", 3, 4) for _ in range(2)])(x)
    with ms.engine(backend="fused"):
        ms.RNN("lstm", 3, 4)(x)
    assert len(taken) == 2


class Halved(ms.LSTM):
    """An LSTM with a step of its own."""

    def step(self, projected, state):
        h, c = super().step(projected, state)
        return ms.HiddenAndMemory(h / 2, c)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ms.MGU(3, 4), "torch.nn has no MGU"),
        (lambda: Halved(3, 4), "Halved has a step of its own"),
        (lambda: ms.LSTM(3, 4).double(), "must be in float32"),
    ],
)
def test_what_they_cannot_compute(make, reason):
    cell = make()
    u = torch.randn(2, 3, 3, dtype=cell.bias.dtype)
    with pytest.raises(RefusedError, match=reason):
        of_torch.prepared(cell, u)
    read(cell, u)  # by another loop
    with ms.engine(backend="torch"), pytest.raises(RuntimeError, match=reason):
        read(cell, u)


def test_members_have_none():
    cell = ms.LSTM(3, 4)
    many = cell.bind({name: torch.stack([p, p]) for name, p in cell.named_parameters()})
    with pytest.raises(RefusedError, match="leading dimensions"):
        of_torch.prepared(many, torch.randn(2, 2, 5, 3))


@pytest.mark.parametrize("second", [False, True])
@of_each_kind
def test_weights_are_laid_out_as_torch_nn_has_them_and_gradients_back(name, second, monkeypatch):
    if HAS_GPU:
        pytest.skip("tests/gpu has it on a GPU")
    pytest.importorskip("triton")
    cell = made(name, second, inputs=5, hidden=40)
    ours = [None if w is None else w.detach().to(DEVICE) for w in (getattr(cell, each) for each in of_torch.WEIGHTS)]
    network = ms.RNN(MAKERS[name], 5, 40, recurrent_bias=second)
    network.layers[0].cell.load_state_dict(cell.state_dict())
    module = ms.to_torch(network)
    theirs = [torch.zeros_like(p) for p in module.parameters()]
    monkeypatch.setattr(cudnn, "get_cudnn_mode", lambda kind: 0)
    monkeypatch.setattr(
        torch, "_cudnn_rnn_flatten_weight", lambda weights, *_: torch.cat([w.flatten() for w in weights])
    )
    layout = cudnn.layout_of(of_torch.Form(cell.torch_kind, cell.torch_gates, second, "ieee"), 5, 40, DEVICE)
    layout.repack(ours, theirs, back=False)
    for found, expected in zip(theirs, module.parameters(), strict=True):
        assert torch.equal(found, expected)
    back = [None if w is None else torch.full_like(w, torch.nan) for w in ours]
    layout.repack(back, theirs, back=True)
    for found, expected in zip(back, ours, strict=True):
        assert (found is None and expected is None) or torch.equal(found, expected)


def test_second_derivatives_of_an_lstm_on_the_cpu():
    cell, u = made("lstm", True), torch.randn(4, 2, 3, requires_grad=True)

    def second(**settings):
        with ms.engine(**settings):
            output, _ = read(cell, u)
        (first,) = torch.autograd.grad(output.sin().sum(), u, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [u, *cell.parameters()])

    for found, expected in zip(second(backend="torch"), second(backend="reference"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_inputs_and_states_that_are_not_contiguous():
    cell = made("lstm", True)
    u, state = torch.randn(4, 7, 3).transpose(0, 1), cell.State(*torch.randn(6, 4, 2).permute(2, 1, 0))
    with ms.engine(backend="torch"):
        found = read(cell, u, state)
    expected = plainly(cell, u, state)
    for ours, theirs in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 6), (4, 5), (4, 6, 1)])
def test_states_of_other_shapes_are_refused(shape):
    cell = made("lstm")
    with pytest.raises(ValueError, match=r"state h must be \(4, 6\)"):
        read(cell, torch.randn(7, 4, 3), cell.State(torch.zeros(shape), torch.zeros(4, 6)))


@pytest.mark.parametrize("backend", ["fused", "torch", "reference"])
def test_the_last_state_is_not_memory_of_the_output(backend):
    with ms.engine(backend=backend):
        output, (h, _) = ms.RNN("lstm", 3, 4)(torch.randn(5, 2, 3))
    before = output.detach().clone()
    h.detach().zero_()
    assert torch.equal(output, before)


@pytest.mark.parametrize(
    ("make", "units", "rows", "precision", "taken"),
    [
        (ms.LSTM, 512, 1, "ieee", 0),
        (ms.LSTM, 513, 1, "ieee", 1),
        (ms.GRU, 512, 256, "tf32", 0),
        (ms.LSTM, 512, 255, "ieee", 0),
        (ms.LSTM, 512, 256, "ieee", 1),
        (ms.MGU, 1024, 1, "ieee", 0),
    ],
)
def test_where_cudnn_is_the_fastest_way(make, units, rows, precision, taken):
    u = SimpleNamespace(is_cuda=True, shape=(200, rows, 3))
    assert choice.torch_is_fastest(make(3, units), u, precision) == bool(taken)
