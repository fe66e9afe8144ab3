"""Networks of an ensemble advance and train exactly as each would alone."""

import copy
import operator
import re

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import multistable as ms
from numpy_cells import entry, fields, normal, with_random_weights

R, TIME, N, INPUT, HIDDEN = 3, 5, 2, 2, 4
TIGHT = {"rtol": 1e-10, "atol": 1e-13}

ARCHITECTURES = [
    *(pytest.param(cell, {"num_layers": 1 + n % 2}, id=cell) for n, cell in enumerate(ms.CELLS)),
    pytest.param("gru", {"num_layers": 2, "recurrent_bias": True}, id="gru-recurrent_bias"),
    pytest.param("lstm", {"num_layers": 2, "double": True}, id="lstm-double"),
    pytest.param("brc", {"num_layers": 1, "double": True}, id="brc-double"),
    pytest.param(("gru", "lstm"), {"num_layers": 2, "double": True}, id="gru-lstm"),
    pytest.param("lstm", {"num_layers": 2, "bidirectional": True}, id="both-ways"),
]
every_architecture = pytest.mark.parametrize(("cell", "options"), ARCHITECTURES)
few_architectures = pytest.mark.parametrize(("cell", "options"), ARCHITECTURES[-5:])


def make_members(cell, options: dict, count: int = R) -> list[ms.RNN]:
    return [
        with_random_weights(ms.RNN(cell, INPUT, HIDDEN, dtype=torch.float64, **options), seed) for seed in range(count)
    ]


def random_state(rnn: ms.RNN):
    """A state of an ensemble of members like ``rnn``, in the form that its forward returns."""
    _, end = rnn(normal(1, N, INPUT).movedim(0, 1 if rnn.batch_first else 0))
    assert fields(end)[0].shape[1] == N
    drawn = tuple(0.5 * normal(len(field), R, *field.shape[1:], seed=40 + i) for i, field in enumerate(fields(end)))
    return drawn[0] if isinstance(end, Tensor) else drawn


def objective(output: Tensor, state, member: int) -> Tensor:
    """A number that depends on every entry of a member's output and final state, other for each member."""
    return sum((t * normal(*t.shape, seed=50 + 10 * member + i)).sum() for i, t in enumerate((output, *fields(state))))


@every_architecture
@pytest.mark.parametrize(("batch_first", "shared"), [(False, False), (True, True)], ids=["own", "batch-first-shared"])
def test_members_have_the_outputs_states_and_gradients_they_have_alone(cell, options, batch_first, shared):
    members = make_members(cell, {**options, "batch_first": batch_first})
    ensemble = ms.Ensemble(members)
    batch = (N, TIME, INPUT) if batch_first else (TIME, N, INPUT)
    member_dimension = 0 if batch_first else 1
    x = normal(*batch) if shared else torch.stack([normal(*batch, seed=r) for r in range(R)], member_dimension)
    before = random_state(members[0])
    variables = [x, *fields(before)]
    for tensor in variables:
        tensor.requires_grad_()

    output, state = ensemble(x, before)
    output_of = output.unbind(member_dimension)
    total = sum(objective(output_of[r], entry(state, r), r) for r in range(R))
    together = torch.autograd.grad(total, [*variables, *ensemble.parameters()])

    total_alone = 0
    for r, member in enumerate(members):
        own_output, own_state = member(x if shared else x.select(member_dimension, r), entry(before, r))
        assert_close(output_of[r], own_output, **TIGHT)
        assert_close(entry(state, r), own_state, **TIGHT)
        total_alone = total_alone + objective(own_output, own_state, r)
    apart = torch.autograd.grad(total_alone, [*variables, *(p for m in members for p in m.parameters())])

    assert_close(together[: len(variables)], apart[: len(variables)], **TIGHT)
    count = len(list(ensemble.parameters()))
    for r in range(R):
        own = apart[len(variables) + r * count : len(variables) + (r + 1) * count]
        for (name, _), stacked, alone in zip(ensemble.named_parameters(), together[len(variables) :], own, strict=True):
            assert alone.abs().max() > 0, name
            assert_close(stacked[r], alone, msg=lambda m, name=name: f"{name}: {m}", **TIGHT)


