"""Each kind of bad input gets a message that names the argument, what was given and what is accepted."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import multistable as ms
from networks import Leaky

CALLS = {
    "reachable_states": ms.reachable_states,
    "measure": ms.measure,
    "attractors": ms.attractors,
    "lyapunov": ms.lyapunov,
    "warmup": ms.warmup,
}


@pytest.fixture(params=["reachable_states", "measure", "warmup"])
def call(request):
    """Each way in which a network and its sequences are taken; the others begin as ``measure`` does."""
    return CALLS[request.param]


@pytest.fixture
def rnn():
    return nn.GRU(2, 4)


def with_value(value):
    x = torch.zeros(5, 250, 2)
    x[3, 7, 1] = value
    return x


@pytest.mark.parametrize("name", CALLS)
def test_nan_or_infinity_in_the_sequences(name, rnn):
    call = CALLS[name]
    for x in (with_value(math.nan), with_value(math.inf), with_value(-math.inf).numpy()):
        with pytest.raises(ValueError, match="sequences must be finite, got NaN or infinity"):
            call(rnn, x)


def test_an_empty_data_set(call, rnn):
    for empty in ([], (), torch.zeros(5, 0, 2), iter(())):
        with pytest.raises(ValueError, match="sequences must not be empty, got a set of 0 sequences"):
            call(rnn, empty)


@pytest.mark.parametrize("function", [ms.measure, ms.attractors, ms.lyapunov, ms.warmup])
def test_a_batch_larger_than_the_data_set(function, rnn):
    with pytest.raises(ValueError, match="batch_size must not exceed the number of sequences, 10, got 11"):
        function(rnn, torch.zeros(5, 10, 2), batch_size=11)


def test_sequences_of_another_size_than_the_network(call, rnn):
    with pytest.raises(ValueError, match="as many features as the network's input_size, 2, got 3"):
        call(rnn, torch.zeros(5, 250, 3))


def test_sequences_of_different_sizes(call, rnn):
    with pytest.raises(ValueError, match=r"same number of features, got \[2, 3\]"):
        call(rnn, [torch.zeros(5, 2), torch.zeros(5, 3)])
    with pytest.raises(ValueError, match=r"same number of features, got \[2, 3\]"):
        call(rnn, [torch.zeros(5, 4, 2), torch.zeros(5, 4, 3)])


def test_a_sequence_of_length_0(call, rnn):
    with pytest.raises(ValueError, match="at least one time step, got a sequence of length 0"):
        call(rnn, [torch.zeros(5, 2), torch.zeros(0, 2)])
    with pytest.raises(ValueError, match="at least one time step, got a sequence of length 0"):
        call(rnn, torch.zeros(0, 250, 2))


def test_a_tensor_of_another_layout(call, rnn):
    for x in (torch.zeros(5, 2), torch.zeros(5, 3, 4, 2), np.zeros((5,))):
        with pytest.raises(ValueError, match=r"must be \(time, n, features\), got shape"):
            call(rnn, x)


def test_the_layout_in_the_message_is_the_networks(call):
    with pytest.raises(ValueError, match=r"must be \(n, time, features\), got shape \(5, 2\)"):
        call(nn.GRU(2, 4, batch_first=True), torch.zeros(5, 2))


def test_sequences_for_another_number_of_members(call):
    ensemble = ms.Ensemble([ms.RNN("gru", 2, 4) for _ in range(3)])
    with pytest.raises(ValueError, match="for each of 3 members must have 3 as their member dimension, got 2"):
        call(ensemble, torch.zeros(5, 2, 250, 2))


def test_what_is_no_sequences(call, rnn):
    for thing in (None, 3, "text", {"x": torch.zeros(5, 4, 2)}, ["a", "b"], [5, 6], np.full((5, 250, 2), "a")):
        with pytest.raises(TypeError, match="sequences must be a tensor in the network's layout, a list of"):
            call(rnn, thing)


@pytest.mark.parametrize("function", [ms.measure, ms.attractors, ms.warmup])
def test_eps_that_is_not_positive(function, rnn):
    for eps in (0, -1.0, math.nan, math.inf, 10**400, "small"):
        with pytest.raises(ValueError, match="eps must be a positive number, got"):
            function(rnn, torch.zeros(5, 250, 2), eps=eps)


@pytest.mark.parametrize("target", [-0.1, 1.5, math.nan])
def test_a_target_outside_0_and_1(rnn, target):
    with pytest.raises(ValueError, match=r"target must lie in \[0, 1\], got"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), target=target)


def test_a_target_for_another_number_of_members(rnn):
    with pytest.raises(ValueError, match=r"target must be one number, got \[0.5, 0.6\]"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), target=[0.5, 0.6])
    ensemble = ms.Ensemble([ms.RNN("gru", 2, 4) for _ in range(3)])
    with pytest.raises(ValueError, match="target must be one number or 3, one for each member"):
        ms.warmup(ensemble, torch.zeros(5, 250, 2), target=[0.5, 0.6])


@pytest.mark.parametrize("target", ["high", None, [[0.5]]])
def test_a_target_that_is_no_number(rnn, target):
    with pytest.raises(ValueError, match="target must be"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), target=target)


@pytest.mark.parametrize(("n", "lowest"), [(250, "1/32 = 0.0312"), (10, "1/10 = 0.1")])
def test_a_wanted_vaa_that_so_many_states_cannot_have(rnn, n, lowest):
    with pytest.raises(ValueError, match=f"target must be at least {lowest} where a VAA is wanted: .* got 0.01"):
        ms.warmup(rnn, torch.zeros(5, n, 2), target=0.01)
    ensemble = ms.Ensemble([ms.RNN("gru", 2, 4) for _ in range(3)])
    with pytest.raises(ValueError, match=f"target must be at least {lowest} where a VAA is wanted: .* got 0"):
        ms.warmup(ensemble, torch.zeros(5, n, 2), target=[0.95, 0, 0.5])


def test_a_tensor_of_targets_is_not_printed(rnn):
    with pytest.raises(ValueError, match=r"target must be one number, got Tensor of shape \(4, 5\)"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), target=torch.rand(4, 5))


@pytest.mark.parametrize("optimiser", ["adam", None, torch.optim.Adam([torch.zeros(1)])], ids=["name", "none", "made"])
def test_an_optimiser_that_cannot_be_made(rnn, optimiser):
    wanted = r"optimiser must be called as optimiser\(parameters, lr=lr\), such as torch.optim.Adam, got"
    with pytest.raises(TypeError, match=f"{wanted} ('adam'|None|Adam)$"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), optimiser=optimiser)


@pytest.mark.parametrize("optimiser", [torch.optim.LBFGS, dict, len, lambda p, lr: None])
def test_an_optimiser_that_cannot_take_steps(rnn, optimiser):
    with pytest.raises(TypeError, match=r"optimiser must be called as optimiser\(parameters, lr=lr\), such as .*, got"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), optimiser=optimiser)


@pytest.mark.parametrize("on_step", [3, 0, "print"])
def test_a_watcher_that_cannot_be_called(rnn, on_step):
    with pytest.raises(TypeError, match=f"on_step must be a function of a WarmupStep, or None, got {on_step!r}"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), on_step=on_step)


@pytest.mark.parametrize("name", ["lr", "tolerance"])
def test_numbers_of_a_warmup_that_are_not_positive(rnn, name):
    for value in (0, -1e-2, math.nan, "fast"):
        with pytest.raises(ValueError, match=f"{name} must be a positive number, got"):
            ms.warmup(rnn, torch.zeros(5, 250, 2), **{name: value})


SIZES = ["batches", "batch_size", "stabilisation"]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (ms.measure, SIZES),
        (ms.attractors, [*SIZES, "longest"]),
        (ms.lyapunov, [*SIZES, "steps"]),
        (ms.warmup, ["steps", "batch_size", "max_stabilisation", "increment"]),
    ],
)
def test_sizes_that_are_not_positive_integers(rnn, function, names):
    for name, value in product(names, [0, -3, 2.5, None, True, 2**31, 2**63, 10**400, 10**5000]):
        if name in ("steps", "batch_size") and value is None and function is ms.warmup:
            continue  # The algorithm's own default.
        with pytest.raises(ValueError, match=f"^{name} must be a positive integer( up to 2147483647)?, got"):
            function(rnn, torch.zeros(5, 250, 2), **{name: value})


def test_whether_to_show_progress_is_no_word(rnn):
    with pytest.raises(ValueError, match="progress must be true or false, got 'no'"):
        ms.warmup(rnn, torch.zeros(5, 250, 2), progress="no")


@pytest.mark.parametrize("function", CALLS.values())
def test_a_layout_that_is_neither_true_nor_false(function, rnn):
    rnn.batch_first = "no"
    with pytest.raises(ValueError, match="batch_first of GRU must be true or false, got 'no'"):
        function(rnn, torch.zeros(5, 250, 2))


@pytest.mark.parametrize("thing", [None, 3, "gru", nn.GRU])
def test_what_has_no_time_loops(thing):
    with pytest.raises(TypeError, match=r"rnn must be a torch.nn.Module, got"):
        ms.backends(thing)


def test_an_algorithm_that_is_not_known(rnn):
    for name in ("other", ["paper"]):
        with pytest.raises(ValueError, match="algorithm must be one of 'fast', 'reliable', 'paper', got"):
            ms.warmup(rnn, torch.zeros(5, 250, 2), algorithm=name)


def test_a_network_without_recurrent_layers(call):
    for module in (nn.Linear(2, 4), nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Identity(), nn.Conv1d(2, 4, 3)):
        name = type(module).__name__
        with pytest.raises(TypeError, match=f"{name} has no recurrent layers .*accepted are torch.nn.RNN, GRU"):
            call(module, torch.zeros(5, 250, 2))


def test_a_module_that_keeps_no_state(call):
    class Stateless(nn.Module):
        def forward(self, x, state=None):
            return x, state

    with pytest.raises(TypeError, match="Stateless has no recurrent layers"):
        call(Stateless(), torch.zeros(5, 250, 2))


def test_tokens_for_a_bare_network(call, rnn):
    for tokens in (torch.zeros(5, 250, 2, dtype=torch.long), np.zeros((5, 250, 2), dtype=np.int32)):
        with pytest.raises(TypeError, match=r"floating-point type, got torch.int.*pass the model that embeds"):
            call(rnn, tokens)


def test_what_is_no_module(call):
    with pytest.raises(TypeError, match=r"rnn must be a torch.nn.Module, got function"):
        call(lambda x: x, torch.zeros(5, 250, 2))


def test_a_network_without_values(call):
    with pytest.raises(ValueError, match="rnn must have weights with values, got a GRU on the device meta"):
        call(nn.GRU(2, 4, device="meta"), torch.zeros(5, 250, 2))


def test_nothing_that_can_be_warmed_up(rnn):
    rnn.requires_grad_(False)
    with pytest.raises(ValueError, match="recurrent layers of GRU have no parameters that require gradients"):
        ms.warmup(rnn, torch.zeros(5, 250, 2))


def test_warmup_of_half_precision(rnn):
    with pytest.raises(ValueError, match=r"warmup needs float32 or float64 parameters, got torch.bfloat16"):
        ms.warmup(rnn.bfloat16(), torch.zeros(5, 250, 2))


def test_generators_that_do_not_fit(call, rnn):
    x = torch.randn(5, 250, 2)
    for wrong, given in (([42], "int"), (42, "int"), ("seed", "str")):
        with pytest.raises(TypeError, match=rf"generator must be a torch.Generator, .*, got {given}$"):
            call(rnn, x, generator=wrong)
    two = [torch.Generator(), torch.Generator()]
    with pytest.raises(ValueError, match=r"one torch.Generator, or one for each of 1 members, got a list of 2"):
        call(rnn, x, generator=two)
    ensemble = ms.Ensemble([ms.RNN("gru", 2, 4) for _ in range(3)])
    for wrong in (two, two[:1]):
        with pytest.raises(ValueError, match=rf"one for each of 3 members, got a list of {len(wrong)}"):
            call(ensemble, x, generator=wrong)


def test_errors_come_before_any_work():
    """The network is never called, and its parameters stay."""

    class Counting(Leaky):
        calls = 0

        def forward(self, x, state=None):
            Counting.calls += 1
            return super().forward(x, state)

    rnn = Counting(2, 4)
    for arguments in ({"eps": 0}, {"target": 2}, {"steps": 0}, {"lr": -1}):
        with pytest.raises(ValueError, match="must"):
            ms.warmup(rnn, torch.zeros(5, 250, 2), **arguments)
    with pytest.raises(ValueError, match="finite"):
        ms.warmup(rnn, with_value(math.nan))
    with pytest.raises(ValueError, match="float32 has"):
        ms.warmup(rnn, with_value(1.0).double() * 1e300)
    with pytest.raises(ValueError, match="batch_size"):
        ms.warmup(rnn, torch.zeros(5, 10, 2), batch_size=11)
    assert Counting.calls == 0
