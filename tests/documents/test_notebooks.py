"""The notebooks run from top to bottom, and what is stored in them is what their code prints now."""

import json
import re

import pytest

from notebooks import NOTEBOOKS, code_cells, run


def printed(outputs):
    """The lines without their numbers, which may differ in their last digits, and how many pictures there are."""
    texts = ["".join(output["text"]) for output in outputs if output["output_type"] == "stream"]
    return re.sub(r"[\d.]+", "0", "".join(texts)), len(outputs) - len(texts)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_stored(notebook):
    names, outputs = run(notebook)
    stored = [cell["outputs"] for cell in code_cells(json.loads(notebook.read_text()))]
    assert [printed(cell) for cell in outputs] == [printed(cell) for cell in stored]
    assert names["history"].outcome == "multistable"
