"""The tasks against the definitions of section 4, for random T and N. The registry drives the general tests."""

import dataclasses
import itertools
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generators import generator
from multistable.tasks import TASKS, CopyFirstInput, Data, Denoising, Task, mnist

# Of the paper's tasks: their arguments here; length, input_size, output_size and answers; the shape of a target.
ARGUMENTS = {"copy": {"T": 12}, "denoising": {"T": 20, "N": 7}, "psmnist": {}, "plmnist": {"N": 3}}
SIZES = {"copy": (12, 1, 1, 1), "denoising": (20, 2, 1, 5), "psmnist": (784, 1, 10, 1), "plmnist": (31, 28, 10, 1)}
TARGETS = {"copy": (1,), "denoising": (5,), "psmnist": (), "plmnist": ()}


def made(name: str) -> Task:
    """A registered task. One that has no line in ``ARGUMENTS`` gets 20 for each field without a default."""
    fields = dataclasses.fields(TASKS[name])
    required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    return TASKS[name](**ARGUMENTS.get(name, dict.fromkeys(required, 20)))


seeds = st.integers(0, 2**32)
lengths = st.integers(1, 60)
# T and N of a denoising task: N >= 5 and T - N >= 5.
denoising = st.builds(
    lambda N, more, cue: Denoising(N + more, N, cue), st.integers(5, 30), st.integers(5, 30), st.booleans()
)


def within(value: torch.Tensor, expected: float, deviation: float) -> bool:
    """No entry is further than five standard deviations from what is expected."""
    return bool(((value - expected).abs() <= 5 * deviation).all())


@pytest.fixture(params=TASKS)
def name(request):
    return request.param


@pytest.fixture
def task(name, monkeypatch):
    """One of the registered tasks; random images stand in for MNIST, whose files have their own tests."""

    def load(split, folder):
        rng = np.random.default_rng(0 if split == "train" else 1)
        n = 60 if split == "train" else 30
        return mnist.Digits(rng.integers(0, 256, (n, 28, 28), np.uint8), rng.integers(0, 10, n, np.uint8))

    monkeypatch.setattr(mnist, "load", load)
    return made(name)