@few_architectures
def test_twenty_adam_steps_train_each_member_as_if_alone(cell, options):
    members = make_members(cell, options)
    ensemble = ms.Ensemble(members)
    x = [normal(TIME, N, INPUT, seed=r) for r in range(R)]
    units = HIDDEN * (1 + members[0].bidirectional)
    target = [normal(TIME, N, units, seed=70 + r) for r in range(R)]
    start = [copy.deepcopy(member.state_dict()) for member in members]

    optimiser = torch.optim.Adam(ensemble.parameters(), lr=1e-2)
    for _ in range(20):
        optimiser.zero_grad()
        output, _ = ensemble(torch.stack(x, dim=1))
        error = (output - torch.stack(target, dim=1)) ** 2
        error.mean(dim=(0, 2, 3)).sum().backward()
        optimiser.step()

    for r, member in enumerate(members):
        optimiser = torch.optim.Adam(member.parameters(), lr=1e-2)
        for _ in range(20):
            optimiser.zero_grad()
            ((member(x[r])[0] - target[r]) ** 2).mean().backward()
            optimiser.step()

    for member, trained, initial in zip(members, ensemble.unstack(), start, strict=True):
        alone = member.state_dict()
        assert trained.state_dict().keys() == alone.keys()
        for name, value in trained.state_dict().items():
            assert (value - initial[name]).abs().max() > 0.05, name
            assert_close(value, alone[name], rtol=1e-10, atol=1e-12)


@few_architectures
def test_unstack_gives_the_members_back(cell, options):
    members = make_members(cell, options)
    returned = ms.Ensemble(members).unstack()
    assert len(returned) == R
    x = normal(TIME, N, INPUT)
    for member, same in zip(members, returned, strict=True):
        assert isinstance(same, ms.RNN)
        assert repr(same) == repr(member)
        assert same.state_dict().keys() == member.state_dict().keys()
        for name, value in same.state_dict().items():
            assert torch.equal(value, member.state_dict()[name]), name
        assert_close(same(x), member(x), rtol=0, atol=0)


def test_members_are_copied_and_never_changed():
    members = make_members("lstm", {"num_layers": 2})
    members[0](normal(TIME, N, INPUT))[0].sum().backward()
    weights = [copy.deepcopy(member.state_dict()) for member in members]
    gradients = [p.grad.clone() for p in members[0].parameters()]

    ensemble = ms.Ensemble(members)
    assert all(p.grad is None for p in ensemble.parameters())
    ensemble(normal(TIME, N, INPUT))[0].sum().backward()
    returned = ensemble.unstack()
    with torch.no_grad():
        for parameter in (*ensemble.parameters(), *(p for m in returned for p in m.parameters())):
            parameter.add_(1)

    for member, before in zip(members, weights, strict=True):
        for name, value in member.state_dict().items():
            assert torch.equal(value, before[name]), name
    assert all(torch.equal(p.grad, g) for p, g in zip(members[0].parameters(), gradients, strict=True))
    assert all(p.grad is None for member in members[1:] for p in member.parameters())


def test_unstacked_members_are_apart_from_the_ensemble_and_from_each_other():
    members = make_members("gru", {})
    ensemble = ms.Ensemble(members)
    first, second, _ = ensemble.unstack()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.zero_()
    for name, value in second.state_dict().items():
        assert torch.equal(value, members[1].state_dict()[name])
    for name, value in ensemble.unstack()[0].state_dict().items():
        assert torch.equal(value, members[0].state_dict()[name])


def test_one_network_twice_becomes_two_members():
    (network,) = make_members("mgu", {}, count=1)
    ensemble = ms.Ensemble([network, network])
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter[0].zero_()
    output, _ = ensemble(normal(TIME, N, INPUT))
    assert torch.count_nonzero(output[:, 0]) == 0
    assert_close(output[:, 1], network(normal(TIME, N, INPUT))[0], **TIGHT)


def test_an_ensemble_of_one():
    (member,) = make_members("nbrc", {"num_layers": 2, "double": True}, count=1)
    ensemble = ms.Ensemble([member])
    x = normal(TIME, N, INPUT)
    output, state = ensemble(x)
    assert len(ensemble) == 1
    assert output.shape == (TIME, 1, N, HIDDEN)
    assert state.shape == (2, 1, N, HIDDEN)
    own_output, own_state = member(x)
    assert_close(output[:, 0], own_output, **TIGHT)
    assert_close(state[:, 0], own_state, **TIGHT)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_shapes(cell, batch_first):
    ensemble = ms.Ensemble(make_members(cell, {"num_layers": 2, "batch_first": batch_first}))
    assert len(ensemble) == R
    assert ensemble.batch_first is batch_first
    one = normal(N, TIME, INPUT) if batch_first else normal(TIME, N, INPUT)
    each = normal(R, N, TIME, INPUT) if batch_first else normal(TIME, R, N, INPUT)
    for x in (one, each):
        output, state = ensemble(x)
        assert output.shape == ((R, N, TIME, HIDDEN) if batch_first else (TIME, R, N, HIDDEN))
        assert [field.shape for field in fields(state)] == [(2, R, N, HIDDEN)] * (2 if cell == "lstm" else 1)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_state_carries_over_two_halves_of_a_sequence(cell):
    ensemble = ms.Ensemble(make_members(cell, {"num_layers": 2, "double": True}))
    x = normal(6, R, N, INPUT)
    first, middle = ensemble(x[:2])
    second, end = ensemble(x[2:], middle)
    assert_close((torch.cat([first, second]), end), ensemble(x), **TIGHT)


