"""Cells and tasks of a user's own on the command line, also of a process that has never heard of them."""

import os
import subprocess
import sys

import pytest

from commands import SMALL, call
from multistable.cells import CELLS
from multistable.tasks import TASKS
from multistable.training import RunConfig, RunFolder

CODE = """
from dataclasses import dataclass, field
import multistable as ms
from multistable.arguments import positive_integer
from multistable.setting import about
from multistable.tasks import TASKS, CopyFirstInput

class Slow(ms.CELLS["mgu"]):
    "A cell."

    def step(self, projected, state):
        return ms.Hidden((state.h + super().step(projected, state).h) / 2)

@dataclass(frozen=True)
class Sums(CopyFirstInput):
    first: int = field(default=2, metadata=about("How many.", positive_integer))

    def draw(self, n, generator):
        data = super().draw(n, generator)
        return data._replace(targets=data.inputs[: self.first].sum(0))
"""
REGISTERING = """
import sys
from multistable.training import RunConfig, RunFolder

if __name__ == "__main__":
    ms.CELLS["slow"], TASKS["sums"] = Slow, Sums
    config = RunConfig(Sums(5), "slow", hidden_size=4)
    folder = RunFolder.of(config, sys.argv[1])
    folder.path.mkdir()
    folder.write_config(config)
"""
OPTIONS = f"{SMALL} --epochs 1 --version double --seeds 2".partition("copy")[2].split()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a cell and a task, which are importable, and what is registered meanwhile is forgotten."""
    (tmp_path / "of_mine.py").write_text(CODE)
    for registry in (CELLS, TASKS):
        for name in ("slow", "sums"):
            monkeypatch.setitem(registry, name, None)
            del registry[name]
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("of_mine", None)


def another_process(folder, program, *arguments):
    """What a program in a file of another folder says, run in this one."""
    (folder / "elsewhere").mkdir(exist_ok=True)
    file = folder / "elsewhere" / "program.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, file, *map(str, arguments)],
        capture_output=True, text=True, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


COMMAND = "from multistable.cli import main; main()"


def test_an_own_cell_learns_an_own_task_and_another_process_shows_it(here):
    """Two seeds of double layers: an ensemble."""
    another_process(here, COMMAND, "train", "of_mine:Sums", "--cell", "of_mine:Slow", "--set", "first=3", *OPTIONS)
    folders = sorted((here / "runs").iterdir())
    assert [path.name.rpartition("-")[0] for path in folders] == [
        f"of_mine.Sums-of_mine.Slow-double-{seed}" for seed in (0, 1)
    ]
    told = another_process(here, COMMAND, "show", *folders)
    assert all(path.name in told for path in folders)
    config = RunFolder(folders[0]).config()
    assert (config.cell, config.to_dict()["task"]) == ("of_mine:Slow", {"name": "of_mine:Sums", "T": 5, "first": 3})


def test_an_own_cell_goes_on_where_it_was(here):
    line = f"{SMALL} --epochs 2 --version classic --cell of_mine:Slow".replace("copy", "of_mine:Sums")
    assert call(f"{line} --minutes 0", "--out", here / "stopped").exit_code == 0
    for out in ("stopped", "at once"):
        assert call(line, "--out", here / out).exit_code == 0
    results = [
        [RunFolder(path).summary()["results"] for path in (here / out).iterdir()] for out in ("stopped", "at once")
    ]
    assert results[0] == results[1]


def test_what_a_program_registered_is_imported_by_another_process(here):
    """By the name that it was registered by: the run keeps its name."""
    another_process(here, CODE + REGISTERING, here)
    (folder,) = here.glob("sums-slow-*")
    sys.path.append(str(here / "elsewhere"))
    try:
        config = RunFolder(folder).config()
    finally:
        sys.path.remove(str(here / "elsewhere"))
    assert (config.cell, config.task_name, config.name) == ("slow", "sums", folder.name)
    assert "slow" not in RunConfig(TASKS["copy"](5), "gru").stored().get("imports", {})


def test_entry_points_are_names(here):
    package = here / "mine-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[multistable.cells]\nslow = of_mine:Slow\n[multistable.tasks]\nsums = of_mine:Sums\n"
    )
    told = call("train sums --T 7 --cell slow --version classic --dry-run", "--out", here / "runs")
    assert "sums-slow-classic-0-" in told.stdout
    listed = call("list tasks").stdout + call("list cells").stdout
    assert " --T T [--set first=FIRST] " in listed
    assert "\n slow " in listed
    task = TASKS.find("sums")(7)
    assert RunConfig(task, CELLS.find("slow")) == RunConfig(task, "slow")
    assert RunConfig(task, "slow").to_dict()["task"]["name"] == "sums"


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("copy --T 5 --cell nowhere:Cell", 1, "the cell nowhere:Cell cannot be imported: there is no module nowhere"),
        ("copy --T 5 --cell of_mine.deeper:Cell", 1, "there is no module of_mine.deeper on Python's path. The current"),
        ("copy --T 5 --cell of_mine:Cell", 2, "the cell of_mine:Cell cannot be imported: of_mine has no Cell"),
        ("copy --T 5 --cell of_mine:__name__", 2, "cell 'of_mine:__name__' must be the class of a cell, got 'of_mine'"),
        ("of_mine:Slow", 2, "task 'of_mine:Slow' must be the class of a task, got <class 'of_mine.Slow'>"),
        ("of_mine:Sums --T 5 --set first=0", 2, "first must be a positive integer, got 0"),
        ("of_mine:Sums --T 5 --N 5", 2, "the task 'of_mine:Sums' has no setting 'N'; its settings are: T, first"),
    ],
)
def test_what_cannot_be_imported_is_told(here, line, code, told):
    result = call(f"train {line} --dry-run", "--out", here / "runs", env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    assert told in result.stderr