def answers(task: Task, n: int = 6, leading: tuple[int, ...] = (), seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random outputs ``(time, ..., n, output_size)`` and targets ``(..., n, ...)`` of the task, in float64."""
    g = generator(seed)
    outputs = torch.randn(task.length, *leading, n, task.output_size, dtype=torch.float64, generator=g)
    members = [task.training(n, generator=g, dtype=torch.float64).targets for _ in range(math.prod(leading))]
    return outputs, torch.stack(members).unflatten(0, leading) if leading else members[0]


# All tasks


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_the_papers_tasks(task, name):
    assert (task.length, task.input_size, task.output_size, task.answers) == SIZES[name]
    data = task.training(11, generator=generator())
    assert data.targets.shape == (11, *TARGETS[name])
    assert data.targets.dtype == (torch.int64 if task.output_size == 10 else torch.float32)


@pytest.mark.parametrize(("split", "dtype"), [("training", torch.float32), ("testing", torch.float64)])
def test_shapes_and_types(task, split, dtype):
    data = getattr(task, split)(11, generator=generator(), dtype=dtype)
    assert isinstance(task, Task)
    assert isinstance(data, Data)
    assert data.inputs.shape == (task.length, 11, task.input_size)
    assert len(data.targets) == 11
    assert data.inputs.dtype == dtype
    assert data.targets.dtype in (torch.int64, dtype)
    assert data.inputs.is_contiguous()
    assert data.targets.is_contiguous()


def test_a_seed_decides_the_data(task):
    for draw in (task.training, task.testing):
        first, again, other = (draw(13, generator=generator(seed)) for seed in (5, 5, 6))
        assert torch.equal(first.inputs, again.inputs)
        assert torch.equal(first.targets, again.targets)
        assert not torch.equal(first.inputs, other.inputs)
    g = generator()
    assert not torch.equal(task.training(13, generator=g).inputs, task.testing(13, generator=g).inputs)


def test_the_type_does_not_change_what_is_drawn(task):
    single, double = (task.training(13, generator=generator(), dtype=t) for t in (torch.float32, torch.float64))
    assert torch.allclose(single.inputs.double(), double.inputs, rtol=torch.finfo(torch.float32).eps, atol=0)
    assert torch.equal(single.targets.double(), double.targets.double())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_data_is_drawn_where_the_generator_is(task):
    data, again = (task.training(9, generator=torch.Generator("cuda").manual_seed(0)) for _ in range(2))
    assert data.inputs.device.type == data.targets.device.type == "cuda"
    assert torch.equal(data.inputs, again.inputs)
    assert task.training(9, generator=torch.Generator("cuda"), device="cpu").inputs.device.type == "cpu"


def test_data_is_on_the_device_asked_for_and_shares_no_memory(task):
    data = task.training(3, generator=generator(), device="meta")
    assert data.inputs.device.type == data.targets.device.type == "meta"
    data = task.training(4, generator=generator())
    before = data.targets.clone()
    data.inputs.fill_(7.0)
    assert torch.equal(data.targets, before)


def test_global_random_state_is_left_as_it_is(task):
    def state():
        kind, words, *rest = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().tolist(), (kind, words.tolist(), rest), random.getstate()

    # Not where an earlier call would have left it, were it to seed.
    np.random.rand()  # noqa: NPY002
    before = state()
    task.training(5, generator=generator())
    task.testing(generator=generator())
    assert state() == before


def test_a_task_is_its_parameters(task, name):
    assert TASKS[name](**dataclasses.asdict(task)) == task
    assert hash(made(name)) == hash(task)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.T = 3


@pytest.mark.parametrize("split", ["training", "testing"])
def test_bad_draws_are_refused(split):
    draw = getattr(CopyFirstInput(5), split)
    for n in (0, -1, 2.5, "3"):
        with pytest.raises(ValueError, match=f"n must be a positive integer, got {n!r}"):
            draw(n, generator=generator())
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, got int"):
        draw(3, generator=0)
    with pytest.raises(TypeError, match=r"dtype must be a floating-point type, got torch\.int64"):
        draw(3, generator=generator(), dtype=torch.int64)


def test_members_of_an_ensemble_are_as_if_alone(task):
    leading = (2, 3)
    outputs, targets = answers(task, leading=leading)
    loss, accuracy = task.loss(outputs, targets), task.accuracy(outputs, targets)
    assert loss.shape == leading
    for member in itertools.product(*map(range, leading)):
        alone = outputs[:, *member], targets[member]
        torch.testing.assert_close(loss[member], task.loss(*alone), rtol=1e-14, atol=0)
        if accuracy is not None:
            assert accuracy[member] == task.accuracy(*alone)
    # They may share their targets.
    outputs, _ = answers(task, leading=(3,))
    _, targets = answers(task)
    same = targets.expand(3, *targets.shape)
    assert torch.equal(task.loss(outputs, targets), task.loss(outputs, same))
    if task.accuracy(outputs, same) is not None:
        assert torch.equal(task.accuracy(outputs, targets), task.accuracy(outputs, same))


def test_the_loss_reads_the_time_steps_of_the_answers_and_targets_of_their_shape_only(task):
    outputs, targets = answers(task)
    outputs.requires_grad_()
    task.loss(outputs, targets).backward()
    read = outputs.grad.flatten(1).abs().sum(1).nonzero().flatten().tolist()
    assert read == list(range(task.length - task.answers, task.length))
    last = outputs[-task.answers :].detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda o: task.loss(o, targets), last)
    for wrong in (targets[:-1], targets.unsqueeze(-1)):
        with pytest.raises(ValueError, match=r"targets must be \(\.\.\., 6.* got shape"):
            task.loss(outputs, wrong)


# Copy first input


@given(T=lengths, n=st.integers(1, 20), seed=seeds)
def test_copy_asks_for_the_first_input(T, n, seed):
    inputs, targets = CopyFirstInput(T).training(n, generator=generator(seed))
    assert inputs.shape == (T, n, 1)
    assert torch.equal(targets, inputs[0])


def check_white_noise(u: torch.Tensor) -> None:
    """``u (T, n)`` has the moments of N(0, 1), time steps are uncorrelated; 5 standard deviations of each estimate."""
    u = u.double()
    n, total = u.shape[1], u.numel()
    assert within(u.mean(), 0, 1 / math.sqrt(total))
    assert within(u.square().mean(), 1, math.sqrt(2 / total))
    assert within(u.pow(3).mean(), 0, math.sqrt(15 / total))
    assert within(u.pow(4).mean(), 3, math.sqrt(96 / total))
    inside = math.erf(1 / math.sqrt(2))
    assert within((u.abs() < 1).double().mean(), inside, math.sqrt(inside * (1 - inside) / total))
    assert within((u @ u.T / n)[~torch.eye(len(u), dtype=bool)], 0, 1 / math.sqrt(n))


@given(T=lengths, seed=seeds)
def test_the_inputs_of_copy_are_white_noise(T, seed):
    check_white_noise(CopyFirstInput(T).training(2000, generator=generator(seed)).inputs[..., 0])


@given(T=lengths, seed=seeds)
def test_the_loss_of_copy_is_the_squared_error_of_the_last_output(T, seed):
    outputs, targets = answers(CopyFirstInput(T), seed=seed)
    expected = sum((float(outputs[T - 1, i, 0]) - float(targets[i, 0])) ** 2 for i in range(6)) / 6
    assert float(CopyFirstInput(T).loss(outputs, targets)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("T", [0, 2.5, None])
def test_copy_refuses_a_bad_length(T):
    with pytest.raises(ValueError, match=f"T must be a positive integer, got {T!r}"):
        CopyFirstInput(T)


# Denoising


@given(task=denoising, n=st.integers(1, 20), seed=seeds)
def test_denoising_marks_five_values_and_asks_for_them_in_order(task, n, seed):
    """Time steps count from 1 here, as in the paper."""
    inputs, targets = task.training(n, generator=generator(seed))
    assert inputs.shape == (task.T, n, 2)
    for i in range(n):
        u = {t: float(inputs[t - 1, i, 0]) for t in range(1, task.T + 1)}
        mark = {t: float(inputs[t - 1, i, 1]) for t in range(1, task.T + 1)}
        marked = [t for t in mark if mark[t] == 1]
        assert len(marked) == 5
        assert marked[-1] <= task.T - task.N
        assert {t: m for t, m in mark.items() if m not in {0, 1}} == ({task.T - 4: -1} if task.cue else {})
        assert targets[i].tolist() == [u[t] for t in marked]


def test_the_cue_is_there_unless_refused():
    inputs = [
        task.training(8, generator=generator()).inputs for task in (Denoising(30, 10), Denoising(30, 10, cue=False))
    ]
    difference = inputs[0] - inputs[1]
    assert (difference[25, :, 1] == -1).all()
    assert difference.count_nonzero() == 8


@given(task=denoising, seed=seeds)
def test_the_noise_and_the_targets_of_denoising_are_white_noise(task, seed):
    inputs, targets = task.training(2000, generator=generator(seed))
    check_white_noise(inputs[..., 0])
    check_white_noise(targets.T)


@pytest.mark.parametrize("choices", [5, 8])
def test_every_set_of_five_times_is_equally_likely(choices):
    """Pearson's statistic has mean k - 1 and variance 2 (k - 1) over k sets; 5 standard deviations."""
    marks = Denoising(choices + 5, 5).training(generator=generator()).inputs[:choices, :, 1].bool()
    sets, counts = torch.unique(marks, dim=1, return_counts=True)
    k, expected = math.comb(choices, 5), marks.shape[1] / math.comb(choices, 5)
    assert sets.shape[1] == k
    assert float(((counts - expected) ** 2 / expected).sum()) <= k - 1 + 5 * math.sqrt(2 * (k - 1))


@given(more=st.integers(6, 30), seed=seeds)
def test_every_time_is_marked_equally_often(more, seed):
    n, share = 2000, 5 / more
    marks = Denoising(more + 5, 5).training(n, generator=generator(seed)).inputs[:more, :, 1]
    assert within(marks.mean(1), share, math.sqrt(share * (1 - share) / n))


@given(task=denoising, seed=seeds)
def test_the_loss_of_denoising_is_the_mean_squared_error_of_the_five_answers(task, seed):
    outputs, targets = answers(task, seed=seed)
    errors = [
        (float(outputs[t - 1, i, 0]) - float(targets[i, t - (task.T - 4)])) ** 2
        for i in range(6)
        for t in range(task.T - 4, task.T + 1)
    ]
    assert len(errors) == 30
    assert float(task.loss(outputs, targets)) == pytest.approx(sum(errors) / 30, rel=1e-13)


def test_denoising_refuses_what_is_no_size():
    N = 5.5
    with pytest.raises(ValueError, match=f"N must be a positive integer, got {N!r}"):
        Denoising(100, N)
    with pytest.raises(ValueError, match=f"T must be a positive integer, got {N!r}"):
        Denoising(N, 5)


@given(N=st.integers(1, 4), T=st.integers(1, 100))
def test_denoising_refuses_answers_that_overlap_the_marks(N, T):
    with pytest.raises(ValueError, match=f"N must be at least 5, the number of answers, got {N}"):
        Denoising(T, N)


@given(N=st.integers(5, 50), T=st.integers(1, 54))
def test_denoising_refuses_a_length_without_room_for_five_marks(N, T):
    T = min(T, N + 4)
    message = rf"T must be at least N \+ 5 = {N + 5}, to hold 5 marks before the last N = {N} time steps, got {T}$"
    with pytest.raises(ValueError, match=message):
        Denoising(T, N)


# Both


def test_a_cue_is_there_or_not():
    with pytest.raises(ValueError, match="cue must be true or false, got"):
        Denoising(30, 10, cue="no")


@pytest.mark.parametrize("task", [CopyFirstInput(2), Denoising(10, 5)])
def test_forty_thousand_sequences_of_which_nothing_is_known_without_memory(task):
    for draw in (task.training, task.testing):
        inputs, targets = draw(generator=generator())
        assert inputs.shape[1] == len(targets) == 40_000
        silent = task.loss(torch.zeros(task.length, 40_000, 1), targets)
        assert within(silent, 1, math.sqrt(2 / targets.numel()))
        assert task.accuracy(torch.zeros(task.length, 40_000, 1), targets) is None
