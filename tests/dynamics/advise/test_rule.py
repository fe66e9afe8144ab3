"""What follows from what the probes found."""

import math

import pytest
import torch

from multistable.dynamics.advise.rule import Found, decided
from multistable.dynamics.advise.trial import Trial, compared
from multistable.dynamics.advise.windows import Window

NEAR = Window([2, 4, 64], [0.9, 0.9, 0.9], [0.01] * 3, 2, 2)
FAR = Window([2, 4, 32, 64], [0.0, 0.0, 0.0, 0.9], [0.01] * 4, 64, 64)
BOTH = Window([2, 4, 32, 64], [0.1, 0.2, 0.5, 0.9], [0.01] * 4, 2, 64)
NOTHING = Window([2, 4, 64], [0.0, 0.0, 0.0], [0.01] * 3, None, None)


def trained(best, **losses):
    return Trial([10], losses or {"none": [1.0]}, 1.0, best, {}, {})


def found(window=None, trial=None, vaa=1 / 32, lifetime=3.0, length=64):
    missing = {"window": "no targets were given", "trial": "steps=0"}
    return decided(Found(vaa, 1 / 32, lifetime, length, window, trial, missing))[0]


@pytest.mark.parametrize(
    ("advice", "given"),
    [
        (None, {}),
        ("none", {"length": 20}),
        ("none", {"vaa": 0.9}),
        ("none", {"window": NEAR}),
        ("whole", {"window": FAR}),
        (None, {"window": BOTH}),
        (None, {"window": NOTHING}),
        ("none", {"window": FAR, "lifetime": 40.0}),
        ("none", {"window": FAR, "lifetime": math.inf}),
        ("double", {"window": NEAR, "trial": trained("double")}),
        ("none", {"window": FAR, "trial": trained("none")}),
        ("whole", {"window": FAR, "trial": trained(None, none=[1.0])}),
        (None, {"window": FAR, "trial": trained(None, none=[1.0], whole=[1.1])}),
        (None, {"window": BOTH, "trial": trained(None)}),
    ],
)
def test_the_advice(advice, given):
    assert found(**given) == advice


def test_reasons_say_what_each_probe_found():
    missing = {"whole": "the time was up"}
    trial = Trial([10, 20], {"none": [1.0, 0.9], "double": [0.5, 0.25]}, 1.0, "double", {}, missing)
    warmup, reasons = decided(Found(0.25, 1 / 32, 12.4, 64, FAR, trial, {}))
    assert warmup == "double"
    said = " ".join(reasons)
    for part in (
        "VAA of 0.25: states end at several attractors",
        "fades to 1/e within 12 steps; the sequences have up to 64 steps",
        "saves 90% of the loss of guessing; the last 32 steps alone are worth nothing",
        "after 20 training steps, one run each: as it is 0.9, double and warmed up 0.25 (guessing: 1)",
        "No copy was warmed up: the time was up.",
    ):
        assert part in said


def losses(mean, spread=0.01):
    return mean + spread * torch.linspace(-1, 1, 16, dtype=torch.float64)


@pytest.mark.parametrize(
    ("best", "ends"),
    [
        (None, {"none": 1.0, "whole": 0.95, "double": 1.2}),
        ("whole", {"none": 1.0, "whole": 0.5, "double": 0.7}),
        ("double", {"none": 0.8, "whole": 1.1, "double": 0.1}),
        ("none", {"none": 0.14, "whole": 0.5, "double": 0.1}),
        ("none", {"none": 0.1, "whole": 0.9, "double": 0.1}),
        ("whole", {"none": 0.3, "whole": 0.1}),
    ],
)
def test_which_copy_is_best(best, ends):
    guess = losses(1.0, 0.0)
    assert compared({name: losses(mean) for name, mean in ends.items()}, guess)[0] == best


def test_a_difference_within_chance_is_none():
    guess = losses(1.0, 0.0)
    noisy = 0.5 + torch.tensor([2.0, -2.0] * 8, dtype=torch.float64)
    assert compared({"none": losses(0.8), "whole": noisy}, guess)[0] == "none"
    assert compared({"none": noisy}, None) == (None, {})
