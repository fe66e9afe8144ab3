"""The kernels of Adam against its PyTorch operations: on a GPU where there is one, else in Triton's interpreter."""

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from fused_problems import DEVICE, HAS_GPU
from multistable.training import fused_adam
from multistable.training.adam import Adam, fits_kernels, shortened

# A program has 1024 entries: fewer, just as many, and more, in numbers that are and are not multiples of 4.
SHAPES = [(3, 5, 8), (3,), (3, 1, 1024), (3, 1025), (3, 2, 2, 258)]
RATES = [1e-1, 1e-3, 5e-2]


def draw(shapes, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(shape, generator=generator)).to(DEVICE) for shape in shapes]


def made(shapes=SHAPES, rates=RATES, *, fused=True, **options):
    return Adam(draw(shapes, 0), torch.tensor(rates, dtype=torch.float64), fused=fused, **options)


def after(adam, gradients):
    """All that steps on ``gradients`` change."""
    for gradient in gradients:
        adam.step(gradient)
    return [*adam.parameters, *adam.means, *adam.squares]


def check_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


# The same numbers


@pytest.mark.parametrize(("scale", "steps"), [(1e-8, 0), (1.0, 1000), (1e15, 0)])
def test_a_step_is_that_of_the_operations_in_float64_rounded(steps, scale):
    """With gradients among which eps matters, and very large ones; from the beginning, and later."""
    adam, signs, rounding = made(steps=steps), draw(SHAPES, 1), 2.0**-24
    for taken in range(3):
        # The same signs in all steps: what nearly cancels is no more accurate by the operations.
        gradient = [g.abs() * sign.sign() for g, sign in zip(draw(SHAPES, 2 + taken, scale), signs, strict=True)]
        before = [p.double() for p in adam.parameters]
        exact = Adam([p.clone() for p in before], torch.tensor(RATES, dtype=torch.float64), steps + taken, fused=False)
        exact.means, exact.squares = [m.double() for m in adam.means], [s.double() for s in adam.squares]
        exact.step([g.double() for g in gradient])
        adam.step(gradient)
        for i, start in enumerate(before):
            end = exact.parameters[i]
            assert (end != start).all()
            assert ((adam.parameters[i] - end).abs() <= rounding * (1.01 * end.abs() + 12 * (end - start).abs())).all()
            assert ((adam.means[i] - exact.means[i]).abs() <= 4 * rounding * exact.means[i].abs()).all()
            assert ((adam.squares[i] - exact.squares[i]).abs() <= 4 * rounding * exact.squares[i]).all()
    assert adam.passed_over() == [0, 0, 0]


def test_many_steps_end_where_the_operations_do():
    gradients = [draw(SHAPES[:3], seed) for seed in range(1, 11)]
    ends = [after(made(SHAPES[:3], fused=fused), gradients) for fused in (True, False)]
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)


def test_corrections_are_computed_in_float64():
    adam = made(steps=2999)
    adam.step(draw(SHAPES, 1))
    step, of_mean, of_square = adam._fused._now.tolist()
    assert step == adam._steps.item() == 3000
    assert of_mean == pytest.approx(1 / (1 - 0.9**3000), rel=1e-13)
    assert of_square == pytest.approx(1 / math.sqrt(1 - 0.999**3000), rel=1e-13)


def test_each_member_is_what_it_would_be_alone():
    gradients = [draw(SHAPES, seed) for seed in range(1, 4)]
    together = after(made(), gradients)
    for member, rate in enumerate(RATES):
        parameters = [p[member : member + 1].clone() for p in draw(SHAPES, 0)]
        alone = Adam(parameters, torch.tensor([rate], dtype=torch.float64), fused=True)
        ends = after(alone, [[g[member : member + 1] for g in gradient] for gradient in gradients])
        check_equal(ends, [x[member : member + 1] for x in together])


def test_a_step_may_take_several_launches(monkeypatch):
    """Of two tensors each: a member with unusable gradients in several of them is counted once."""
    gradients = [draw(SHAPES, seed) for seed in range(1, 4)]
    for spoilt in gradients[1]:
        spoilt[1] = math.nan
    one, many = made(), made()
    expected = after(one, gradients)
    monkeypatch.setattr(fused_adam, "AT_ONCE", 2)
    check_equal(after(many, gradients), expected)
    assert one.passed_over() == many.passed_over() == [0, 1, 0]


def test_going_on_is_not_to_be_told_from_not_having_stopped():
    gradients = [draw(SHAPES, seed) for seed in range(1, 5)]
    undisturbed = after(made(), gradients)
    before = made()
    kept = after(before, gradients[:2])
    resumed = made(steps=2)
    for place, value in zip([*resumed.parameters, *resumed.means, *resumed.squares], kept, strict=True):
        place.copy_(value)
    check_equal(after(resumed, gradients[2:]), undisturbed)


# Gradients that cannot be used


@pytest.mark.parametrize(("entry", "where"), [(math.nan, 1), (-(2.0**64), 4)], ids=["nan", "too large to be squared"])
def test_a_member_passes_over_a_gradient_that_would_stay_in_its_moments(entry, where):
    """The last entry of one of its tensors is spoilt; the others are untouched, to the last bit."""
    gradients = [draw(SHAPES, seed) for seed in range(1, 5)]
    zeroed = [[g.clone() for g in gradient] for gradient in gradients]
    for step, member in ((1, 1), (2, 1), (3, 2)):
        gradients[step][where][member].view(-1)[-1] = entry
        for g in zeroed[step]:
            g[member] = 0
    spoilt, passed = made(), made()
    check_equal(after(spoilt, gradients), after(passed, zeroed))
    assert spoilt.passed_over() == [0, 2, 1]
    assert spoilt.passed_over() == passed.passed_over() == [0, 0, 0]


