"""Experiments that the paper does not have. A new file with ``EXPERIMENTS`` needs no registration."""

from multistable.experiments.experiment import Experiment, declared_in


def experiments() -> dict[str, Experiment]:
    """The experiments beyond the paper by name."""
    return declared_in(__name__, __path__)
