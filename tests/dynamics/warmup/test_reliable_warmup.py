"""The default warmup: it goes on until the true measure is content, and says so where it never was."""

import dataclasses
import math
import warnings

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.warmup import default, verification
from multistable.dynamics.warmup.default import CHECK_EVERY, PATIENCE
from multistable.dynamics.warmup.goal import Goal
from networks import FEATURES, FORMS, in_layout, make, remembering
from warming import copy_sequences, generator, pushes, quick, remember, seeded, zero


def manner(monkeypatch, **changes):
    """Have the default warmup go about it in another manner."""
    monkeypatch.setitem(default.MANNERS, "fast", dataclasses.replace(default.MANNERS["fast"], **changes))


# What it reaches


@pytest.mark.parametrize(("kind", "units"), [(nn.RNN, 24), (nn.GRU, 16), (nn.LSTM, 16)])
def test_small_networks_become_multistable_and_the_history_says_how(kind, units):
    seeds = range(2)
    members = [ms.from_torch(seeded(kind, 1, units, seed=seed)) for seed in seeds]
    ensemble, x = ms.Ensemble(members), copy_sequences(20, 128)
    history = ms.warmup(ensemble, x, batch_size=32, generator=[generator(seed) for seed in seeds])
    assert history.outcome == ["multistable"] * 2
    assert history.multistable
    assert min(history.vaa) >= 0.95
    assert min(ms.measure(ensemble, x, generator=generator(99)).vaa) > 0.9
    assert int(history.gradient_steps.max()) == len(history)
    asked = torch.stack([check.asked for check in history.checks])
    assert [check.step for check in history.checks] == list(range(CHECK_EVERY, len(history) + 1, CHECK_EVERY))
    assert asked.any(dim=0).all()


@pytest.mark.usefixtures("short_verification")
@pytest.mark.parametrize("kind", FORMS)
def test_every_kind_of_network_can_be_warmed_up(kind):
    rnn = make(kind)
    before = {name: p.clone() for name, p in rnn.named_parameters()}
    x = copy_sequences(9, 40, FEATURES, torch.float64)
    history = quick(rnn, in_layout(rnn, x), steps=3)
    assert len(history) == 3
    changed = {name for name, p in rnn.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert not any("transient" in name or "readout" in name for name in changed)


# Each as if alone, and twice the same


@pytest.mark.usefixtures("short_verification")
@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True), ("brc", False)])
def test_members_of_an_ensemble_are_warmed_up_as_alone(cell, double):
    members = [ms.RNN(cell, 1, 8, 2, double=double, dtype=torch.float64, generator=generator(s)) for s in range(3)]
    x = copy_sequences(8, 40, dtype=torch.float64)
    ensemble, targets = ms.Ensemble(members), [0.95, 0.1, 0.5]
    together = quick(ensemble, x, steps=20, target=targets, generator=[generator(10 + seed) for seed in range(3)])
    for seed, (member, warmed) in enumerate(zip(members, ensemble.unstack(), strict=True)):
        alone = quick(member, x, steps=20, target=targets[seed], generator=generator(10 + seed))
        steps = len(alone)
        assert together.gradient_steps[seed] == alone.gradient_steps == steps
        assert torch.equal(together.stabilisation[:steps, seed], alone.stabilisation)
        torch.testing.assert_close(together.loss[:steps, seed], alone.loss, rtol=1e-6, atol=1e-8)
        assert together.vaa[seed] == pytest.approx(alone.vaa)
        assert together.outcome[seed] == alone.outcome
        for a, b in zip(warmed.parameters(), member.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("short_verification")
def test_the_same_generator_seed_gives_the_same_weights_twice():
    first, second, other = (make("torch.nn.LSTM") for _ in range(3))
    x = copy_sequences(9, 40, FEATURES, torch.float64)
    histories = [quick(rnn, x, steps=20, generator=generator(s)) for rnn, s in ((first, 1), (second, 1), (other, 2))]
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(first.parameters(), other.parameters(), strict=True))
    assert histories[0].vaa == histories[1].vaa


