"""The constant inputs are the user's to choose, and so are the states to start from."""

import warnings

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from networks import FEATURES, FEW_FORMS, Leaky, in_layout, make

SIZES = {"batch_size": 8, "stabilisation": 200}


class Sign(nn.Module):
    """One unit that remembers a sign while its input is 0, and has the sign of a strong input."""

    def forward(self, x, state=None):
        h = torch.zeros_like(x[0]) if state is None else state
        for u in x:
            h = torch.tanh(3 * h + u)
        return h, h


READ = 7.0
"""What the networks below read; their constant inputs are different."""


def heard(call, **choices):
    """The different inputs that a network of one layer hears, besides those of its sequences."""
    rnn, inputs = Leaky(1, 3), []
    x = torch.full((4, 12, 1), READ)
    handle = rnn.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        call(rnn, x, generator=generator(), **choices)
    handle.remove()
    # The first calls find out how the module is called.
    convention = {round(value, 4) for value in torch.linspace(-1, 1, 1).tolist()}
    return {round(value, 4) for u in inputs for value in u.reshape(-1).tolist()} - {READ} - convention


CALLS = {
    "measure": lambda *given, **choices: ms.measure(*given, batch_size=8, stabilisation=5, **choices),
    "attractors": lambda *given, **choices: ms.attractors(*given, batch_size=8, stabilisation=5, longest=3, **choices),
    "lyapunov": lambda *given, **choices: ms.lyapunov(*given, batch_size=8, stabilisation=5, steps=4, **choices),
    "warmup": lambda *given, **choices: ms.warmup(*given, steps=6, batch_size=8, **choices),
    "paper": lambda *given, **choices: ms.warmup(*given, steps=8, batch_size=8, algorithm="paper", **choices),
    "wanted": lambda *given, **choices: ms.warmup(*given, steps=2, batch_size=8, target=0.5, **choices),
}


@pytest.mark.parametrize("name", [name for name in CALLS if name != "wanted"])
def test_a_network_hears_the_inputs_that_were_chosen_and_no_others(name):
    call = CALLS[name]
    assert heard(call, inputs="zero") <= {0.0}
    assert heard(call, inputs="data") <= {0.0}
    assert heard(call, inputs=torch.tensor([[0.5], [0.25]])) - {0.0} == {0.5, 0.25}
    assert len(heard(call)) > 5


def test_a_wanted_vaa_is_for_the_inputs_that_were_chosen():
    """Some states hear an input that changes all the time; under the default no input is a given one."""
    assert {0.5, 0.25} <= heard(CALLS["wanted"], inputs=torch.tensor([[0.5], [0.25]]))
    assert not {0.5, 0.25} & heard(CALLS["wanted"])


def vaas(**choices):
    x = torch.randn(5, 32, 1, generator=generator())
    return ms.measure(Sign(), x, generator=generator(), **SIZES | choices).batches.tolist()


def test_vaa_is_that_under_the_chosen_input():
    """Both signs under none, the input's own under a strong one; given inputs are taken in turn."""
    two, one = 2 / 8, 1 / 8
    assert vaas(inputs="zero") == [two] * 10
    assert vaas(inputs=torch.tensor([5.0])) == [one] * 10
    assert vaas(inputs=[0.0, 5.0, 0.0], batches=6) == [two, one, two] * 2
    assert vaas(inputs="zero") == vaas(inputs=torch.zeros(1))


def test_each_given_input_has_as_many_batches():
    assert len(vaas(inputs=torch.linspace(-1, 1, 3))) == 12
    assert len(vaas(inputs=torch.linspace(-1, 1, 25))) == 25
    assert len(vaas(inputs="data")) == len(vaas()) == 10


def test_inputs_from_data_are_of_all_sequences_and_all_their_time_steps():
    """And of no padding: sequences of different lengths, in which each number is there once."""
    starts, lengths = [10, 20, 30], [3, 5, 9]
    x = [torch.arange(s, s + n, dtype=torch.float32).unsqueeze(-1) for s, n in zip(starts, lengths, strict=True)]
    found = ms.attractors(Sign(), x, inputs="data", batches=200, stabilisation=1, longest=1, generator=generator())
    drawn = set(found.inputs.squeeze(-1).tolist())
    assert drawn == {float(s + t) for s, n in zip(starts, lengths, strict=True) for t in range(n)}


