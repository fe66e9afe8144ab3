"""The documentation site builds without warnings, has all public names, and asks nothing of other hosts."""

import os
import re
import subprocess
import sys

import pytest

import multistable as ms
from paths import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as ``make docs`` does: an unknown link or anchor, or a damaged docstring, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_public_name_is_described(site):
    page = (site / "reference" / "api.html").read_text()
    assert [name for name in ms.__all__ if f'id="multistable.{name}"' not in page] == []


def test_pages_ask_nothing_of_other_hosts(site):
    loaded = r'<(?:script|img|iframe)[^>]* src="?(https?:[^" >]+)|<link[^>]* href="?(https?:[^" >]+)'
    assert {page.name: found for page in site.rglob("*.html") if (found := re.findall(loaded, page.read_text()))} == {}


def test_the_search_knows_pages_docstrings_and_notebooks(site):
    index = (site / "search" / "search_index.json").read_text()
    for page in ("guide/start.html", "reference/api.html#multistable.measure", "examples/your_own_cell_ipynb.html"):
        assert f'"location":"{page}' in index
