"""The kernels of Adam on a GPU: what PyTorch's operations do, launched one by one and recorded."""

import math

import pytest
import torch

from multistable.scan.graphs import Graphed
from multistable.training.adam import Adam

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

# Two layers of a GRU and its readout, and shapes whose members begin anywhere.
SHAPES = [(10, 1, 96), (10, 32, 96), (10, 96), (10, 32, 96), (10, 32, 96), (10, 96), (10, 32, 1), (10, 1), (10, 3, 7)]
STEPS = 12


def stepped(fused, recorded, max_norms=None):
    """All that some steps change, and the gradients passed over: two of member 3, one of 7."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator).cuda() for shape in SHAPES]
    rates = torch.logspace(-4, -1, 10, dtype=torch.float64)
    adam = Adam(parameters, rates, max_norms=max_norms, fused=fused)
    assert (adam._fused is not None) == (fused is not False)

    def step(*gradients):
        # Views of all kinds, made inside of what is recorded: the second is transposed, the third begins anywhere.
        first, second, third, *others = gradients
        adam.step(
            [
                first,
                second.mT.contiguous().mT,
                torch.cat([third.new_zeros(1), third.flatten()])[1:].view_as(third),
                *others,
            ]
        )
        return adam.parameters[0].clone()

    call = Graphed(step) if recorded else step
    for number in range(STEPS):
        gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
        if number in (1, 8):  # before the recording, and when it is replayed
            gradients[1][3, 31, 95] = math.nan
            gradients[7][3] = math.inf
        if number == 9:
            gradients[8][7, 0, 0] = 1e20
        call(*(g.cuda() for g in gradients))
    assert adam._steps.item() == STEPS
    return [*parameters, *adam.means, *adam.squares], adam.passed_over()


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("limit", [None, 5.0], ids=["unlimited", "limited"])
def test_kernels_do_what_the_operations_do(recorded, limit):
    max_norms = None if limit is None else torch.full((10,), limit)
    expected, counts = stepped(False, False, max_norms)
    found, own_counts = stepped(None, recorded, max_norms)
    assert own_counts == counts == [0, 0, 0, 2, 0, 0, 0, 0 if limit else 1, 0, 0]  # what is shortened can be squared
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_recorded_step_is_the_step_to_the_last_bit():
    plain, recorded = stepped(True, False), stepped(True, True)
    assert plain[1] == recorded[1]
    assert all(torch.equal(a, b) for a, b in zip(plain[0], recorded[0], strict=True))


def test_each_member_is_what_it_would_be_alone():
    """Alone, its tensors are laid out and divided among programs in another way."""
    draws = [torch.randn(4, *shape, generator=torch.Generator().manual_seed(1)).cuda() for shape in SHAPES]
    rates = torch.logspace(-4, -1, 10, dtype=torch.float64)

    def ends(members):
        adam = Adam([x[0, members].clone() for x in draws], rates[members])
        for number in range(1, 4):
            adam.step([x[number, members] for x in draws])
        return [*adam.parameters, *adam.means, *adam.squares]

    together = ends(slice(None))
    for member in range(10):
        for own, of_all in zip(ends(slice(member, member + 1)), together, strict=True):
            assert torch.equal(own[0], of_all[member])


def test_more_entries_than_fit_into_an_int32():
    free, _ = torch.cuda.mem_get_info()
    if free < 40 * 2**30:
        pytest.skip("needs 40 GB")
    width = 2**30 + 4
    adam = Adam([torch.ones(2, width, device="cuda")], torch.tensor([1e-1, 1e-2]))
    gradient = torch.ones(2, width, device="cuda")
    adam.step([gradient])
    gradient[1, -1] = math.nan
    adam.step([gradient])
    assert adam.passed_over() == [0, 1]
    for member, (rate, mean) in enumerate([(1e-1, 0.19), (1e-2, 0.09)]):
        ends = adam.parameters[0][member, [0, -1]]
        assert ends[0] == ends[1]
        assert ends[0].item() < 1 - rate
        assert adam.means[0][member].amin().item() == adam.means[0][member].amax().item() == pytest.approx(mean)
