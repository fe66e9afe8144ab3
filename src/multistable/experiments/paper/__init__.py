"""The paper's figures and tables, a file for each section. A new file with ``EXPERIMENTS`` needs no registration."""

import importlib
import pkgutil

from multistable.experiments.experiment import Experiment


def experiments() -> dict[str, Experiment]:
    """All experiments by name, in the paper's order."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    found = [experiment for module in modules for experiment in getattr(module, "EXPERIMENTS", ())]
    return {experiment.name: experiment for experiment in sorted(found, key=lambda experiment: experiment.order)}
