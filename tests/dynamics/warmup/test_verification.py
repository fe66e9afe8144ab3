"""What the default warmup takes for multistable, by shares of different states that are made up."""

import pytest
import torch

from multistable.dynamics.warmup import verification
from multistable.dynamics.warmup.goal import Goal


def verifying(target):
    """The verification of one network, whose sequences are as many as the states of the measure."""
    return verification.Verification(None, range(32), torch.tensor(0), torch.tensor(target), 10, 32, 10_000, 1e-4)


@pytest.mark.parametrize(
    ("shares", "passes"),
    [
        ([0.975] * 40, True),
        ([0.96] * 40, False),
        ([1.0] * 39 + [0.0], False),
    ],
)
@pytest.mark.parametrize("look", [1, 2])
def test_a_network_passes_if_another_measure_should_be_content_too(look, shares, passes, monkeypatch):
    """The same mean with one input under which all is forgotten: ten others may have it, and then be below 0.9.

    In one look and in the next, which has other inputs.
    """
    looks = []

    def known(self, asked, step, inputs, states, scale, **rest):
        if scale == 1:
            looks.append(step)
        values = torch.tensor(shares)[-inputs:] if len(looks) == look and scale == 1 else torch.ones(inputs)
        return verification._Shares(values, values, 10_000)

    monkeypatch.setattr(verification.Verification, "_shares", known)
    network = verifying(0.95)
    verdict = network.judge(torch.tensor(True), step=10)
    assert bool(verdict.passed) == passes
    assert len(set(looks)) == len(looks) == (2 if passes else look)
    assert passes == bool(verdict.score >= 3)


@pytest.mark.parametrize(
    ("where", "worst", "passes"),
    [
        ("screening", 0.8, True),
        ("screening", 0.6, False),
        ("first look", 0.8, True),
        ("first look", 0.6, False),
        ("last look", 0.8, True),
        ("last look", 0.6, False),
    ],
)
def test_a_network_does_not_pass_with_one_input_that_it_forgets_under(where, worst, passes, monkeypatch):
    """Of the many inputs of the screening, which are larger than those of the measure, or of the last look's."""

    def known(self, asked, step, inputs, states, scale, **rest):
        now = "screening" if scale > 1 else "last look" if step > verification.SECOND_LOOK else "first look"
        here = now == where
        values = torch.tensor([worst if here else 1.0] + [1.0] * (inputs - 1))
        return verification._Shares(values, values, 10_000)

    monkeypatch.setattr(verification.Verification, "_shares", known)
    assert bool(verifying(0.95).judge(torch.tensor(True), step=10).passed) == passes


def test_a_single_attractor_never_passes(monkeypatch):
    """Not even where all histories coincide, so that VAA is as high as it can be."""

    def known(self, asked, step, inputs, states, scale, **rest):
        return verification._Shares(torch.full((inputs,), 1 / 32), torch.ones(inputs), 10_000)

    monkeypatch.setattr(verification.Verification, "_shares", known)
    network = verifying(0.95)
    assert not bool(network.judge(torch.tensor(True), step=10).passed)


@pytest.mark.parametrize(
    ("wanted", "first", "second", "found"),
    [
        (0.25, [0.27], [0.23], 0.23),
        (0.25, [0.31], [], None),
        (0.25, [0.27], [0.31], None),
        (0.25, [0.27], [0.0, 0.5], None),
        (0.25, [0.05], [], None),
        (0.05, [1 / 32], [], None),
    ],
)
def test_a_wanted_vaa_is_there_if_a_second_look_finds_it_too(wanted, first, second, found, monkeypatch):
    """By its mean, and so surely that ten other inputs should find it within 0.1; one attractor is too few."""
    seeds = []

    def known(self, asked, step, inputs, states, scale, **rest):
        seeds.append(step)
        shares = torch.tensor(second if inputs == 40 else first).repeat(inputs)
        return verification._Shares(shares, shares, 10_000)

    monkeypatch.setattr(verification.Verification, "_shares", known)
    network = verifying(wanted)
    verdict = network.judge_wanted(torch.tensor(True), 10, Goal(torch.tensor(wanted), torch.tensor(True), 0.1))
    assert bool(verdict.passed) == (found is not None)
    if found is not None:
        assert verdict.vaa == pytest.approx(found)
        assert seeds[-1] not in seeds[:-1]
