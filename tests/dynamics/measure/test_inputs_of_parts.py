"""Constant inputs and starting states that are given, for parts of models and for sequences that begin elsewhere."""

import copy
import warnings

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from models import FEATURES, UNITS
from multistable.dynamics.system.sequences import PaddedSequences

# So few steps that VAA depends on the input.
SMALL = {"batches": 4, "stabilisation": 3, "eps": 0.1}


def model_and_what_it_reads():
    """A readout before and after a network, batches for it, and what the network reads of them."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"before": nn.Linear(3, FEATURES), "rnn": nn.GRU(FEATURES, UNITS)})
    model.forward = lambda x: model["rnn"](model["before"](x))[0]
    x = torch.randn(9, 40, 3, generator=generator())
    return model, x, model["before"](x).detach()


def test_robustness_is_that_of_the_part_alone():
    model, x, read = model_and_what_it_reads()
    small = {"batches": 2, "stabilisation": 3, "steps": 2, "eps": 0.2}
    found = ms.robustness(model, x, generator=generator(), **small)
    assert found == ms.robustness(model["rnn"], read, generator=generator(), **small)
    assert 0 < found.returned < 1
    both = ms.robustness(nn.GRU(3, 4, bidirectional=True), x, generator=generator(), **small)
    assert list(both) == ["forward", "backward"]
    with pytest.raises(ValueError, match=r"part must be the name of a recurrent part, 'rnn', .*got 'other'"):
        ms.robustness(model, x, part="other")


@pytest.mark.parametrize("inputs", ["zero", "data", torch.randn(2, FEATURES, generator=generator(1))])
def test_a_part_hears_what_it_would_hear_alone(inputs):
    model, x, read = model_and_what_it_reads()
    found = ms.measure(model, x, inputs=inputs, generator=generator(), **SMALL)
    alone = ms.measure(model["rnn"], read, inputs=inputs, generator=generator(), **SMALL)
    assert found.batches.tolist() == alone.batches.tolist()
    normal = ms.measure(model, x, generator=generator(), **SMALL)
    assert found.batches.tolist() != normal.batches.tolist()


def test_a_part_is_warmed_up_under_the_inputs_that_it_would_have_alone():
    model, x, read = model_and_what_it_reads()
    alone, normal = (copy.deepcopy(model["rnn"]) for _ in range(2))
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        ms.warmup(model, x, inputs="zero", steps=3, generator=generator())
        ms.warmup(alone, read, inputs="zero", steps=3, generator=generator())
        ms.warmup(normal, read, steps=3, generator=generator())
    assert all(torch.equal(p, q) for p, q in zip(model["rnn"].parameters(), alone.parameters(), strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(normal.parameters(), alone.parameters(), strict=True))


def test_a_part_starts_from_given_states():
    model, x, read = model_and_what_it_reads()
    states = torch.randn(6, UNITS, generator=generator())
    choices = {"states": states, "inputs": "data", "batches": 3, "stabilisation": 1}
    found = ms.measure(model, x, part="rnn", generator=generator(), **choices)
    assert found == ms.measure(model["rnn"], read, generator=generator(), **choices)
    assert found.n == 6
    with pytest.raises(ValueError, match='inputs="data" needs sequences'):
        ms.measure(model, part="rnn", **choices)
    choices |= {"inputs": "zero"}
    assert ms.measure(model, **choices) == ms.measure(model["rnn"], **choices)


def test_inputs_are_refused_before_a_model_is_run():
    model, x, _ = model_and_what_it_reads()
    model["before"].register_forward_pre_hook(lambda *_: pytest.fail("the model was run"))
    with pytest.raises(ValueError, match="inputs must be"):
        ms.measure(model, x, inputs="none")
    with pytest.raises(ValueError, match="inputs must be"):
        ms.warmup(model, x, inputs="none")


def test_a_single_given_state_has_no_vaa_but_an_attractor():
    rnn, state = nn.GRU(2, 4), torch.zeros(1, 4)
    with pytest.raises(ValueError, match="states and batch_size must be at least two"):
        ms.measure(rnn, states=state)
    assert len(ms.attractors(rnn, states=state, inputs="zero")) == 1


@pytest.mark.parametrize("call", [ms.measure, ms.attractors, ms.lyapunov])
def test_states_and_inputs_are_of_numbers_that_the_network_has(call):
    rnn, beyond = nn.GRU(2, 4), torch.full((3, 4), 1e300, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"states must be of numbers that the network's type torch.float32 has"):
        call(rnn, states=beyond)
    with pytest.raises(ValueError, match=r"inputs must be of numbers that the network's type torch.float32 has"):
        call(rnn, torch.zeros(5, 50, 2), inputs=beyond[0, :2])


def test_exponents_along_sequences_are_those_from_the_states_before_their_first_step():
    """Of a single unit by hand: the mean of log |w (1 - h^2)| over the second half of the steps."""
    rnn, w = nn.RNN(1, 1, bias=False), 0.9
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(w)
        rnn.weight_ih_l0.fill_(0.3)
    x, before = torch.zeros(9, 2, 1), torch.tensor([[0.9], [-0.2]])
    data = PaddedSequences(x, torch.tensor([9, 9]), before=before)
    found = ms.lyapunov(rnn, data, inputs="sequences", batches=1)
    expected = []
    for h in before.double().squeeze(-1):
        states = []
        for _ in range(9):
            h = torch.tanh(w * h)
            states.append(h)
        expected.append(torch.stack([torch.log(w * (1 - h**2)) for h in states[5:]]).mean().item())
    assert sorted(found.exponents.flatten().tolist()) == pytest.approx(sorted(expected), abs=1e-6)
