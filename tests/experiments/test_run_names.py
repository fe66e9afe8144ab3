"""A run is found again by its name: the names of all planned runs stay as they are."""

import hashlib
from collections.abc import Iterable

import pytest

from multistable.experiments.paper import experiments
from multistable.experiments.scales import SCALES

PLANNED = {
    "smoke": (764, "7fe5b4116bda11fd"),
    "small": (4050, "0285e2c359538639"),
    "paper": (6705, "e44fe4c049d2e65f"),
}


def digest(names: Iterable[str]) -> tuple[int, str]:
    """How many different names there are, and a hash of them all."""
    different = sorted(set(names))
    return len(different), hashlib.sha256("\n".join(different).encode()).hexdigest()[:16]


@pytest.mark.parametrize("scale", PLANNED)
def test_names_of_planned_runs_stay(scale):
    planned = (config.name for experiment in experiments().values() for config in experiment.at(SCALES[scale]))
    assert digest(planned) == PLANNED[scale]
