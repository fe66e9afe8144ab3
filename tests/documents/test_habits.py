"""What is said in two files is the same in both: extras, checks, and the version."""

import re
import subprocess
import sys
import tomllib

import yaml
from setuptools.config.pyprojecttoml import read_configuration
from typer.testing import CliRunner

import multistable as ms
from lowest_versions import lowest
from multistable.cli import app
from multistable.extras import EXTRAS, how_to_install
from paths import ROOT


def test_the_version_is_in_one_place():
    assert read_configuration(ROOT / "pyproject.toml")["project"]["version"] == ms.__version__
    assert CliRunner().invoke(app, ["--version"]).stdout == f"multistable {ms.__version__}\n"


def test_pre_commit_runs_what_make_lint_runs():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    assert [hook["entry"] for hook in local["hooks"]] == commands


def test_the_workflow_runs_targets_that_exist():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    targets = [step.removeprefix("make ") for step in steps if step.startswith("make ")]
    assert targets == ["test", "docs"]
    assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in targets)


def test_the_citation_has_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert [author["family-names"] for author in citation["preferred-citation"]["authors"]] == [
        *("Lambrechts", "De Geeter", "Vecoven", "Ernst", "Drion")
    ]


def test_every_package_has_a_lowest_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = [*project["dependencies"], *(package for extra in extras for package in extra)]
    names = {re.match(r"[\w-]+", package)[0] for package in declared}
    assert set(lowest()) == names - {"multistable"}
    assert f"PyTorch ({lowest()['torch']} or newer)" in (ROOT / "docs" / "guide" / "start.md").read_text()


def test_every_package_is_in_the_extra_that_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        extra: {re.match(r"[\w-]+", package)[0] for package in packages}
        for extra, packages in project["optional-dependencies"].items()
    }
    assert all(package in extras[extra] for package, extra in EXTRAS.items())
    assert how_to_install("llvmlite") == 'pip install llvmlite, or in a checkout of multistable pip install ".[cpu]"'


def test_what_a_module_needs_is_told():
    needed = {"experiments.page": "jinja2", "experiments.figures": "matplotlib", "drawing": "matplotlib"}
    needed |= {"rl.gym_agent": "gymnasium", "rl.environment": "gymnasium"}
    needed |= {"integrations.lightning": "lightning", "integrations.transformers": "transformers"}
    needed |= {"integrations.sb3": "sb3-contrib"}
    program = f"""
import importlib, sys
sys.modules |= dict.fromkeys({sorted(set(needed.values()))})
for module in {list(needed)}:
    try:
        importlib.import_module("multistable." + module)
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    told = done.stdout.splitlines()
    assert len(told) == len(needed)
    for line, package in zip(told, needed.values(), strict=True):
        assert line.endswith(f"needs the package {package}: {how_to_install(package)}")


def test_info_tells_how_to_have_the_faster_loop(monkeypatch):
    monkeypatch.setattr("multistable.cli.bodies.info.compiler_of_passes", lambda: None)
    assert how_to_install("llvmlite") in " ".join(CliRunner().invoke(app, ["info"]).stdout.split())