# When it stops


@pytest.mark.usefixtures("short_verification")
def test_a_member_that_is_multistable_stays_as_it_is_while_the_others_go_on(monkeypatch):
    manner(monkeypatch, loose_steps=0)
    ensemble = ms.Ensemble([remembering(), zero(remembering())])
    seen = []

    def look(step):
        if step.step >= CHECK_EVERY:
            seen.append([p.detach()[0].clone() for p in ensemble.parameters()])

    history = quick(ensemble, pushes(), steps=25, lr=1e-6, max_stabilisation=5, batch_size=64, on_step=look)
    assert history.gradient_steps.tolist() == [CHECK_EVERY, 25]
    assert history.outcome == ["multistable", "collapsed"]
    for later in seen[1:]:
        assert all(torch.equal(p, q) for p, q in zip(seen[0], later, strict=True))
    assert all(torch.equal(p[0], q) for p, q in zip(ensemble.parameters(), seen[0], strict=True))


@pytest.mark.usefixtures("short_verification")
def test_a_network_whose_states_still_move_goes_on_for_some_steps_though_it_is_multistable(monkeypatch):
    manner(monkeypatch, loose_steps=30)
    for limit, early, looks in (
        (math.inf, False, [True]),
        (0.0, True, [True, False, True]),
        (0.0, False, [False, False, True]),
    ):
        manner(monkeypatch, early_looks=early)
        monkeypatch.setattr(default, "FIRM_LOSS", limit)
        steps = CHECK_EVERY * len(looks)
        rnn, seen = remembering(), []
        look = remember(rnn, seen)
        history = quick(rnn, pushes(), steps=50, lr=1e-6, max_stabilisation=5, batch_size=64, on_step=look)
        assert history.gradient_steps == steps
        assert history.outcome == "multistable"
        assert [bool(check.asked) for check in history.checks] == looks
        assert all(torch.equal(p, q) for p, q in zip(rnn.parameters(), seen[steps - 1], strict=True))


@pytest.mark.usefixtures("short_verification")
def test_a_network_that_loses_its_attractors_on_the_way_ends_with_those_it_had(monkeypatch):
    monkeypatch.setattr(default, "FIRM_LOSS", 0.0)
    manner(monkeypatch, loose_steps=PATIENCE + 30, early_looks=True)
    rnn, seen = remembering(), []
    kept = remember(rnn, seen)

    def spoil(step):
        kept(step)
        if step.step > CHECK_EVERY:
            zero(rnn)

    with warnings.catch_warnings(action="error", category=ms.WarmupWarning):
        history = ms.warmup(
            rnn, pushes(), lr=1e-6, max_stabilisation=20, batch_size=64, generator=generator(), on_step=spoil
        )
    assert history.outcome == "multistable"
    assert history.vaa > 0.95
    assert history.restarts == 0
    assert history.gradient_steps == PATIENCE + 30
    assert [check.step for check in history.checks if check.passed] == [CHECK_EVERY]
    assert all(torch.equal(p, q) for p, q in zip(rnn.parameters(), seen[CHECK_EVERY - 1], strict=True))


