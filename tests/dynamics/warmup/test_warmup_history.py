"""How a warmup is judged by its history, and what it says of itself: made-up histories."""

import pytest
import torch

import multistable as ms
from multistable.dynamics.warmup.goal import Goal
from multistable.dynamics.warmup.history import WarmupCheck

COLLAPSED, APART = 1 / 32, 0.95


def history_of(vaa_star, vaa=COLLAPSED, target=0.95, algorithm="paper", batch_size=32, final_batch_size=32, took=None):
    """VAA* of a network of one layer at each step; of several layers ``(steps, layers)``, of R members ``(..., R)``."""
    values = torch.as_tensor(vaa_star, dtype=torch.float32)
    values = values.unsqueeze(-1) if values.dim() == 1 else values
    leading = values.shape[2:]
    goal = Goal.of(target, algorithm, members=leading[0] if leading else None)
    made = ms.WarmupHistory(goal, batch_size, final_batch_size)
    for index, value in enumerate(values):
        step = ms.WarmupStep(index + 1, value, torch.zeros(leading), torch.ones(leading))
        made.record(step, True if took is None else torch.tensor(took[index]))
    made.vaa = vaa
    return made


# How it is judged


@pytest.mark.parametrize(
    ("vaa_star", "outcome"),
    [
        ([APART] * 7 + [COLLAPSED] * 3, "short"),
        ([COLLAPSED] * 7 + [APART] * 3, "short"),
        ([APART] * 10 + [COLLAPSED] * 10, "collapsed"),
        ([APART] * 11 + [COLLAPSED] * 9, "short"),
        ([COLLAPSED] * 10 + [APART] * 10, "drifting"),
        ([COLLAPSED] * 11 + [APART] * 9, "drifting"),
        ([COLLAPSED] * 12 + [APART] * 8, "short"),
        ([COLLAPSED] * 3, "collapsed"),
    ],
)
def test_the_last_ten_steps_decide_whether_a_network_collapsed_or_drifts(vaa_star, outcome):
    assert history_of(vaa_star).outcome == outcome


@pytest.mark.parametrize("batch_size", [8, 200])
def test_fewer_than_one_and_a_half_attractors_in_a_batch_are_a_collapse(batch_size):
    for count, collapsed in ((1.45, True), (1.55, False)):
        made = history_of([count / batch_size] * 10, batch_size=batch_size, vaa=1.0)
        assert made.outcome == ("collapsed" if collapsed else "multistable")


@pytest.mark.parametrize("states", [16, 32])
def test_fewer_than_one_and_a_half_attractors_are_not_multistable_however_low_the_target(states):
    for count, outcome in ((1.45, "short"), (1.55, "multistable")):
        made = history_of([APART] * 10, vaa=count / states, target=0.01, final_batch_size=states)
        assert made.outcome == outcome


def test_one_collapsed_layer_is_enough():
    layers = torch.tensor([[APART, COLLAPSED]]).expand(10, 2)
    assert history_of(layers, vaa=1.0).outcome == "collapsed"


# What it tells


def test_the_final_vaa_star_of_a_layer_is_the_mean_of_ten_steps():
    steps = torch.arange(1.0, 15.0)
    made = history_of(torch.stack([steps, 100 * steps], dim=-1))
    assert made.final_vaa_star.tolist() == [9.5, 950.0]


def test_the_final_vaa_star_of_a_member_is_that_of_its_own_steps():
    """Two layers of two members, the first of which finished after 12 of 20 steps."""
    steps = torch.arange(1.0, 21.0)
    values = torch.stack([steps, 100 * steps], dim=-1).unsqueeze(-1).expand(20, 2, 2)
    made = history_of(values, vaa=[1.0, 1.0], took=[[step < 12, True] for step in range(20)])
    assert made.final_vaa_star.tolist() == [[7.5, 15.5], [750.0, 1550.0]]


def test_a_layer_that_stayed_behind_is_seen_though_the_network_is_multistable():
    made = history_of(torch.tensor([[0.06, 0.73]]).expand(12, 2), vaa=1.0)
    assert made.outcome == "multistable"
    assert repr(made) == "WarmupHistory(outcome='multistable', vaa=1.0, steps=12, final_vaa_star=[0.06, 0.73])"


