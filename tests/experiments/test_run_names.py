"""A run is found again by its name: the names of all planned runs stay as they are."""

import hashlib
from collections.abc import Iterable

import pytest

from multistable.experiments import beyond
from multistable.experiments.paper import experiments
from multistable.experiments.scales import SCALES

PLANNED = {
    "smoke": (824, "5c42ddfa3a9bf624"),
    "small": (4140, "728c7e660f93085e"),
    "paper": (6795, "5802b44ae4e9dcfd"),
}
BEYOND = {"when": (570, "e90b9e6c60de62b6"), "agents": (180, "62669ee2b2c86a93")}
"""Those at the scale small."""


def digest(names: Iterable[str]) -> tuple[int, str]:
    """How many different names there are, and a hash of them all."""
    different = sorted(set(names))
    return len(different), hashlib.sha256("\n".join(different).encode()).hexdigest()[:16]


def test_names_of_runs_beyond_the_paper_stay():
    planned = {name: digest(c.name for c in made.at(SCALES["small"])) for name, made in beyond.experiments().items()}
    assert {name: planned[name] for name in BEYOND} == BEYOND


@pytest.mark.parametrize("scale", PLANNED)
def test_names_of_planned_runs_stay(scale):
    planned = (config.name for experiment in experiments().values() for config in experiment.at(SCALES[scale]))
    assert digest(planned) == PLANNED[scale]
