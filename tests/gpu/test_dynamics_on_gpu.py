"""The measures and the warmup on a GPU. Run by make test-gpu."""

import warnings

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.measure.algorithm_1_measure import estimate, measuring
from multistable.dynamics.system.draws import Draws
from networks import WithReadout


def generator(seed=0, device="cpu"):
    return torch.Generator(device).manual_seed(seed)


@pytest.fixture
def tf32():
    """TF32 switched on the way users do."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("make", [lambda: nn.GRU(1, 256, 2), lambda: ms.RNN("mgu", 1, 256, 2)], ids=["gru", "mgu"])
def test_tf32_does_not_reach_the_measure(make):
    torch.manual_seed(0)
    rnn, x = make().cuda(), torch.randn(50, 100, 1)
    assert ms.measure(rnn, x, batches=3, generator=generator()).vaa == 1 / 32


@pytest.mark.parametrize("cell", ["lstm", "gru", "mgu", "nbrc"])
def test_three_products_measure_what_float32_does(cell):
    """Enough states that the matrix units serve; a state between two attractors may go the other way."""
    rnn = ms.Ensemble([ms.RNN(cell, 1, 256, 2, generator=generator(seed)) for seed in range(3)]).cuda()
    x = torch.randn(50, 100, 1, generator=generator())
    with measuring(rnn, x, 32) as (system, data), ms.engine(precision="ieee"):
        expected = estimate(system, data, Draws(generator(), 3), (10, 32), 3000, 1e-4).vaa
    assert ms.measure(rnn, x, stabilisation=3000, generator=generator()).vaa == pytest.approx(expected, abs=0.02)


@pytest.mark.usefixtures("tf32")
def test_exponents_are_those_of_the_cpu():
    rnn = ms.RNN("lstm", 1, 32, 2, generator=generator())
    x = torch.randn(50, 100, 1, generator=generator())
    sizes = {"batches": 2, "stabilisation": 500, "steps": 200}
    expected = ms.lyapunov(rnn, x, **sizes, generator=generator())
    found = ms.lyapunov(rnn.cuda(), x, **sizes, generator=generator())
    torch.testing.assert_close(found.exponents, expected.exponents, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("cell", ["lstm", "nbrc"])
def test_attractors_and_fixed_points_are_those_of_the_cpu(cell):
    rnn = ms.RNN(cell, 1, 6, 2, generator=generator())
    x = torch.randn(50, 100, 1, generator=generator())
    inputs = torch.tensor([[0.0], [0.5]])
    expected = ms.attractors(rnn, x, inputs=inputs, generator=generator())
    points = ms.fixed_points(rnn, "zero", expected.starts)
    path = ms.continuation(rnn, x, inputs=inputs, generator=generator())
    rnn = rnn.cuda()
    found = ms.attractors(rnn, x, inputs=inputs, generator=generator())
    assert torch.equal(found.labels, expected.labels)
    torch.testing.assert_close(found.points, expected.points, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.eigenvalues.abs(), expected.eigenvalues.abs(), rtol=1e-3, atol=1e-5)
    on_gpu = ms.fixed_points(rnn, "zero", expected.starts)
    apart = torch.cdist(on_gpu.points[on_gpu.stable], points.points[points.stable])
    assert apart.min(dim=0).values.max() < 1e-8
    assert ms.continuation(rnn, x, inputs=inputs, generator=generator()).changes == path.changes
    assert found.returning(0.1, generator=generator()) == expected.returning(0.1, generator=generator())


@pytest.mark.usefixtures("tf32")
def test_modules_around_cudnn_are_measured_and_warmed_up_in_float32():
    torch.manual_seed(0)
    rnn, x = WithReadout(1, 64).cuda(), torch.randn(50, 100, 1)
    assert ms.measure(rnn, x, batches=3, stabilisation=1000, generator=generator()).vaa == 1 / 32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.WarmupWarning)
        history = ms.warmup(rnn, x, steps=3, batch_size=50, generator=generator())
    assert torch.isfinite(history.loss).all()
    assert torch.backends.cudnn.enabled


@pytest.mark.parametrize("cell", ms.CELLS)
def test_the_gpu_reaches_what_the_cpu_reaches(cell):
    """Same generator, whatever its device is: same states to rounding, in float64."""
    rnn = ms.RNN(cell, 2, 32, 2, double=True, dtype=torch.float64, generator=generator())
    x = torch.randn(90, 40, 2, dtype=torch.float64, generator=generator(1))
    on_cpu = ms.reachable_states(rnn, x, generator=generator(2))
    on_gpu = ms.reachable_states(rnn.cuda(), x, generator=generator(2))
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-9, atol=1e-11)
    states = ms.reachable_states(rnn, x.cuda(), generator=generator(2, "cuda"))
    assert states.is_cuda


def test_an_ensemble_is_warmed_up_to_multistability():
    torch.manual_seed(0)
    members = [ms.from_torch(nn.GRU(1, 128)) for _ in range(8)]
    ensemble = ms.Ensemble(members).cuda()
    x = torch.randn(50, 1000, 1)
    history = ms.warmup(ensemble, x, generator=[generator(seed) for seed in range(8)])
    assert history.multistable
    assert min(ms.measure(ensemble, x, generator=generator(99)).vaa) > 0.9
