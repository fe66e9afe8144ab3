"""The paper's figures and tables, a file for each section. A new file with ``EXPERIMENTS`` needs no registration."""

from multistable.experiments.experiment import Experiment, declared_in


def experiments() -> dict[str, Experiment]:
    """The paper's experiments by name, in the paper's order."""
    return declared_in(__name__, __path__)
