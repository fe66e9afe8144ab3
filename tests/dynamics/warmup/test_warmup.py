"""Algorithm 3: its steps written out, what it changes, and how it fails."""

import math
import warnings

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.warmup import run_warmup
from networks import FEATURES, FORMS, WithReadout, in_layout, make, remembering, state_after
from warming import pushes


def quick(rnn, x, **settings):
    """A few steps, with the warning of a short warmup taken as it comes."""
    settings = {"algorithm": "paper", "steps": 3, "batch_size": 6, "max_stabilisation": 20} | settings
    settings = {"generator": generator()} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.WarmupWarning)
        return ms.warmup(rnn, x, **settings)


def inputs(time=9, n=10, features=FEATURES, seed=1):
    return torch.randn(time, n, features, dtype=torch.float64, generator=generator(seed))


def single_layers(rnn):
    """The layers of a torch.nn.GRU as networks of one layer that share its parameters, and so its gradients."""
    layers = []
    for index in range(rnn.num_layers):
        layer = nn.GRU(rnn.hidden_size if index else rnn.input_size, rnn.hidden_size).double()
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(layer, f"{name}_l0", getattr(rnn, f"{name}_l{index}"))
        layers.append(layer)
    return layers


def warmup_written_out(rnn, x, *, steps, batch_size, lr, target, max_stabilisation, increment, eps, draws):
    """Algorithm 3, sequence by sequence and step by step, on a stacked torch.nn.GRU."""
    optimiser = torch.optim.Adam(rnn.parameters(), lr=lr)
    seen = []
    for s in range(1, steps + 1):
        batch = draws.batch(x.shape[1], batch_size)
        times = draws.times(torch.full((batch_size,), len(x)))
        states = torch.stack([state_after(rnn, x[:t, i]) for i, t in zip(batch.tolist(), times.tolist(), strict=True)])
        M = int(draws.integer(min(max_stabilisation, 1 + s * increment)))
        v = []
        for layer, X in zip(single_layers(rnn), states.split(rnn.hidden_size, dim=-1), strict=True):
            u = draws.normal(1, layer.input_size)
            final = torch.stack([layer(u.expand(M, -1), row.unsqueeze(0))[1].squeeze(0) for row in X])
            y = torch.tanh(final)
            total = 0
            for i in range(batch_size):
                d = [(y[i] - y[j]).norm() for j in range(batch_size) if j != i]
                total = total + 1 / (1 + sum(1 - torch.clamp(d_ij - eps, min=0) / d_ij for d_ij in d))
            v.append(total / batch_size)
        loss = sum((v_i - target) ** 2 for v_i in v) / len(v)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append((loss.item(), [v_i.item() for v_i in v], M))
    return seen


@pytest.mark.usefixtures("short_final_measure")
def test_warmup_is_algorithm_3_written_out():
    settings = {"steps": 4, "batch_size": 5, "lr": 1e-2, "target": 0.9, "max_stabilisation": 12}
    settings |= {"increment": 4, "eps": 1e-2}
    torch.manual_seed(0)
    fast = nn.GRU(FEATURES, 4, 2).double()
    slow = nn.GRU(FEATURES, 4, 2).double()
    slow.load_state_dict(fast.state_dict())
    x = inputs()
    expected = warmup_written_out(slow, x, **settings, draws=Draws(generator()))
    history = quick(fast, x, **settings)
    for step, (loss, v, M) in zip(history, expected, strict=True):
        assert step.loss.item() == pytest.approx(loss, rel=1e-9)
        assert step.vaa_star.tolist() == pytest.approx(v, rel=1e-9)
        assert step.stabilisation.item() == M
    for a, b in zip(fast.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("short_final_measure")
@pytest.mark.parametrize("kind", FORMS)
def test_every_kind_of_network_can_be_warmed_up(kind):
    rnn = make(kind)
    before = {name: p.clone() for name, p in rnn.named_parameters()}
    history = quick(rnn, in_layout(rnn, inputs()))
    assert len(history) == 3
    assert history.loss.shape == (3,)
    assert history.vaa_star.shape[0] == 3
    changed = {name for name, p in rnn.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert not any("transient" in name or "readout" in name for name in changed)
    if isinstance(rnn, ms.RNN) and isinstance(rnn.layers[0], ms.Double):
        assert all("warmed" in name for name in changed)


@pytest.mark.usefixtures("short_final_measure")
def test_layers_have_their_own_values():
    history = quick(make("stacked torch.nn.GRU"), inputs())
    assert history.vaa_star.shape == (3, 3)
    loss = ((history.vaa_star - 0.95) ** 2).mean(dim=1)
    torch.testing.assert_close(history.loss, loss, rtol=1e-12, atol=0)


@pytest.mark.usefixtures("short_final_measure")
@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True), ("brc", True), ("nbrc", False)])
def test_members_of_an_ensemble_are_warmed_up_as_alone(cell, double):
    """20 steps, each member with its own generator and target: same VAA*, same periods, same weights."""
    members = [ms.RNN(cell, 1, 6, 2, double=double, dtype=torch.float64, generator=generator(s)) for s in range(3)]
    x, targets = inputs(8, 12, 1), [0.95, 0.5, 0.8]
    ensemble = ms.Ensemble(members)
    generators = [generator(10 + seed) for seed in range(3)]
    settings = {"steps": 20, "batch_size": 8, "max_stabilisation": 15}
    together = quick(ensemble, x, target=targets, generator=generators, **settings)
    for seed, (member, trained) in enumerate(zip(members, ensemble.unstack(), strict=True)):
        alone = quick(member, x, target=targets[seed], generator=generator(10 + seed), **settings)
        torch.testing.assert_close(together.vaa_star[..., seed], alone.vaa_star, rtol=1e-8, atol=1e-10)
        assert torch.equal(together.stabilisation[:, seed], alone.stabilisation)
        for a, b in zip(trained.parameters(), member.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "n"),
    [
        ({}, 32),
        ({"algorithm": "reliable"}, 200),
        ({"algorithm": "paper"}, 200),
        ({"target": 0.5}, 200),
        ({"robust": 1}, 64),
    ],
)
def test_batches_have_the_size_that_is_told(options, n, monkeypatch):
    sizes = []

    def stop(algorithm, warming, *_):
        sizes.append(warming.batch_size)
        raise RuntimeError("seen")

    monkeypatch.setattr(run_warmup, "_run", stop)
    for given in (250, 20):
        with pytest.raises(RuntimeError, match="seen"):
            ms.warmup(nn.GRU(1, 2), torch.randn(3, given, 1), **options)
    assert sizes == [n, 20]