@pytest.mark.usefixtures("short_verification")
def test_each_member_ends_with_its_last_weights_to_pass_or_the_nearest(monkeypatch):
    """Of four, by the steps at which each passes: later weights, earlier ones, the first after step 30, and none."""
    passes, ends, kept = [{10, 30}, {10}, {40}, set()], [30, 30, 40, 60], [30, 10, 40, 50]

    def judged(self, asked, step):
        passed = asked & torch.tensor([step in steps for steps in passes])
        score = torch.where(passed, 5.0, 1.0 + (step == 50)).where(asked, -torch.inf)
        return verification.Verdict(passed, torch.full((4,), step / 100, dtype=torch.double), score.double())

    monkeypatch.setattr(verification.Verification, "judge", judged)
    manner(monkeypatch, loose_steps=30, early_looks=True)
    monkeypatch.setattr(default, "FIRM_LOSS", 0.0)
    rnn, seen = ms.Ensemble([remembering() for _ in range(4)]), []
    settings = {"steps": 60, "lr": 1e-4, "max_stabilisation": 5, "batch_size": 64, "on_step": remember(rnn, seen)}
    history = quick(rnn, pushes(), generator=[generator(i) for i in range(4)], **settings)
    assert history.gradient_steps.tolist() == ends
    assert history.verified.tolist() == [True, True, True, False]
    assert history.vaa[:3] == [0.3, 0.1, 0.4]
    for member, step in enumerate(kept):
        for parameter, then, before in zip(rnn.parameters(), seen[step - 1], seen[step - 2], strict=True):
            assert torch.equal(parameter[member], then[member])
            assert not torch.equal(then[member], before[member])


@pytest.mark.usefixtures("short_verification")
def test_a_network_that_stays_collapsed_starts_again_and_warns():
    rnn = zero(nn.GRU(FEATURES, 4))
    x = copy_sequences(9, 40, FEATURES)
    with pytest.warns(ms.WarmupWarning, match="collapsed"):
        history = ms.warmup(rnn, x, steps=PATIENCE + 5, batch_size=8, max_stabilisation=20, generator=generator())
    assert history.restarts == 1
    assert history.gradient_steps == PATIENCE + 5
    assert history.outcome == "collapsed"
    assert not history.multistable
    assert history.vaa == pytest.approx(1 / 32)


@pytest.mark.usefixtures("short_verification")
def test_losses_from_before_a_restart_do_not_make_a_network_firm(monkeypatch):
    monkeypatch.setattr(default, "PATIENCE", 5)
    monkeypatch.setattr(default, "FIRST_PERIOD", 8.0)
    monkeypatch.setattr(default, "FIRM_LOSS", 1e9)
    manner(monkeypatch, early_looks=True)
    rnn = remembering()

    def spoil(step):
        """Until it starts again with its first weights."""
        if step.step == 1 or max(p.abs().max() for p in rnn.parameters()) < 0.1:
            zero(rnn)

    history = quick(rnn, pushes(), lr=1e-6, max_stabilisation=8, batch_size=64, on_step=spoil)
    assert history.restarts == 1
    assert history.checks[0].passed
    assert history.gradient_steps == 2 * CHECK_EVERY


@pytest.mark.usefixtures("short_verification")
def test_a_network_that_forgets_under_large_inputs_does_not_pass():
    """Each unit remembers a sign, but an input far from zero, which the measure meets seldom, sets them all."""
    rnn = remembering()
    with torch.no_grad():
        rnn.layers[0].cell.input_weight[0, 2 * 12 :] = 0.18
    x = pushes()
    x = torch.where(torch.arange(12) == 0, 0, x)
    assert ms.measure(rnn, x, stabilisation=300, generator=generator(3)).vaa > 0.9
    history = quick(rnn, x, steps=CHECK_EVERY, lr=1e-9, max_stabilisation=5, batch_size=64)
    assert history.checks[-1].asked
    assert math.isnan(history.checks[-1].vaa)


@pytest.mark.parametrize(("target", "method"), [(0.95, "judge"), (0.25, "judge_wanted")])
@pytest.mark.usefixtures("short_verification")
def test_a_network_that_never_passes_has_the_weights_that_came_nearest(target, method, monkeypatch):
    rnn, seen = remembering(), []

    def judged(self, asked, step, *goal):
        seen.append([p.detach().clone() for p in rnn.parameters()])
        score = [0.1, 0.7, 0.4][len(seen) - 1]
        return verification.Verdict(torch.tensor(False), torch.tensor(0.5).double(), torch.tensor(score).double())

    monkeypatch.setattr(verification.Verification, method, judged)
    for every in ("CHECK_EVERY", "CHECK_WANTED"):
        monkeypatch.setattr(f"multistable.dynamics.warmup.default.{every}", 2)
    history = quick(rnn, pushes(), steps=6, target=target)
    assert len(seen) == 3
    assert not history.verified
    for parameter, nearest, last in zip(rnn.parameters(), seen[1], seen[2], strict=True):
        assert torch.equal(parameter, nearest)
        assert not torch.equal(nearest, last)


