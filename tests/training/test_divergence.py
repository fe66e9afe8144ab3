"""Adam, and runs whose gradients or states are not finite: they are told of, and the others do not suffer."""

import math
import warnings

import pytest
import torch
from torch import nn

from multistable.tasks import TASKS, CopyFirstInput
from multistable.training import Callback, Model, RunFolder, train
from multistable.training.adam import Adam, shortened
from small_runs import outcome, small

# Adam


def test_adam_is_pytorchs_for_each_member():
    rates = [1e-1, 1e-3, 5e-2]
    start = torch.randn(3, 4, 2, dtype=torch.float64)
    stacked = start.clone()
    alone = [nn.Parameter(weight.clone()) for weight in start]
    optimisers = [torch.optim.Adam([p], lr=rate) for p, rate in zip(alone, rates, strict=True)]
    adam = Adam([stacked], torch.tensor(rates, dtype=torch.float64))
    for _ in range(30):
        gradient = torch.randn(3, 4, 2, dtype=torch.float64)
        adam.step([gradient])
        for parameter, optimiser, grad in zip(alone, optimisers, gradient, strict=True):
            parameter.grad = grad.clone()
            optimiser.step()
    torch.testing.assert_close(stacked, torch.stack([p.detach() for p in alone]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("entry", [math.nan, -1e20])
def test_a_member_passes_over_a_gradient_that_would_stay_in_its_moments(entry):
    """-1e20 is finite in float32, and its square is not. The others are untouched, to the last bit."""
    draws = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 3, 4, 2, generator=draws)
    spoilt, passed = gradients.clone(), gradients.clone()
    spoilt[2, 1, 3, 0] = entry
    passed[2, 1] = 0
    ends = []
    for given in (spoilt, passed, gradients):
        weights = [torch.ones(3, 4, 2), torch.ones(3, 2)]
        adam = Adam(weights, torch.full((3,), 1e-2))
        for gradient in given:
            adam.step([gradient, gradient.sum(dim=1)])
        counts = adam.passed_over()
        ends.append([*weights, *adam.means, *adam.squares])
        assert counts == ([0, 1, 0] if given is spoilt else [0, 0, 0])
        assert adam.passed_over() == [0, 0, 0]
    for own, as_zero, undisturbed in zip(*ends, strict=True):
        assert torch.equal(own, as_zero)
        assert torch.equal(own[[0, 2]], undisturbed[[0, 2]])


# A limit to the norm of gradients


def of_norm(norm, generator):
    """Gradients of one member for weights ``(4, 2)`` and ``(2,)``, of this norm together."""
    entries = torch.randn(10, generator=generator, dtype=torch.float64)
    entries *= norm / entries.norm()
    return entries[:8].reshape(4, 2), entries[8:]


def stepped(gradients, **options):
    """Weights and moments after steps on gradients ``[step][member]`` for the weights of :func:`of_norm`."""
    weights = [torch.ones(len(gradients[0]), *shape, dtype=torch.float64) for shape in ((4, 2), (2,))]
    adam = Adam(weights, torch.full((len(gradients[0]),), 1e-2), **options)
    for members in gradients:
        adam.step([torch.stack(parts) for parts in zip(*members, strict=True)])
    assert adam.passed_over() == [0] * len(gradients[0])
    return [*weights, *adam.means, *adam.squares]


def test_a_longer_gradient_is_shortened_to_the_limit_and_a_shorter_one_untouched():
    """Of each member by itself, the third without a limit; in the first step the first member is longer alone."""
    draws = torch.Generator().manual_seed(0)
    norms, limits = [[10.0, 0.5, 4.0], [0.1, 3.0, 2.0]], [1.0, 1.0, math.inf]
    given, by_hand = [], []
    for step in norms:
        given.append([of_norm(norm, draws) for norm in step])
        shares = [min(1.0, limit / norm) for norm, limit in zip(step, limits, strict=True)]
        by_hand.append([[g * share for g in parts] for parts, share in zip(given[-1], shares, strict=True)])
    limited, unlimited = stepped(given, max_norms=torch.tensor(limits)), stepped(given)
    torch.testing.assert_close(limited, stepped(by_hand), rtol=1e-12, atol=1e-14)
    for own, other in zip(limited, unlimited, strict=True):
        assert not (own[:2] == other[:2]).any()
        assert torch.equal(own[2], other[2])
    for own, other in zip(stepped(given[:1], max_norms=torch.tensor(limits)), stepped(given[:1]), strict=True):
        assert torch.equal(own[1:], other[1:])


def test_gradients_too_large_or_too_small_to_be_squared_are_shortened_as_others():
    dtype, huge, tiny = torch.float32, 1e38, 1e-25
    entries = torch.rand(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 0.5
    scales = torch.tensor([1.0, 1e30, huge, tiny, tiny, 0.0, 1e30], dtype=torch.float64)
    limits = torch.tensor([0.01, 0.01, 0.01, 0.01 * tiny, 0.01, 0.01, math.inf], dtype=dtype)
    gradients = (entries * scales.view(-1, 1, 1)).to(dtype)
    found = torch.cat(shortened([gradients[:, :2], gradients[:, 2:]], limits), dim=1)
    direction = (entries / entries.norm()).to(dtype).expand(4, -1, -1)
    close = {"rtol": 1e-5, "atol": 0.0}
    torch.testing.assert_close(found[:4] / limits[:4].view(-1, 1, 1), direction, **close)
    assert torch.equal(found[4:], gradients[4:])


def test_with_a_limit_too_a_gradient_that_is_not_finite_is_passed_over():
    weights = torch.ones(3, 4)
    adam = Adam([weights], torch.full((3,), 1e-2), max_norms=torch.ones(3))
    gradient = torch.ones(3, 4)
    gradient[1, 2] = -math.inf
    adam.step([gradient])
    assert adam.passed_over() == [0, 1, 0]
    assert torch.equal(weights[1], torch.ones(4))
    assert torch.equal(adam.means[0][1], torch.zeros(4))
    torch.testing.assert_close(adam.means[0][[0, 2]], torch.full((2, 4), 0.05))  # a tenth of 1 / 2


def test_what_shortens_reads_nothing_back():
    """On the device of tensors without numbers, where whoever looks at one fails: it can be recorded."""
    gradients = [torch.empty(3, 4, 2, device="meta"), torch.empty(3, device="meta")]
    found = shortened(gradients, torch.empty(3, device="meta"))
    assert [g.shape for g in found] == [g.shape for g in gradients]


# A run that diverges


class Explosive(CopyFirstInput):
    """Copy whose loss is not finite for the first of the data sets, while :attr:`explodes`."""

    explodes = True

    def loss(self, outputs, targets):
        value = super().loss(outputs, targets)
        return value * torch.tensor([math.inf if self.explodes else 1.0, *[1.0] * (value.numel() - 1)])


@pytest.fixture
def explosive(monkeypatch):
    monkeypatch.setitem(TASKS, "explosive", Explosive)
    return [small(task=Explosive(6), seed=seed) for seed in (0, 1)]


def test_a_run_that_diverges_does_not_spoil_the_others(tmp_path, explosive):
    with pytest.warns(RuntimeWarning, match=f"{explosive[0].name}: 3 gradients passed over"):
        folders = train(explosive, tmp_path / "together")
    (alone,) = train(small(seed=1), tmp_path / "alone")
    assert folders[0].metrics()[-1]["validation_loss"] is None
    assert folders[0].summary()["results"]["test_loss"] is None
    assert folders[1].summary()["results"]["test_loss"] == pytest.approx(
        alone.summary()["results"]["test_loss"], rel=1e-4
    )
    assert folders[1].metrics()[-1]["vaa"] == alone.metrics()[-1]["vaa"]


@pytest.fixture
def infinite(monkeypatch):
    """Runs of seed 0 have a weight that is not finite."""
    of = Model.of

    def spoilt(config):
        model = of(config)
        if config.seed == 0:
            torch.nn.init.constant_(next(model.rnn.parameters()), math.nan)
        return model

    monkeypatch.setattr(Model, "of", spoilt)


@pytest.mark.usefixtures("infinite")
def test_a_run_whose_states_are_not_finite_has_no_vaa_and_leaves_the_others_theirs(tmp_path):
    (alone,) = train(small(seed=1), tmp_path / "alone")
    with pytest.warns(RuntimeWarning, match="3 gradients passed over"):
        folders = train([small(), small(seed=1)], tmp_path / "together")
    assert [row["vaa"] for row in folders[0].metrics()] == [None] * 3
    assert [row["vaa"] for row in folders[1].metrics()] == [row["vaa"] for row in alone.metrics()]


@pytest.mark.usefixtures("infinite")
def test_a_warmup_that_diverges_does_not_stop_those_beside_it(tmp_path):
    """Whether or not there is a run beside them that is not warmed up at all."""
    warmed = [small(version="warmup", seed=seed, epochs=1) for seed in (0, 1, 2)]
    alone = [outcome(folder) for folder in train(warmed[1:], tmp_path / "alone")]
    for beside in ([], [small(seed=3, epochs=1)]):
        with pytest.warns(RuntimeWarning, match="3 gradients passed over"):
            diverged, *others = train([*warmed, *beside], tmp_path / f"with {len(beside)}")[:3]
        assert diverged.warmup().keys() == {"outcome", "reason"}
        assert diverged.summary()["results"]["warmup"] == "diverged"
        for folder, (rows, _, _, course, _) in zip(others, alone, strict=True):
            told = outcome(folder)
            assert told[0][0] == rows[0]
            assert told[3] | {"together": 1} == course | {"together": 1}


def test_an_epoch_is_not_lost_where_warnings_are_errors(tmp_path, explosive):
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        for epochs in (1, 2):
            with pytest.raises(RuntimeWarning, match="3 gradients passed over"):
                train(explosive, tmp_path)
            assert all(RunFolder.of(run, tmp_path).checkpoints()[-1] == epochs for run in explosive)
        folders = train(explosive, tmp_path)
    assert [row.get("passed_over") for row in folders[0].metrics()] == [None, 3, 3]


def test_a_run_goes_on_after_a_gradient_that_was_not_finite(tmp_path, explosive, monkeypatch):
    """In the second of three steps of the first of two epochs; and the run beside it never knows."""
    monkeypatch.setattr(Explosive, "explodes", False)
    undisturbed = train(explosive, tmp_path / "undisturbed")

    class Once(Callback):
        def on_step(self, configs, epoch, step):
            Explosive.explodes = (epoch, step) == (1, 1)

    with pytest.warns(RuntimeWarning, match=f"{explosive[0].name}: 1 gradient passed over") as caught:
        spoilt, beside = train(explosive, tmp_path / "spoilt", callbacks=[Once()])
    assert len(caught) == 1
    assert [row.get("passed_over") for row in spoilt.metrics()] == [None, 1, None]
    assert spoilt.summary()["record"]["passed_over"] == 1
    losses = [row["validation_loss"] for row in spoilt.metrics()]
    assert losses[0] > losses[1] > losses[2]
    assert losses[1] != undisturbed[0].metrics()[1]["validation_loss"]
    assert "passed_over" not in beside.summary()["record"]
    for own, other in zip(beside.metrics(), undisturbed[1].metrics(), strict=True):
        assert own | {"seconds": 0} == other | {"seconds": 0}
    assert all(torch.equal(weight, undisturbed[1].weights()[name]) for name, weight in beside.weights().items())
