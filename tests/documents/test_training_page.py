"""The code of docs/guide/your_task.md and the example of a task run as they stand."""

import re
import runpy

import pytest

from multistable.cells import CELLS
from multistable.tasks import TASKS
from paths import ROOT


@pytest.fixture
def registries():
    """What a page or an example registers is gone after the test."""
    tasks, cells = dict(TASKS), dict(CELLS)
    yield
    for registry, before in ((TASKS, tasks), (CELLS, cells)):
        registry.clear()
        registry.update(before)


@pytest.mark.usefixtures("registries")
def test_the_blocks_of_the_page_run_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "guide" / "your_task.md").read_text()
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, "docs/guide/your_task.md", "exec"), names)
    assert len(blocks) == text.count("```python") > 5
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 1 + 5 + 1 + 2  # one of the six is the first again


@pytest.mark.usefixtures("registries")
def test_the_example_of_a_task_runs(tmp_path):
    example = runpy.run_path(str(ROOT / "examples" / "your_own_task.py"))
    accuracies = example["main"](tmp_path, length=15, epochs=1)
    assert set(accuracies) == {"classic", "warmup"}
    assert all(0 <= accuracy <= 1 for accuracy in accuracies.values())