@pytest.mark.usefixtures("short_final_measure")
def test_stabilisation_periods_follow_the_schedule():
    periods = quick(make("torch.nn.GRU"), inputs(), steps=60, max_stabilisation=30, increment=2).stabilisation
    bounds = torch.minimum(torch.tensor(30), 1 + 2 * torch.arange(1, 61))
    assert (periods >= 1).all()
    assert (periods <= bounds).all()
    assert periods[:5].max() <= 11
    assert periods[20:].max() > 20


@pytest.mark.usefixtures("short_final_measure")
def test_the_optimiser_is_an_argument():
    sgd, adam = make("torch.nn.GRU"), make("torch.nn.GRU")
    start = [p.clone() for p in sgd.parameters()]
    quick(sgd, inputs(), steps=1, optimiser=torch.optim.SGD)
    quick(adam, inputs(), steps=1)
    for p, q, before in zip(sgd.parameters(), adam.parameters(), start, strict=True):
        assert not torch.equal(p, q)
        # Adam's first step is lr in every entry with a gradient that matters, SGD's is lr times the gradient.
        assert (q - before).abs().max().item() == pytest.approx(1e-2, rel=1e-3)


@pytest.mark.usefixtures("short_final_measure")
@pytest.mark.parametrize(("n", "batch_size"), [(12, 12), (201, 200)])
def test_a_batch_has_200_sequences_by_default_or_all_that_there_are(n, batch_size):
    given, default = make("torch.nn.GRU"), make("torch.nn.GRU")
    x, settings = inputs(n=n), {"algorithm": "paper", "steps": 2, "max_stabilisation": 5}
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        ms.warmup(given, x, batch_size=batch_size, generator=generator(), **settings)
        ms.warmup(default, x, generator=generator(), **settings)
    assert all(torch.equal(p, q) for p, q in zip(given.parameters(), default.parameters(), strict=True))


@pytest.mark.usefixtures("short_final_measure")
def test_progress_is_reported_after_each_step():
    seen = []
    history = quick(make("torch.nn.GRU"), inputs(), steps=4, on_step=seen.append)
    assert [step.step for step in seen] == [1, 2, 3, 4]
    assert seen[-1] is history.last


@pytest.mark.usefixtures("short_final_measure")
def test_frozen_parameters_stay():
    rnn = make("torch.nn.GRU")
    rnn.weight_ih_l0.requires_grad_(False)
    before = rnn.weight_ih_l0.clone()
    quick(rnn, inputs())
    assert torch.equal(rnn.weight_ih_l0, before)


@pytest.mark.usefixtures("short_final_measure")
def test_the_readout_of_a_module_stays():
    rnn = WithReadout(FEATURES, 5).double()
    before = [p.clone() for p in rnn.readout.parameters()]
    quick(rnn, inputs(), optimiser=torch.optim.AdamW)
    assert all(torch.equal(p, q) for p, q in zip(rnn.readout.parameters(), before, strict=True))


class Exploding(nn.Module):
    """Fine at first; its state overflows once the weight has moved."""

    def __init__(self, bad_at):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.bad_at, self.start = bad_at, 1.0

    def forward(self, x, state=None):
        h = x.new_zeros(x.shape[1], 1) if state is None else state
        for u in x:
            h = torch.tanh(0.5 * h + self.weight * u)
        moved = abs(self.weight.item() - self.start) > self.bad_at
        return h, h * math.nan if moved else h