def test_the_largest_gradients_that_can_be_squared_are_used():
    """As by the operations."""
    largest = torch.nextafter(torch.tensor(2.0**64), torch.tensor(0.0)).item()
    for fused in (True, False):
        adam = made([(2, 5)], RATES[:2], fused=fused)
        gradient = torch.ones(2, 5, device=DEVICE)
        gradient[0, 3] = -largest
        adam.step([gradient])
        assert adam.passed_over() == [0, 0]
        assert torch.isfinite(adam.squares[0]).all()
        assert adam.squares[0][0, 3].item() == pytest.approx(2.0**128 / 1000, rel=1e-5)


def test_several_members_pass_over_their_own():
    gradients = [draw(SHAPES, seed) for seed in range(1, 4)]
    gradients[0][0][0, 0, 0] = gradients[1][0][0, 0, 0] = gradients[1][4][2, 1, 1, 257] = math.inf
    kernels, operations = made(), made(fused=False)
    torch.testing.assert_close(after(kernels, gradients), after(operations, gradients), rtol=1e-5, atol=1e-6)
    assert kernels.passed_over() == operations.passed_over() == [2, 0, 1]


def test_longer_gradients_are_shortened_first():
    limits = torch.tensor([1.0, math.inf, 1e-3])
    gradients = [draw(SHAPES, seed) for seed in range(1, 4)]
    gradients[1][2][1, 0, 77] = 1e20
    limited = made(max_norms=limits)
    by_hand = [shortened(gradient, limits.to(DEVICE)) for gradient in gradients]
    check_equal(after(limited, gradients), after(made(), by_hand))
    assert limited.passed_over() == [0, 1, 0]


# Layouts


def test_gradients_may_have_any_layout():
    """Transposed, repeated, one of several in a row, and beginning anywhere."""
    wide = draw([(8, 3, 5)], 1)[0].permute(1, 2, 0)
    repeated = draw([(3, 1, 1)], 2)[0].expand(3, 2, 700)
    part = draw([(3, 4, 3)], 3)[0][:, :, 1]
    shifted = draw([(1 + 3 * 64,)], 4)[0][1:].view(3, 64)
    views = [wide, repeated, part, shifted]
    assert [x.is_contiguous() for x in views] == [False, False, False, True]
    shapes = [tuple(x.shape) for x in views]
    check_equal(after(made(shapes), [views] * 2), after(made(shapes), [[x.clone().contiguous() for x in views]] * 2))


@pytest.mark.parametrize(("offset", "width"), [(1, 6), (4, 1023)])
def test_nothing_is_written_beside_a_tensor(offset, width):
    around = torch.full((offset + 3 * width + 9,), 7.0, device=DEVICE)
    parameter = around[offset : offset + 3 * width].view(3, width)
    adam = Adam([parameter], torch.tensor(RATES, dtype=torch.float64), fused=True)
    adam.step([torch.ones(3, width, device=DEVICE)])
    outside = torch.cat([around[:offset], around[offset + 3 * width :]])
    assert torch.equal(outside, torch.full_like(outside, 7.0))
    moved = 7.0 - torch.tensor(RATES, device=DEVICE).view(3, 1).expand(3, width)  # the first step is a rate long
    torch.testing.assert_close(parameter, moved)


@pytest.mark.parametrize("gradient", [torch.ones(3, 4), torch.ones(3, 5, dtype=torch.float64)], ids=["shape", "dtype"])
def test_gradients_unlike_their_parameters_are_refused(gradient):
    adam = made([(3, 5)])
    with pytest.raises(ValueError, match=r"parameter \(3, 5\) of torch.float32 must be like it, got \(3, [45]\)"):
        adam.step([gradient.to(DEVICE)])


def test_a_graph_that_needs_the_weights_from_before_raises():
    parameter = torch.ones(2, 3, device=DEVICE, requires_grad=True)
    adam = Adam([parameter], torch.full((2,), 1e-2), fused=True)
    loss = parameter.square().sum()
    adam.step([torch.ones(2, 3, device=DEVICE)])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# The choice


def test_kernels_run_where_they_can(monkeypatch):
    single, double = torch.ones(2, 3, 4, device=DEVICE), torch.ones(2, 3, device=DEVICE, dtype=torch.float64)
    assert fits_kernels([single]) == HAS_GPU
    assert (Adam([single], torch.ones(2))._fused is not None) == HAS_GPU
    assert not fits_kernels([single.cpu()])

    def on_gpu(x, device="cuda:0"):
        return SimpleNamespace(device=torch.device(device), dtype=x.dtype, is_contiguous=x.is_contiguous)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert fits_kernels([on_gpu(single), on_gpu(single)])
    for other in (on_gpu(double), on_gpu(single.mT), on_gpu(single, "cuda:1")):
        assert not fits_kernels([on_gpu(single), other])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not fits_kernels([on_gpu(single)])


def test_parameters_that_the_kernels_cannot_move_are_refused():
    given = torch.ones(2, 3, 4, device=DEVICE)
    for parameter in (given.mT, given.double()):
        with pytest.raises(ValueError, match="contiguous and in float32"):
            Adam([parameter], torch.ones(2), fused=True)


def test_triton_is_not_loaded_without_a_gpu():
    """Even where its interpreter could be taken."""
    program = (
        "import sys, torch; from multistable.training.adam import Adam; weight = torch.ones(2, 3); "
        "Adam([weight], torch.ones(2)).step([torch.ones(2, 3)]); "
        "assert weight.sum() < 1e-6; print('multistable.training.adam_kernels' in sys.modules, 'triton' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]
