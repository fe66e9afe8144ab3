"""What only some things need: the message that says how to install it."""

import re
import subprocess
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from multistable.cli import app
from multistable.extras import EXTRAS, how_to_install
from paths import ROOT


def test_every_package_is_in_the_extra_that_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        extra: {re.match(r"[\w-]+", package)[0] for package in packages}
        for extra, packages in project["optional-dependencies"].items()
    }
    assert all(package in extras[extra] for package, extra in EXTRAS.items())
    assert how_to_install("numba") == 'pip install numba, or in a checkout of multistable pip install ".[cpu]"'


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("experiments.page", "jinja2"),
        ("experiments.figures", "matplotlib"),
        ("rl.gym_agent", "gymnasium"),
        ("rl.environment", "gymnasium"),
    ],
)
def test_what_a_module_needs_is_told(module, package):
    program = f"import sys; sys.modules[{package!r}] = None; import multistable.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.endswith(f"needs the package {package}: {how_to_install(package)}\n")


def test_info_tells_how_to_have_the_faster_loop(monkeypatch):
    monkeypatch.setattr("multistable.cli.bodies.info.compiled_equations", dict)
    assert how_to_install("numba") in " ".join(CliRunner().invoke(app, ["info"]).stdout.split())