def test_frozen_weights_stay_frozen():
    members = make_members("gru", {})
    for member in members:
        member.layers[0].cell.bias.requires_grad_(False)
    ensemble = ms.Ensemble(members)
    for network in (ensemble.network, *ensemble.unstack()):
        frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
        assert frozen == {"layers.0.cell.bias"}


def test_members_that_disagree_on_what_is_frozen_are_refused():
    members = make_members("gru", {})
    members[1].layers[0].cell.bias.requires_grad_(False)
    with pytest.raises(ValueError, match="member 1"):
        ms.Ensemble(members)


def test_an_ensemble_draws_no_random_numbers():
    members = make_members("gru", {})
    before = torch.random.get_rng_state()
    ms.Ensemble(members).unstack()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_no_member_is_refused():
    with pytest.raises(ValueError, match="at least one member, got none"):
        ms.Ensemble([])


def test_a_member_of_another_library_is_refused():
    with pytest.raises(TypeError, match=r"members must be ms\.RNN networks, got GRU at index 1"):
        ms.Ensemble([*make_members("gru", {}, count=1), nn.GRU(INPUT, HIDDEN)])


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_the_function_that_a_refused_member_is_pointed_to_exists_and_takes_it(kind):
    with pytest.raises(TypeError, match=rf"from_torch converts .*\b{kind.__name__}\b") as error:
        ms.Ensemble([kind(INPUT, HIDDEN)])
    path = re.search(r"\bms\.([\w.]*from_torch)", str(error.value)).group(1)
    assert operator.attrgetter(path)(ms) is ms.networks.from_torch
    assert len(ms.Ensemble([ms.from_torch(kind(INPUT, HIDDEN))])) == 1


@pytest.mark.parametrize(("cell", "options"), [
    ("mgu", {}),
    ("gru", {"hidden_size": 6}),
    ("gru", {"input_size": 3}),
    ("gru", {"num_layers": 2}),
    ("gru", {"double": True}),
    ("gru", {"batch_first": True}),
    ("gru", {"recurrent_bias": True}),
    ("gru", {"dtype": torch.float32}),
])  # fmt: skip
def test_members_of_different_architectures_are_refused(cell, options):
    others = {"input_size": INPUT, "hidden_size": HIDDEN, "dtype": torch.float64, **options}
    with pytest.raises(ValueError, match="share one architecture; member 2 differs from member 0"):
        ms.Ensemble([*make_members("gru", {}, count=2), ms.RNN(cell, **others)])


@pytest.mark.parametrize("option", [{"dropout": 0.5}, {"bidirectional": True}, {"bias": False}], ids=str)
def test_members_that_differ_from_the_first_in_an_option_are_refused(option):
    with pytest.raises(ValueError, match="share one architecture; member 1 differs from member 0"):
        ms.Ensemble([ms.RNN("gru", INPUT, HIDDEN, 2), ms.RNN("gru", INPUT, HIDDEN, 2, **option)])


def test_members_whose_cells_have_different_options_are_refused():
    tanh, relu = (ms.networks.from_torch(nn.RNN(INPUT, HIDDEN, nonlinearity=name)) for name in ("tanh", "relu"))
    with pytest.raises(ValueError, match="share one architecture; member 1 differs from member 0"):
        ms.Ensemble([tanh, relu])


@pytest.mark.parametrize("shape", [(TIME, R + 1, N, INPUT), (TIME, INPUT), (TIME,), (TIME, 1, R, N, INPUT)], ids=str)
def test_an_input_in_no_known_layout_is_refused(shape):
    with pytest.raises(ValueError, match=rf"an ensemble of R = {R} must be \(time, R, n, features\)"):
        ms.Ensemble(make_members("gru", {}))(normal(*shape))


def test_an_input_in_no_known_layout_is_refused_batch_first():
    with pytest.raises(ValueError, match=r"R = 3 must be \(R, n, time, features\).*got shape \(5, 2, 2, 2\)"):
        ms.Ensemble(make_members("gru", {"batch_first": True}))(normal(5, 2, 2, 2))


def test_an_input_of_the_wrong_width_is_refused():
    with pytest.raises(ValueError, match=f"input_size = {INPUT} features, got {INPUT + 1}"):
        ms.Ensemble(make_members("gru", {}))(normal(TIME, N, INPUT + 1))


@pytest.mark.parametrize("shape", [(1, R + 1, N, HIDDEN), (1, R, N + 1, HIDDEN)], ids=str)
def test_a_state_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match="state"):
        ms.Ensemble(make_members("gru", {}))(normal(TIME, N, INPUT), normal(*shape))