@pytest.mark.usefixtures("short_verification")
def test_how_many_sequences_a_step_takes_unless_told(monkeypatch):
    taken = []
    original = Draws.batch
    monkeypatch.setattr(Draws, "batch", lambda self, total, size: taken.append(size) or original(self, total, size))
    settings = {"steps": 1, "max_stabilisation": 5, "generator": generator()}
    for given, n in (({}, 32), ({"algorithm": "reliable"}, 200), ({"algorithm": "paper"}, 200), ({"target": 0.5}, 200)):
        taken.clear()
        with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
            ms.warmup(nn.GRU(1, 4), copy_sequences(5, 250), **settings | given)
        assert n in taken
        assert (200 in taken) == (n == 200)


@pytest.mark.parametrize(("n", "batch_size"), [(1, 1), (64, 1)])
def test_a_warmup_needs_two_states_to_drive_apart(n, batch_size):
    with pytest.raises(ValueError, match="at least two"):
        ms.warmup(nn.GRU(1, 4), copy_sequences(5, n), batch_size=batch_size)


@pytest.mark.usefixtures("short_verification")
def test_where_histories_coincide_the_bar_is_the_share_of_different_states():
    x = pushes()[:1]
    x = torch.where(torch.arange(64).unsqueeze(-1) % 5 < 3, x, x.roll(2, dims=1))
    rnn = remembering()
    history = quick(rnn, x, steps=CHECK_EVERY, lr=1e-9, max_stabilisation=5, batch_size=64)
    assert history.vaa < 0.9 * 0.95
    assert history.verified
    assert history.outcome == "multistable"


# A VAA that is wanted


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_wanted_vaa_is_reached_by_attractors_far_apart(kind):
    rnn, x = seeded(kind, 1, 24, seed=20), copy_sequences(20, 256)
    history = ms.warmup(rnn, x, target=0.25, batch_size=64, generator=generator())
    assert history.verified
    assert history.outcome == "multistable"
    assert history.vaa == pytest.approx(0.25, abs=0.1)
    for eps in (1e-4, 1e-2):
        after = ms.measure(rnn, x, eps=eps, generator=generator(99)).vaa
        assert after == pytest.approx(0.25, abs=0.1)


@pytest.mark.usefixtures("short_verification")
def test_a_wanted_vaa_that_is_missed_is_told():
    """Multistable at the first look, with no step left to draw its states together."""
    with pytest.warns(ms.WarmupWarning, match=r"VAA .* is not verified to be within 0.1 of the wanted 0.25"):
        history = ms.warmup(
            remembering(),
            pushes(),
            target=0.25,
            steps=CHECK_EVERY,
            lr=1e-6,
            max_stabilisation=5,
            batch_size=64,
            generator=generator(),
        )
    assert history.vaa > 0.9
    assert history.outcome == "missed"
    assert not history.multistable
    assert not history.verified


@pytest.mark.parametrize(
    ("verifies", "vaa", "outcome"),
    [
        (True, 0.94, "drifting"),
        (True, 0.96, "unverified"),
        (False, 0.94, "multistable"),
        (False, 0.8, "drifting"),
    ],
)
def test_a_warmup_that_verifies_itself_calls_nothing_multistable_below_its_target(verifies, vaa, outcome):
    history = ms.WarmupHistory(Goal.of(0.95, "reliable"), batch_size=32, final_batch_size=32)
    history.record(ms.WarmupStep(1, torch.tensor([0.95]), torch.tensor(0.0), torch.tensor(10)))
    history.vaa, history.verifies = vaa, verifies
    assert history.outcome == outcome
    assert bool(history.failures()) == (outcome != "multistable")
