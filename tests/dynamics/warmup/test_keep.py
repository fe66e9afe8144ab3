"""The term that keeps attractors: its value and its gradient written out, when it acts, and what it leaves alone."""

import json
import runpy

import pytest
import torch
from torch import nn

import multistable as ms
from models import SHORT, Classifier, N, Translator, numbers, seeded, tokens
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.reading import sequence_set
from multistable.dynamics.warmup.keep import INPUTS, SAFE_LOOKS, WEIGHT, _Watched, equal_histories
from networks import FEATURES, FORMS, in_layout, make, remembering_signs, state_after
from paths import ROOT

PERIOD, EPS, FINER = 6, 0.3, 0.02
# With so large a tolerance no states are all apart: the term is on in every call.
ALWAYS = {"target": 1.0, "every": 1, "stabilisation": PERIOD, "eps": EPS}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def inputs(time=7, n=9, features=FEATURES, seed=1):
    return torch.randn(time, n, features, dtype=torch.float64, generator=generator(seed))


def gradients(rnn, term):
    found = torch.autograd.grad(term, list(rnn.parameters()), materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


def written_out(rnn, x, seed, call, *, n):
    """VAA* and the mean of -log VAA*_i of a torch.nn.GRU of one layer, sequence by sequence."""
    draws = Draws(generator(seed + call))
    batch = draws.batch(x.shape[1], n)
    times = draws.times(torch.full((n,), len(x)))
    states = [state_after(rnn, x[:t, i]) for i, t in zip(batch.tolist(), times.tolist(), strict=True)]
    start = torch.stack(states).detach()
    values, losses = [], []
    for u in draws.normal(INPUTS, x.shape[-1]):
        end = rnn(u.expand(PERIOD, n, -1), start.unsqueeze(0))[1][0]
        values.append(ms.vaa_star(end, FINER))
        y = end.tanh()
        for i in range(n):
            others = [FINER / (y[i] - y[j]).norm() for j in range(n) if j != i]
            losses.append(torch.log(1 + sum(others)))
    return torch.stack(values).mean(), torch.stack(losses).mean()


def test_value_and_gradient_are_those_written_out():
    rnn, x = make("torch.nn.RNN"), inputs()
    keep = ms.Keep(rnn, x, **ALWAYS | {"eps": FINER}, weight=3.0, batch_size=5, generator=generator(2))
    seed = Draws(generator(2)).integer(2**31).item()
    for call in (1, 2):
        term = keep()
        value, loss = written_out(rnn, x, seed, call, n=5)
        assert 1 / 5 < value < 0.9
        torch.testing.assert_close(term.detach(), 3 * (1 - value).detach())
        assert keep.history[-1].vaa_star.item() == pytest.approx(value.item())
        direction = gradients(rnn, loss)
        torch.testing.assert_close(gradients(rnn, term), term.detach() * direction / direction.norm())
        with torch.no_grad():
            rnn.weight_hh_l0.mul_(1.1)  # the next look is at the weights as they are then


@pytest.mark.parametrize("kind", FORMS)
def test_every_kind_of_network_has_a_term_with_a_gradient_of_its_norm(kind):
    rnn = make(kind)
    term = ms.Keep(rnn, in_layout(rnn, inputs()), **ALWAYS)()
    assert 0 < term.item() <= WEIGHT
    assert term.shape == ()
    assert gradients(rnn, term).norm().item() == pytest.approx(term.item())


def test_of_a_double_layer_the_warmed_half_alone_has_a_gradient():
    rnn = make("double ms.RNN gru")
    ms.Keep(rnn, inputs(), **ALWAYS)().backward()
    pushed = {name for name, p in rnn.named_parameters() if p.grad is not None and p.grad.any()}
    assert pushed
    assert all(".warmed." in name for name in pushed)


def test_it_goes_on_and_off_by_what_it_sees():
    watched, target = _Watched.of(torch.tensor(0)), torch.tensor(0.8, dtype=torch.float64)
    course = []
    for value in (0.9, 0.75, 0.71, 0.75, 0.9, 0.79, *[0.8] * SAFE_LOOKS, 0.75):
        watched.saw(torch.tensor(value, dtype=torch.float64), target)
        course.append(watched.on.item())
    assert course == [False, False, True, True, True, True, *[True] * (SAFE_LOOKS - 1), False, False]


def test_there_is_a_look_every_few_calls_and_a_gradient_where_it_is_on():
    for target in (0.0, 1.0):
        keep = ms.Keep(make("torch.nn.GRU"), inputs(), target=target, every=3, stabilisation=PERIOD, eps=EPS)
        terms = [keep() for _ in range(8)]
        assert [look.call for look in keep.history] == [0, 3, 6]
        assert [term.requires_grad for term in terms] == [target == 1.0 and call % 3 == 0 for call in range(1, 9)]
        assert all(term == 0 for term in terms if not term.requires_grad)


def test_calls_without_gradients_are_zero_and_do_not_count():
    keep = ms.Keep(make("torch.nn.GRU"), inputs(), **ALWAYS)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert keep() == 0
    assert (keep.calls, len(keep.history)) == (0, 1)
    assert keep().requires_grad


@pytest.mark.parametrize("kept", [False, True])
def test_attractors_are_kept_from_a_loss_that_would_take_them(kept):
    """Units remember a sign if their recurrent weight is above 1; the loss wants it to be 0."""
    rnn = remembering_signs(8)
    x = torch.randn(10, 40, 8, generator=generator())
    keep = ms.Keep(rnn, x, inputs="zero", generator=generator())
    optimiser = torch.optim.Adam(rnn.parameters(), lr=2e-2)
    for _ in range(120):
        loss = 0.1 * rnn.weight_hh_l0.diag().square().sum() + (keep() if kept else 0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    vaa = ms.measure(rnn, x, inputs="zero", batches=2, stabilisation=500, generator=generator()).vaa
    assert (vaa > 0.8) == kept
    assert vaa == pytest.approx(1 / 32) or kept


def test_members_of_an_ensemble_are_kept_as_they_would_be_alone():
    members = [ms.RNN("lstm", FEATURES, 6, 2, generator=generator(seed), dtype=torch.float64) for seed in range(3)]
    options = {"every": 1, "stabilisation": PERIOD, "batch_size": 5, "eps": EPS}
    targets = [1.0, 0.0, 0.9]

    def trained(rnn, target, draws):
        keep = ms.Keep(rnn, inputs(), target=target, generator=draws, **options)
        optimiser = torch.optim.Adam(rnn.parameters(), lr=1e-2)
        for _ in range(6):
            optimiser.zero_grad()
            (sum(p.square().sum() for p in rnn.parameters()) + keep()).backward()
            optimiser.step()
        return keep

    ensemble = ms.Ensemble(members)
    together = trained(ensemble, targets, [generator(seed) for seed in range(3)])
    assert len(set(together.on)) == 2
    for index, (member, same) in enumerate(zip(members, ensemble.unstack(), strict=True)):
        alone = trained(member, targets[index], generator(index))
        for p, q in zip(member.parameters(), same.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)
        seen = [(look.call, look.vaa_star[index].item()) for look in together.history]
        own = [(look.call, look.vaa_star.item()) for look in alone.history]
        assert [call for call, _ in seen] == [call for call, _ in own]
        assert [value for _, value in seen] == pytest.approx([value for _, value in own])


def test_a_training_goes_on_with_the_same_numbers():
    def trained(rnn, keep, optimiser, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            (0.5 * rnn.weight_hh_l0.square().sum() + keep()).backward()
            optimiser.step()

    def made():
        rnn = remembering_signs(8)
        keep = ms.Keep(rnn, inputs(features=8, n=40).float(), inputs="zero", every=2, weight=2)
        return rnn, keep, torch.optim.SGD(list(rnn.parameters()), lr=0.05)

    whole = made()
    trained(*whole, 40)
    rnn, keep, optimiser = made()
    trained(rnn, keep, optimiser, 17)
    weights, state = rnn.state_dict(), json.loads(json.dumps(keep.state_dict()))
    again = made()
    again[0].load_state_dict(weights)
    again[1].load_state_dict(state)
    trained(*again, 23)
    assert all(map(torch.equal, whole[0].parameters(), again[0].parameters()))
    assert str(again[1].state_dict()) == str(whole[1].state_dict())
    assert len({look.on.item() for look in whole[1].history}) == 2


def test_every_part_of_a_model_has_a_term_for_what_it_reads_now():
    model = seeded(Translator)
    keep = ms.Keep(model, [numbers(5, 8, 4, seed=seed) for seed in range(3)], **ALWAYS)
    term = keep()
    term.backward()
    assert keep.on == {"encoder": True, "decoder": True}
    assert all(p.grad is not None for p in model.parameters())
    chosen = ms.Keep(model, [numbers(5, 8, 4)], part="encoder", **ALWAYS)
    assert {look.part for look in keep.history} == {"encoder", "decoder"}
    assert {look.part for look in chosen.history} == {""}
    with torch.no_grad():
        before = [p.clone() for p in model.decoder.parameters()]
        model.encoder.weight_ih_l0.zero_()
        model.encoder.bias_ih_l0.zero_()
    again = ms.Keep(model, [numbers(5, 8, 4, seed=seed) for seed in range(3)], **ALWAYS)
    keep(), again()
    assert all(map(torch.equal, before, model.decoder.parameters()))
    same = [look.vaa_star.item() for term in (keep, again) for look in term.history[-2:] if look.part == "decoder"]
    assert same[0] != pytest.approx(keep.history[3].vaa_star.item())


def test_a_model_is_run_on_other_batches_each_time():
    seen = []

    class Counted(Classifier):
        def forward(self, tokens):
            seen.append(tokens[0, 0].item())
            return super().forward(tokens)

    model = seeded(Counted)
    batches = [tokens().roll(shift, 0)[:20] for shift in range(4)]
    keep = ms.Keep(model, batches, batch_size=10, **ALWAYS)
    seen.clear()
    keep(), keep()
    assert seen == [batches[1][0, 0].item(), batches[2][0, 0].item()]


def test_states_that_are_equal_from_the_start_need_not_stay_apart():
    sequences = inputs(time=1, n=1).expand(1, 9, FEATURES)
    keep = ms.Keep(make("torch.nn.GRU"), sequences, **ALWAYS)
    assert keep.history[0].vaa_star == 1
    other = ms.Keep(make("torch.nn.GRU"), sequences + 1e-6 * inputs(time=1), **ALWAYS)
    assert other.history[0].vaa_star == pytest.approx(1 / 9)


def test_histories_are_equal_up_to_their_time_steps():
    x = inputs(time=6, n=5)
    x[:4, 1] = x[:4, 0]
    x[:, 2] = x[:, 0]
    data, times = sequence_set(x), torch.tensor([4, 4, 5, 4, 6])
    found = equal_histories(data, torch.tensor([0, 1, 2, 2, 4]), times)
    same = torch.eye(5, dtype=torch.bool)
    for i, j in ((0, 1), (0, 3), (1, 3)):
        same[i, j] = same[j, i] = True
    assert torch.equal(found, same)
    assert not equal_histories(data, torch.tensor([0, 1]), torch.tensor([5, 5]))[0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_the_term_is_the_same(dtype):
    terms = []
    for enabled in (False, True):
        rnn = make("torch.nn.LSTM").float()
        keep = ms.Keep(rnn, inputs().to(dtype), **ALWAYS)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            terms.append(keep())
    assert terms[0].dtype == torch.float32
    assert torch.equal(*terms)


def test_states_that_diverge_leave_weights_without_a_push():
    rnn = make("torch.nn.RNN relu")
    keep = ms.Keep(rnn, inputs(), **ALWAYS)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(1e300)
    term = keep()
    assert term.isfinite()
    assert term == 0 or gradients(rnn, term).isfinite().all()


def test_frozen_networks_have_no_term():
    rnn = make("torch.nn.GRU")
    keep = ms.Keep(rnn, inputs(), **ALWAYS)
    rnn.requires_grad_(False)
    assert keep() == 0
    with pytest.raises(ValueError, match="must have recurrent parameters that require gradients, got none"):
        ms.Keep(rnn, inputs())


def test_it_says_what_happened():
    keep = ms.Keep(make("torch.nn.GRU"), inputs(), **ALWAYS)
    keep()
    assert repr(keep) == "Keep(calls=1, looks=2, on=True)"
    values = [look.vaa_star.item() for look in keep.history]
    told = f"VAA* {values[1]:.3f}, at worst {min(values):.3f}; on at 2 of 2 looks, and now (1 calls)"
    assert str(keep) == told
    twins = ms.Ensemble([ms.RNN("gru", FEATURES, 4) for _ in range(2)])
    assert [line[:11] for line in str(ms.Keep(twins, inputs())).splitlines()] == ["network 0: ", "network 1: "]


def test_the_example_trains_an_lstm_of_the_users_own(capsys):
    names = runpy.run_path(str(ROOT / "examples" / "keep_attractors.py"))
    with pytest.warns(ms.WarmupWarning):
        keep = names["main"](6, T=5, sequences=40, train_steps=50, **SHORT)
    assert keep.calls == 50
    assert [look.call for look in keep.history] == list(range(0, 51, keep.every))
    assert "step 50: loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rnn": nn.Linear(2, 4)}, "no recurrent layers"),
        ({"rnn": 3}, "rnn must be a torch.nn.Module, got int"),
        ({"rnn": nn.GRU(FEATURES, 4).bfloat16()}, "Keep needs float32 or float64 parameters"),
        ({"sequences": []}, "sequences must not be empty"),
        ({"sequences": inputs(n=1)}, "at least two"),
        ({"target": 1.5}, r"target must lie in \[0, 1\], got 1.5"),
        ({"target": [0.5, 0.5]}, "target must be one number"),
        ({"weight": 0}, "weight must be a positive number, got 0"),
        ({"every": 0}, "every must be a positive integer, got 0"),
        ({"batch_size": N}, f"batch_size must not exceed the number of sequences, 9, got {N}"),
        ({"stabilisation": None}, "stabilisation must be a positive integer"),
        ({"eps": -1}, "eps must be a positive number"),
        ({"inputs": "other"}, "inputs must be"),
        ({"generator": 3}, "generator must be a torch.Generator"),
        ({"part": "nothing"}, "part must be the name of a recurrent part"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ms.Keep(**{"rnn": nn.GRU(FEATURES, 4), "sequences": inputs()} | changes)


@pytest.mark.parametrize("state", [None, {}, {"calls": -1, "networks": {}, "history": []}, {"calls": 1}])
def test_a_state_that_is_none_is_refused(state):
    keep = ms.Keep(make("torch.nn.GRU"), inputs())
    with pytest.raises(ValueError, match="state_dict must be"):
        keep.load_state_dict(state)
    assert keep.calls == 0


def test_a_state_of_other_networks_is_refused():
    twins = ms.Ensemble([ms.RNN("gru", FEATURES, 4) for _ in range(2)])
    with pytest.raises(ValueError, match="for the same networks"):
        ms.Keep(make("torch.nn.GRU"), inputs()).load_state_dict(ms.Keep(twins, inputs()).state_dict())