def test_inputs_from_data_are_what_the_sequences_hold_at_each_members_own():
    """A member whose sequences are strong inputs, and one whose sequences are silent."""
    members = [ms.RNN("brc", 1, 1) for _ in range(2)]
    with torch.no_grad():
        for member in members:
            for parameter in member.parameters():
                parameter.zero_()
            member.layers[0].cell.bias[1] = 1.0
            member.layers[0].cell.input_weight[0, 2] = 1.0
    states = torch.tensor([[-0.5], [0.5]])
    x = torch.stack([torch.full((5, 4, 1), 9.0), torch.zeros(5, 4, 1)], dim=1)
    found = ms.measure(ms.Ensemble(members), x, states=states, inputs="data", stabilisation=500)
    assert found.vaa == [0.5, 1.0]


@pytest.mark.parametrize("kind", FEW_FORMS)
def test_reachable_states_can_be_given_in_place_of_sequences(kind):
    rnn = make(kind)
    x = in_layout(rnn, torch.randn(6, 9, FEATURES, generator=generator(), dtype=torch.float64))
    states = ms.reachable_states(rnn, x, generator=generator()).detach()
    one_step = ms.measure(rnn, states=states, inputs=torch.zeros(FEATURES), stabilisation=1, eps=1e-9)
    assert one_step.batches.shape == (1,)
    assert one_step.vaa == 1.0
    doubled = torch.cat([states, states])
    assert ms.measure(rnn, states=doubled, inputs=torch.zeros(FEATURES), stabilisation=1, eps=1e-9).vaa == 0.5


def test_given_states_are_drawn_in_batches_if_a_size_is_given():
    states = torch.tensor([[-0.5], [0.5]]).repeat(50, 1)
    found = ms.measure(Sign(), states=states, inputs=[0.0], batches=5, generator=generator(), **SIZES)
    assert found.batches.tolist() == [2 / 8] * 5


def test_members_of_an_ensemble_start_from_their_own_states():
    members = [ms.RNN("gru", 1, 4, generator=generator(seed)) for seed in range(2)]
    states = torch.rand(2, 6, 4, generator=generator())
    together = ms.measure(ms.Ensemble(members), states=states, inputs="zero", stabilisation=3)
    alone = [
        ms.measure(rnn, states=own, inputs="zero", stabilisation=3).vaa
        for rnn, own in zip(members, states, strict=True)
    ]
    assert together.vaa == alone


@pytest.mark.parametrize("call", [ms.measure, ms.attractors, ms.lyapunov, ms.warmup])
@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ("none", ValueError, "inputs must be \"normal\" .* got 'none'"),
        (None, TypeError, 'inputs must be "normal" .* got None'),
        (torch.zeros(3), ValueError, r"\(k, features\) with 2 features, got shape \(3,\)"),
        (torch.zeros(0, 2), ValueError, r"got shape \(0, 2\)"),
        (torch.tensor([0.0, torch.nan]), ValueError, "inputs must be finite"),
    ],
)
def test_inputs_that_are_none(call, inputs, error, message):
    with pytest.raises(error, match=message):
        call(nn.GRU(2, 4), torch.zeros(5, 50, 2), inputs=inputs)


@pytest.mark.parametrize("call", [ms.measure, ms.attractors, ms.lyapunov])
def test_states_that_are_none(call):
    rnn = nn.LSTM(2, 4)
    for states, error, message in (
        (torch.zeros(3, 4), ValueError, r"states must be \(n, 8\), the whole state of all layers.* shape \(3, 4\)"),
        (torch.zeros(8), ValueError, r"states must be a tensor \(n, d\).* got shape \(8,\)"),
        (torch.full((3, 8), torch.inf), ValueError, "states must be finite"),
        ("zero", TypeError, "states must be a tensor .* got 'zero'"),
    ):
        with pytest.raises(error, match=message):
            call(rnn, states=states)
    with pytest.raises(ValueError, match='inputs="data" needs sequences to draw from'):
        call(rnn, states=torch.zeros(3, 8), inputs="data")
    with pytest.raises(ValueError, match="batch_size must not exceed the number of states, 3, got 4"):
        call(rnn, states=torch.zeros(3, 8), batch_size=4)
    with pytest.raises(ValueError, match="batches must be at least the number of inputs, 3, got 2"):
        call(rnn, torch.zeros(5, 50, 2), inputs=torch.zeros(3, 2), batches=2)