def test_a_layer_that_stayed_behind_is_warned_of():
    """In the mean of its last ten steps, below nine tenths of the target; the last step alone is not enough."""
    values = torch.full((20, 2, 3), APART)
    values[:, 1, 0] = 0.84
    values[:, 1, 1] = 0.87
    values[-1, 0, 2] = 0.1
    made = history_of(values, vaa=[1.0, 1.0, 1.0])
    assert made.behind.tolist() == [[False, False, False], [True, False, False]]
    (message,) = made.failures()
    assert message.startswith(
        "warmup left layer 2 (VAA* 0.84) of member 0 behind its target of 0.95, though VAA is high"
    )


def test_of_one_network_each_layer_that_stayed_behind_is_named():
    (message,) = history_of(torch.tensor([[0.3, 0.95, 0.2]]).expand(12, 3), vaa=1.0).failures()
    assert "left layer 1 (VAA* 0.30) and layer 3 (VAA* 0.20) of the network behind" in message


def test_a_network_that_is_not_multistable_is_warned_of_once():
    """That a layer stayed behind may be why."""
    made = history_of(torch.tensor([[0.3, 0.95]]).expand(12, 2), vaa=0.5)
    assert made.behind.tolist() == [True, False]
    (message,) = made.failures()
    assert message.startswith("warmup did not")


def test_a_layer_is_behind_only_where_each_has_a_target_of_its_own():
    one_layer = history_of([0.5] * 12, vaa=1.0)
    verifying = history_of(torch.tensor([[0.3, 0.9]]).expand(12, 2), vaa=1.0)
    verifying.verifies, verifying.verified = True, torch.tensor(True)
    for made in (one_layer, verifying):
        assert made.outcome == "multistable"
        assert not made.behind.any()
        assert made.failures() == []


def test_an_ensemble_tells_of_each_member_and_of_many_a_few():
    two = history_of(torch.full((3, 1, 2), APART), vaa=[1.0, 1 / 3])
    outcomes, ends = "outcome=['multistable', 'drifting']", "final_vaa_star=[[0.95, 0.95]]"
    assert repr(two) == f"WarmupHistory({outcomes}, vaa=[1.0, 0.333], steps=[3, 3], {ends})"
    many = repr(history_of(torch.full((3, 1, 100), APART), vaa=[1.0] * 100))
    assert many.startswith("WarmupHistory(outcome=['multistable', 'multistable', ")
    assert "...]" in many
    assert len(many) < 300


def test_a_history_can_be_shown_before_its_end():
    assert repr(history_of([], vaa=None)) == "WarmupHistory(steps=0)"
    assert repr(history_of([0.5], vaa=None)) == "WarmupHistory(steps=1, final_vaa_star=[0.5])"


def test_a_wanted_vaa_that_was_missed_is_told_in_its_own_words():
    (message,) = history_of([APART] * 10, vaa=0.14, target=0.25, algorithm="reliable").failures()
    assert "VAA 0.140 is not verified to be within 0.1 of the wanted 0.25" in message
    assert "the network to its wanted VAA (missed)" in message
    assert "multistable" not in message


def test_each_member_has_a_message_of_its_own():
    made = history_of(
        torch.full((10, 1, 3), APART), vaa=[0.5, 1.0, 0.14], target=[0.95, 0.95, 0.25], algorithm="reliable"
    )
    drifting, missed = made.failures()
    assert drifting.startswith(
        "warmup did not make member 0 multistable: VAA = 0.500 afterwards (drifting: VAA* is near"
    )
    assert missed.startswith("warmup did not bring member 2 to its wanted VAA (missed): VAA 0.140 is not")


def test_a_history_says_in_words_what_happened():
    made = history_of(torch.full((12, 1, 2), APART), vaa=[1.0, 1 / 32])
    made.restarts = torch.tensor([0, 2])
    first, second = str(made).splitlines()
    assert first == "network 0: multistable: VAA 1.000 (one attractor gives 0.0312) (12 gradient steps)"
    assert second.startswith(
        "network 1: not multistable, drifting: VAA 0.031 (one attractor gives 0.0312); VAA* is near"
    )
    assert second.endswith("(12 gradient steps, 2 new starts)")
    assert str(history_of([0.5], vaa=None)) == "warmup of 1 step, not over yet"


def test_a_history_is_drawn():
    for members in ([], [3]):
        made = history_of(torch.full((12, 2, *members), APART), vaa=[1.0] * 3 if members else 1.0)
        made.checks.append(WarmupCheck(10, torch.tensor(True), torch.tensor(0.7), torch.tensor(True)))
        (axes,) = made.plot().axes
        drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
        assert drawn["VAA* of layer 2"] == pytest.approx([APART] * 12)
        assert drawn["VAA, measured on the way"] == pytest.approx([0.7])
        assert drawn["VAA at the end, 1.00"] == [1.0, 1.0]
