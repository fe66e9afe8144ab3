"""Algorithm 2 on every kind of network and every form of sequences."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

import multistable as ms
from generators import generator
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.system import system_of
from multistable.dynamics.system.whole_states import flat
from networks import FEATURES, KINDS, Leaky, in_layout, make, state_after


class Batch(NamedTuple):
    inputs: Any
    targets: Any


def inputs(time, n, seed=1):
    return torch.randn(time, n, FEATURES, dtype=torch.float64, generator=generator(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_one_batched_pass_equals_one_pass_for_each_sequence(kind):
    rnn, x = make(kind), inputs(9, 6)
    times = Draws(generator()).times(torch.full((6,), 9))
    states = ms.reachable_states(rnn, in_layout(rnn, x), generator=generator())
    expected = torch.stack([state_after(rnn, x[: times[i], i]) for i in range(6)])
    torch.testing.assert_close(states, expected, rtol=1e-10, atol=1e-12)


def test_a_pass_longer_than_a_window_of_time_steps():
    rnn, x = make("stacked torch.nn.GRU"), inputs(200, 8)
    times = Draws(generator()).times(torch.full((8,), 200))
    assert times.max() > 120
    expected = torch.stack([state_after(rnn, x[: times[i], i]) for i in range(8)])
    torch.testing.assert_close(ms.reachable_states(rnn, x, generator=generator()), expected, rtol=1e-10, atol=1e-12)


def test_time_steps_are_uniform_over_each_sequence():
    """A network that counts its steps tells which one was drawn."""

    class Counter(nn.Module):
        def forward(self, x, state=None):
            count = x.new_zeros(x.shape[1], 1) if state is None else state
            return x, count + len(x)

    lengths = [1, 3, 7] * 400
    sequences = [torch.zeros(length, 1) for length in lengths]
    counts = ms.reachable_states(Counter(), sequences, generator=generator()).flatten().long()
    for length in (1, 3, 7):
        drawn = counts[torch.tensor(lengths) == length]
        shares = torch.bincount(drawn, minlength=length + 1)[1:] / 400
        assert len(shares) == length
        assert (shares - 1 / length).abs().max() < 0.09


def test_all_forms_of_sequences_give_the_same_states():
    rnn, x = make("torch.nn.GRU"), inputs(7, 6)
    expected = ms.reachable_states(rnn, x, generator=generator())
    listed = list(x.unbind(1))
    targets = torch.zeros(6)
    batch_first = x.transpose(0, 1)
    objects = np.empty(6, dtype=object)
    objects[:] = [sequence.numpy() for sequence in listed]
    forms = {
        "list": listed,
        "tuple": tuple(listed),
        "packed": pack_sequence(listed),
        "batches": [x[:, :4], x[:, 4:]],
        "generator of batches": (part for part in (x[:, :2], x[:, 2:])),
        "batches of lists": [listed[:1], listed[1:]],
        "packed batches": [pack_sequence(listed[:3]), pack_sequence(listed[3:])],
        "batches with targets": [(x[:, :4], targets[:4]), (x[:, 4:], targets[4:])],
        "inputs and targets": (x, x),
        "pairs of sequences": [(sequence, sequence) for sequence in listed],
        "array": x.numpy(),
        "list of arrays": [sequence.numpy() for sequence in listed],
        "batches of arrays": [x[:, :4].numpy(), x[:, 4:].numpy()],
        "array of inputs and of targets": (x.numpy(), np.array(["a"] * 6)),
        "batches of arrays with targets": [(x[:, :4].numpy(), targets[:4].numpy()), (x[:, 4:].numpy(), None)],
        "array of arrays": objects,
        "named batches of arrays": [Batch(x[:, :4].numpy(), None), Batch(x[:, 4:].numpy(), None)],
    }
    for name, form in forms.items():
        states = ms.reachable_states(rnn, form, generator=generator())
        torch.testing.assert_close(states, expected, rtol=0, atol=0, msg=name)
    loader = DataLoader(TensorDataset(batch_first, targets), batch_size=4)
    rnn = nn.GRU(FEATURES, 5, batch_first=True).double()
    rnn.load_state_dict(make("torch.nn.GRU").state_dict())
    torch.testing.assert_close(ms.reachable_states(rnn, loader, generator=generator()), expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["backwards", "read only", "of the other byte order", "in float32"])
def test_an_array_is_taken_however_it_lies_in_memory(kind):
    rnn, x = make("torch.nn.GRU"), inputs(7, 6).float().double()
    array = x.numpy()
    if kind == "backwards":
        array = array[::-1].copy()[::-1]
    elif kind == "read only":
        array = array.copy()
        array.flags.writeable = False
    else:
        array = array.astype(np.float32 if kind == "in float32" else array.dtype.newbyteorder())
    found = ms.reachable_states(rnn, array, generator=generator())
    assert torch.equal(found, ms.reachable_states(rnn, x, generator=generator()))


@pytest.mark.parametrize("form", ["list", "packed", "batches"])
def test_sequences_of_different_lengths_end_where_they_end(form):
    rnn = make("torch.nn.LSTM")
    lengths = [2, 9, 5, 1, 70]
    listed = [inputs(length, 1, seed=length)[:, 0] for length in lengths]
    sequences = {
        "list": listed,
        "packed": pack_sequence(listed, enforce_sorted=False),
        "batches": [listed[:3], listed[3:]],
    }[form]
    times = Draws(generator()).times(torch.tensor(lengths))
    expected = torch.stack([state_after(rnn, u[:t]) for u, t in zip(listed, times, strict=True)])
    states = ms.reachable_states(rnn, sequences, generator=generator())
    torch.testing.assert_close(states, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["torch.nn.GRU", "stacked torch.nn.GRU", "module of sequences", "ms.RNN mgu"])
def test_gradients_reach_the_users_own_parameters(kind):
    rnn, x = make(kind), inputs(5, 4)
    times = Draws(generator()).times(torch.full((4,), 5))
    weights = torch.randn(4, 64, dtype=torch.float64, generator=generator())

    def weighted(states):
        return (states * weights[:, : states.shape[1]]).sum()

    expected = torch.autograd.grad(
        weighted(torch.stack([state_after(rnn, x[: times[i], i]) for i in range(4)])), list(rnn.parameters())
    )
    found = torch.autograd.grad(
        weighted(ms.reachable_states(rnn, in_layout(rnn, x), generator=generator())), list(rnn.parameters())
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_a_forward_of_the_users_own_is_called():
    class Forgetful(nn.GRU):
        def forward(self, x, state=None):
            output, state = super().forward(x, state)
            return output, 0 * state

    states = ms.reachable_states(Forgetful(FEATURES, 5).double(), inputs(5, 4))
    assert states.shape == (4, 5)
    assert not states.any()


def test_the_default_device_does_not_matter():
    rnn, x = make("torch.nn.GRU"), inputs(5, 4)
    expected = ms.reachable_states(rnn, x, generator=generator())
    with torch.device("meta"):
        found = ms.reachable_states(rnn, x, generator=generator())
        ms.reachable_states(rnn, list(x.unbind(1)), generator=generator())
    assert torch.equal(found, expected)


def test_no_gradients_when_they_are_off():
    with torch.no_grad():
        assert not ms.reachable_states(make("torch.nn.GRU"), inputs(5, 4)).requires_grad


@pytest.mark.parametrize("own", [False, True])
def test_members_of_an_ensemble_reach_what_they_reach_alone(own):
    members = [make("ms.RNN lstm", seed) for seed in range(3)]
    x = torch.randn(70, 3, 5, FEATURES, dtype=torch.float64, generator=generator(2))
    sequences = x if own else x[:, 0]
    generators = [generator(seed) for seed in range(3)]
    together = ms.reachable_states(ms.Ensemble(members), sequences, generator=generators)
    shared = ms.reachable_states(ms.Ensemble(members), sequences, generator=generator(1))
    for index, member in enumerate(members):
        data = x[:, index] if own else sequences
        alone = ms.reachable_states(member, data, generator=generator(index))
        torch.testing.assert_close(together[index], alone, rtol=1e-12, atol=1e-14)
        alone = ms.reachable_states(member, data, generator=generator(1))
        torch.testing.assert_close(shared[index], alone, rtol=1e-12, atol=1e-14)


def test_data_of_another_precision_is_taken():
    rnn = nn.GRU(FEATURES, 5)
    assert ms.reachable_states(rnn, inputs(5, 4)).dtype == torch.float32


def test_without_a_generator_the_seed_of_torch_decides():
    rnn, x = make("torch.nn.GRU"), inputs(50, 20)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first = ms.reachable_states(rnn, x)
        again = ms.reachable_states(rnn, x)
        torch.manual_seed(4)
        other = ms.reachable_states(rnn, x)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_module_that_needs_a_batch_first_attribute_says_so_by_having_it():
    rnn = Leaky(FEATURES, 5, batch_first=True).double()
    x = inputs(9, 4)
    other = Leaky(FEATURES, 5).double()
    other.load_state_dict(rnn.state_dict())
    torch.testing.assert_close(
        ms.reachable_states(rnn, x.transpose(0, 1), generator=generator()),
        ms.reachable_states(other, x, generator=generator()),
    )


@pytest.mark.parametrize("members", [None, 2])
def test_sequences_that_have_ended_are_left_out_and_change_nothing(members):
    """More sequences than are kept at the least; gradients flow as before. In an ensemble all go on."""
    networks = [
        ms.RNN("lstm", 1, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (0, 1)
    ]
    rnn = networks[0] if members is None else ms.Ensemble(networks)
    leading = () if members is None else (members,)
    u = torch.randn(70, *leading, 40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    times = torch.randint(1, 71, (*leading, 40), generator=torch.Generator().manual_seed(3))
    system, rows = system_of(rnn, 1), []
    advance = type(system).advance

    def counted(self, u, states=None):
        rows.append(u.shape[-2])
        return advance(self, u, states)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(system), "advance", counted)
        found = flat(system.reached(u, times))
    expected = flat(system.states_at(u, times))
    assert rows[0] == 40
    assert (rows[-1] < 40) == (members is None)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(x.square().sum(), list(rnn.parameters())) for x in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
