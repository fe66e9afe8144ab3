"""Experiments are found by themselves, those of the paper and those beyond it."""

import sys

from multistable.cli.experiments import chosen
from multistable.experiments import beyond, paper
from multistable.experiments.catalogue import experiments
from multistable.experiments.experiment import declared_in

DECLARED = """
from multistable.experiments.experiment import Experiment
EXPERIMENTS = tuple(Experiment(f"{{name}}", {order}, (), "", (), (), ()) for name in {names!r})
"""


def test_a_new_file_is_found_and_the_order_is_that_of_the_experiments(tmp_path, monkeypatch):
    package = tmp_path / "found_here"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "alone.py").write_text(DECLARED.format(order=2, names=["late"]))
    (package / "both.py").write_text(DECLARED.format(order=1, names=["early", "too"]))
    (package / "none.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    found = declared_in("found_here", [str(package)])
    for name in [name for name in sys.modules if name.startswith("found_here")]:
        del sys.modules[name]
    assert list(found) == ["early", "too", "late"]
    assert all(experiment.name == name for name, experiment in found.items())


def test_those_of_the_paper_come_first_and_all_means_them():
    assert list(experiments()) == [*paper.experiments(), *beyond.experiments()]
    assert [experiment.name for experiment in chosen(["all"])] == list(paper.experiments())
    for name in beyond.experiments():
        assert [experiment.name for experiment in chosen([name])] == [name]
