"""PyTorch's own kernels on a GPU, cuDNN, with the weights of our cells: against the plain loop in float64."""

import pytest
import torch

import multistable as ms
from multistable.cells import CELLS
from multistable.cells.elman import Elman
from multistable.scan import of_torch, read, reference

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
MAKERS = {name: CELLS[name] for name in ("gru", "lstm", "chrono")} | {"elman": Elman}


def problem(name, second, inputs=5, hidden=33, rows=7, time=20):
    draw = torch.Generator().manual_seed(0)
    cell = MAKERS[name](inputs, hidden, recurrent_bias=second, generator=draw)
    with torch.no_grad():
        for bias in (cell.bias, cell.recurrent_bias):
            if bias is not None:
                bias.add_(torch.randn(bias.shape, generator=draw))
        cell.recurrent_weight.mul_(0.5)  # small errors must not grow
    u = torch.randn(time, rows, inputs, generator=draw)
    state = [torch.randn(rows, hidden, generator=draw) for _ in cell.State._fields]
    upstream = [torch.randn(time, rows, hidden, generator=draw)] + [torch.randn_like(field) for field in state]
    return cell.cuda(), u.cuda(), cell.State(*(field.cuda() for field in state)), [each.cuda() for each in upstream]


def gradients(run, cell, u, state, upstream, **options):
    leaves = [u.clone().requires_grad_(), *(field.clone().requires_grad_() for field in state)]
    output, end = run(cell, leaves[0], cell.State(*leaves[1:]))
    inputs = [*leaves, *cell.parameters()]
    return [output, *end, *torch.autograd.grad([output, *end], inputs, upstream, **options)]


def plainly(cell, u, state):
    states = reference.scan(cell, cell.project(u), state)
    return states[0], cell.State(*(field[-1] for field in states))


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_outputs_and_gradients_are_those_of_the_plain_loop(name, second):
    cell, u, state, upstream = problem(name, second)
    of_torch.prepared(cell, u)
    with ms.engine(backend="torch"):
        found = gradients(read, cell, u, state, upstream)
    flag = torch.backends.cudnn.rnn.fp32_precision if hasattr(torch.backends.cudnn.rnn, "fp32_precision") else None
    exact = gradients(plainly, cell.double(), u.double(), [x.double() for x in state], [x.double() for x in upstream])
    for value, expected in zip(found, exact, strict=True):
        assert (value - expected).norm() < 1e-5 * expected.norm()
    assert torch.backends.cudnn.allow_tf32
    assert flag in (None, "tf32")


@pytest.mark.parametrize("name", MAKERS)
def test_tf32_where_it_is_permitted(name):
    cell, u, state, _ = problem(name, True, inputs=64, hidden=128)
    with torch.no_grad(), ms.engine(backend="torch", precision="tf32"):
        fast, _ = read(cell, u, state)
    exact, _ = plainly(cell.double(), u.double(), cell.State(*(x.double() for x in state)))
    assert 1e-6 < (fast - exact).norm() / exact.norm() < 2e-2


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    cell, u, _, upstream = problem("gru", False)
    with ms.engine(backend="torch"):
        output, _ = read(cell, u)
        first = torch.autograd.grad(output, list(cell.parameters()), upstream[0], retain_graph=True)
        second = torch.autograd.grad(output, list(cell.parameters()), upstream[0])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_network_as_torch_nn_has_it():
    theirs = torch.nn.LSTM(6, 40, 2, batch_first=True).cuda()
    ours = ms.from_torch(theirs)
    x = torch.randn(9, 30, 6, device="cuda")
    torch.backends.cudnn.allow_tf32 = False
    try:
        expected, (h, c) = theirs(x)
        with ms.engine(backend="torch"):
            output, (h_ours, c_ours) = ours(x)
    finally:
        torch.backends.cudnn.allow_tf32 = True
    for a, b in ((output, expected), (h_ours, h), (c_ours, c)):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
