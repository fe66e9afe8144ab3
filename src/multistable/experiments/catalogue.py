"""All experiments there are."""

from multistable.experiments import beyond, paper
from multistable.experiments.experiment import Experiment


def experiments() -> dict[str, Experiment]:
    """The paper's experiments by name, in the paper's order, and then those beyond the paper."""
    return paper.experiments() | beyond.experiments()