def test_a_loss_that_turns_nan_stops_it_and_leaves_the_parameters_as_before():
    rnn = Exploding(bad_at=0.015)
    with pytest.raises(ms.WarmupDivergedError, match=r"not finite at warmup step [2-9].*as they were before.*lr"):
        ms.warmup(rnn, inputs(features=1), batch_size=6, max_stabilisation=5, generator=generator())
    assert rnn.weight.item() == 1.0
    assert rnn.weight.grad is None


def test_an_interruption_leaves_the_parameters_as_before():
    rnn = make("torch.nn.GRU")
    before = [p.clone() for p in rnn.parameters()]

    def interrupt(step):
        if step.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ms.warmup(rnn, inputs(), batch_size=6, on_step=interrupt, generator=generator())
    assert all(torch.equal(p, q) for p, q in zip(rnn.parameters(), before, strict=True))


def test_a_collapsed_network_warns_and_says_so():
    """Weights of zero: all states coincide, the gradient is zero, and nothing ever changes."""
    rnn = nn.GRU(FEATURES, 4)
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
    with pytest.warns(ms.WarmupWarning, match=r"VAA = 0\.100 afterwards \(collapsed: all states of a batch coincide"):
        history = ms.warmup(rnn, inputs(), steps=3, batch_size=10, generator=generator())
    assert history.outcome == "collapsed"
    assert not history.multistable
    assert history.vaa == pytest.approx(0.1)


def test_slow_transients_warn_and_say_so():
    """A linear network that forgets slowly: VAA* is high within the period, but there is one attractor."""

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x, state=None):
            h = x.new_zeros(x.shape[1], 1) if state is None else state
            for u in x:
                h = 0.99 * h + 0.1 * self.weight * u
            return h, h

    x = torch.randn(50, 40, 1, generator=generator())
    with pytest.warns(ms.WarmupWarning, match="drifting: VAA\\* is near its target"):
        history = ms.warmup(Slow(), x, steps=10, batch_size=20, max_stabilisation=20, generator=generator())
    assert history.outcome == "drifting"
    assert history.vaa == pytest.approx(1 / 32)


def test_a_collapsed_layer_is_seen_beside_a_multistable_one():
    rnn = ms.RNN("brc", 12, 12, 2)
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
    rnn.layers[0] = remembering().layers[0]
    with pytest.warns(ms.WarmupWarning, match="collapsed: all states of a batch coincide in a layer"):
        history = ms.warmup(rnn, pushes(), steps=3, batch_size=64, lr=1e-6, generator=generator())
    assert history.vaa > 0.9
    assert history.outcome == "collapsed"


def test_a_collapsed_half_is_seen_beside_a_multistable_one():
    rnn = ms.RNN("brc", 12, 24, double=True)
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
    rnn.layers[0].transient = remembering().layers[0].cell
    with pytest.warns(ms.WarmupWarning, match="collapsed"):
        history = ms.warmup(rnn, pushes(), steps=3, batch_size=64, lr=1e-6, generator=generator())
    assert history.outcome == "collapsed"


def test_a_low_target_is_not_reached_by_a_single_attractor():
    x = torch.randn(10, 64, 1, generator=generator())
    with pytest.warns(ms.WarmupWarning):
        history = ms.warmup(
            nn.GRU(1, 4), x, algorithm="paper", steps=1, batch_size=32, lr=1e-6, target=0.02, generator=generator()
        )
    assert history.vaa > 0.02
    assert history.outcome != "multistable"


def test_a_network_that_diverges_in_the_long_run_is_left_as_it_was():
    rnn = nn.RNN(1, 4, nonlinearity="relu")
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(1.5 * torch.eye(4))
    before = [p.clone() for p in rnn.parameters()]
    x = torch.randn(5, 40, 1, generator=generator())
    with pytest.raises(
        ms.WarmupDivergedError, match=r"after the warmup .* states are not finite .* as they were before"
    ):
        ms.warmup(rnn, x, steps=2, batch_size=20, max_stabilisation=5, lr=1e-4, generator=generator())
    assert all(torch.equal(p, q) for p, q in zip(rnn.parameters(), before, strict=True))


def test_only_the_failed_members_of_an_ensemble_are_named():
    good, collapsed = remembering(), remembering()
    with torch.no_grad():
        for p in collapsed.parameters():
            p.zero_()
    ensemble = ms.Ensemble([good, collapsed, good])
    with pytest.warns(ms.WarmupWarning) as caught:
        history = ms.warmup(ensemble, pushes(), steps=2, batch_size=64, lr=1e-6, generator=generator())
    assert history.outcome == ["multistable", "collapsed", "multistable"]
    assert [str(warning.message)[:30] for warning in caught] == ["warmup did not make member 1 m"]
    assert not history.multistable


@pytest.mark.usefixtures("short_final_measure")
def test_the_same_generator_seed_gives_the_same_weights_twice():
    first, second, other = (make("torch.nn.LSTM") for _ in range(3))
    for rnn, seed in ((first, 1), (second, 1), (other, 2)):
        quick(rnn, inputs(), generator=generator(seed))
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(first.parameters(), other.parameters(), strict=True))
