"""Attractors, fixed points, exponents and continuations of the recurrent parts of models: those of each part alone."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import multistable as ms
from generators import generator

SMALL = {"batches": 2, "batch_size": 20, "stabilisation": 300}


class Stacked(nn.Module):
    """A readout, a network, and one that reads it in both directions."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.before, self.lower, self.upper = nn.Linear(3, 2), nn.GRU(2, 5), nn.LSTM(5, 4, bidirectional=True)

    def forward(self, x):
        return self.upper(self.lower(self.before(x))[0])[0]


BATCHES = [torch.randn(7, 15, 3, generator=generator(seed)) for seed in range(2)]


def lower_alone(model):
    """What the lower part reads of all batches."""
    return model.before(torch.cat(BATCHES, dim=1)).detach()


def attractors(rnn, x, **more):
    found = ms.attractors(rnn, x, inputs="zero", generator=generator(), **SMALL, **more)
    return {name: (each.points, each.labels, each.starts) for name, each in of_parts(found).items()}


def exponents(rnn, x, **more):
    found = ms.lyapunov(rnn, x, exponents=2, steps=60, generator=generator(), **SMALL, **more)
    return {name: (each.exponents,) for name, each in of_parts(found).items()}


def fixed(rnn, x, **more):
    found = ms.fixed_points(rnn, "zero", sequences=x, generator=generator(), **more)
    return {name: (each.points, each.labels, each.eigenvalues) for name, each in of_parts(found).items()}


def course(rnn, x, **more):
    path = torch.tensor([[0.0, 0.0], [0.2, 0.1]]) if more.get("part") == "lower" or isinstance(rnn, nn.GRU) else "zero"
    found = ms.continuation(rnn, x, inputs=path, stabilisation=300, generator=generator(), **more)
    return {name: (each.fractions, each.path, each.steps[-1].points) for name, each in of_parts(found).items()}


def of_parts(found):
    return found if isinstance(found, dict) else {"": found}


CALLS = [attractors, exponents, fixed, course]


@pytest.mark.parametrize("call", CALLS)
def test_a_part_gives_what_it_gives_alone(call):
    model = Stacked()
    ((name, found),) = call(model, BATCHES, part="lower").items()
    assert name == ""
    for mine, alone in zip(found, call(model.lower, lower_alone(model))[""], strict=True):
        assert torch.equal(mine, alone)


@pytest.mark.parametrize("call", CALLS)
def test_several_parts_are_told_by_name(call):
    model = Stacked()
    found = call(model, DataLoader(torch.cat(BATCHES, dim=1).transpose(0, 1), batch_size=30, collate_fn=side_by_side))
    assert list(found) == ["lower", "upper.forward", "upper.backward"]
    alone = call(model.lower, lower_alone(model))[""] if call is not course else None
    for mine, other in zip(found["lower"], alone or (), strict=bool(alone)):
        assert torch.equal(mine, other)


def side_by_side(rows):
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("call", CALLS)
def test_a_model_may_be_run_in_another_way(call):
    model = Stacked()
    batches = [{"x": batch, "other": 3} for batch in BATCHES]
    found = call(model, batches, part="lower", forward=lambda model, batch: model(batch["x"]))[""]
    for mine, alone in zip(found, call(model.lower, lower_alone(model))[""], strict=True):
        assert torch.equal(mine, alone)


def test_models_of_a_training_are_followed_part_by_part_each_with_what_it_reads_there():
    """An iterator of batches is read once, and its batches are run through every model."""
    models = [Stacked(seed) for seed in range(3)]
    found = ms.continuation(models, iter(BATCHES), stabilisation=300, generator=generator())
    assert list(found) == ["lower", "upper.forward", "upper.backward"]
    for step, model in zip(found["lower"].steps, models, strict=True):
        alone = ms.attractors(
            model.lower,
            lower_alone(model),
            inputs="zero",
            batches=1,
            batch_size=30,
            stabilisation=300,
            generator=generator(),
        )
        assert torch.equal(step.starts, alone.starts)
        assert torch.equal(step.labels, alone.labels)


def test_a_shuffled_loader_is_read_once_for_all_networks():
    rnn, state = nn.GRU(2, 4), torch.random.get_rng_state()
    loader = DataLoader(torch.randn(40, 6, 2, generator=generator()), batch_size=10, shuffle=True)
    rnn.batch_first = True
    found = ms.continuation([rnn, copy.deepcopy(rnn)], loader, stabilisation=50, generator=generator())
    assert torch.equal(found.steps[0].starts, found.steps[1].starts)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_states_that_are_given_need_no_batches():
    model, states = Stacked(), torch.randn(6, 5, generator=generator())
    alone = ms.fixed_points(model.lower, "zero", states)
    assert torch.equal(ms.fixed_points(model, "zero", states, part="lower").points, alone.points)
    of_one = nn.Sequential(model.lower)
    assert torch.equal(ms.fixed_points(of_one, "zero", states).points, alone.points)
    with pytest.raises(ValueError, match=r"part must choose whose states these are, one of 'lower', 'upper.forward'"):
        ms.attractors(model, states=states)
    with pytest.raises(ValueError, match="states must be given, or sequences in place of them, got both"):
        ms.fixed_points(model, "zero", states, sequences=BATCHES)
    with pytest.raises(ValueError, match="states must be given, or sequences in place of them, got neither"):
        ms.fixed_points(model, "zero")


@pytest.mark.parametrize("call", [ms.attractors, ms.lyapunov])
def test_inputs_are_refused_before_a_model_is_run(call):
    model = Stacked()
    model.before.register_forward_pre_hook(lambda *_: pytest.fail("the model was run"))
    with pytest.raises(ValueError, match="inputs must be"):
        call(model, BATCHES, inputs="none")
