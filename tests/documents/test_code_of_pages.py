"""The Python of the pages runs, with smaller numbers where it would take long."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import multistable as ms
from multistable.cells import CELLS
from multistable.tasks import TASKS
from paths import ROOT

GUIDE = ROOT / "docs" / "guide"


def blocks(document: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert found
    return found


def run(*code: str) -> dict[str, Any]:
    """What blocks have named, run one after the other."""
    names: dict[str, Any] = {}
    for block in code:
        exec(block, names)
    return names


def smaller(block: str, *changes: tuple[str, str]) -> str:
    """A block with other numbers, so that it takes a moment."""
    for old, new in changes:
        assert old in block
        block = block.replace(old, new)
    return block


@pytest.fixture(autouse=True)
def registries(tmp_path, monkeypatch):
    """What a page registers is gone after the test, and so are its runs."""
    monkeypatch.chdir(tmp_path)
    for registry in (TASKS, CELLS):
        for name in set(registry):
            monkeypatch.setitem(registry, name, registry[name])
    before = [set(TASKS), set(CELLS)]
    yield
    for registry, names in zip((TASKS, CELLS), before, strict=True):
        for name in set(registry) - names:
            del registry[name]


@pytest.fixture
def in_two_steps(monkeypatch):
    """A warmup of two steps, and measures of a moment."""
    monkeypatch.setattr(ms, "measure", lambda *args, f=ms.measure, **_: f(*args, batches=2, stabilisation=50))
    monkeypatch.setattr(ms, "lyapunov", lambda *args, f=ms.lyapunov, **_: f(*args, batches=2, stabilisation=50))
    monkeypatch.setattr(
        ms, "attractors", lambda *args, f=ms.attractors, **options: f(*args, **options | {"stabilisation": 50})
    )
    monkeypatch.setattr(
        ms, "continuation", lambda *args, f=ms.continuation, **options: f(*args, **options, stabilisation=50)
    )
    monkeypatch.setattr(ms, "warmup", lambda *args, f=ms.warmup, **options: f(*args, **options, steps=2))


@pytest.mark.usefixtures("in_two_steps")
def test_a_network_is_warmed_up_as_shown():
    """In two steps, after which it is not multistable and a wanted VAA is missed, as the pages say."""
    (one_line, three_lines, a_cell), (start,) = blocks(ROOT / "README.md"), blocks(GUIDE / "start.md")
    _, wanted, robust = blocks(ROOT / "docs" / "reference" / "warmup.md")
    with pytest.warns(ms.WarmupWarning):
        names = run(
            "import torch\nmodel, loader = torch.nn.GRU(1, 4), torch.randn(5, 40, 1)",
            *(one_line, smaller(three_lines, ("GRU(1, 128)", "GRU(1, 4)")), wanted, a_cell),
        )
    assert names["history"].outcome == "missed"
    with pytest.warns(ms.WarmupWarning):
        robustly = run(
            "import torch\nimport multistable as ms\nrnn, sequences = torch.nn.GRU(1, 4), torch.randn(5, 40, 1)", robust
        )
    assert (robustly["history"].outcome, robustly["history"].robustness.noise) == ("frail", 0.5)
    leaky = names["Leaky"](1, 2)
    leaky.recurrent_weight = torch.zeros(2, 2)
    assert leaky.step(torch.zeros(3, 2), ms.Hidden(torch.ones(3, 2))).h.tolist() == [[pytest.approx(0.9)] * 2] * 3
    with pytest.warns(ms.WarmupWarning):
        assert run(smaller(start, ("GRU(1, 64)", "GRU(1, 4)")))["history"].outcome != "multistable"


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
@pytest.mark.usefixtures("in_two_steps")
def test_models_are_warmed_up_as_shown():
    names = run(*blocks(GUIDE / "your_model.md"))
    assert len(names["networks"]) == 3
    names = run(*blocks(GUIDE / "attractors.md"))
    assert names["several"].fractions_under().shape == (3, len(names["several"]))
    assert len(names["course"].counts) == 9
    shares = names["shares"]
    assert shares.fixed_points + shares.cycles + shares.moving == pytest.approx(1)


def test_a_cell_is_written_as_shown(tmp_path):
    names = run(*blocks(GUIDE / "your_cell.md"))
    assert names["output"].shape == (20, 5, 16)
    assert names["folder"].summary()["results"]["test_loss"] > 0


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
def test_a_task_is_trained_as_shown(tmp_path):
    task, one_run, *others = blocks(GUIDE / "your_task.md")
    size = ('"hidden_size": 32', '"stabilisation": 100, "hidden_size": 8')
    run(task, smaller(one_run, size), *others)
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 1 + 5 + 1  # one of the six is the first again


def test_the_example_of_a_task_runs(tmp_path):
    example = runpy.run_path(str(ROOT / "examples" / "your_own_task.py"))
    accuracies = example["main"](tmp_path, length=15, epochs=1)
    assert set(accuracies) == {"classic", "warmup"}
    assert all(0 <= accuracy <= 1 for accuracy in accuracies.values())


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
def test_agents_are_trained_as_shown():
    """In a short maze, with small networks and few episodes."""
    maze, env, agents, configs, own, ppo, *_ = blocks(GUIDE / "agents.md")
    names = run(maze, env)
    assert (names["maze"].horizon, names["maze"].optimal_return, names["maze"].optimal_length) == (60, 4.0, 21)
    episodes = ("1000, evaluate_every=20, measure_every=100", "2, evaluate_every=2, measure_every=2")
    pairs = (("[0, 1, 2, 0, 1, 2]", "[0, 0]"), ("[False] * 3 + [True] * 3", "[False, True]"))
    names = run(smaller(agents, *pairs, ("TMaze(20)", "TMaze(3)"), (" 128,", " 6,"), episodes), own)
    assert [evaluation.episode for evaluation in names["evaluations"]] == [0, 2]
    size = ("Maze(20), ", "Maze(3), hidden_size=6, num_layers=1, capacity=500, stabilisation=200, cell=")
    names = run(smaller(configs, size, ("episodes=1000", "episodes=20"), ("range(3)", "range(1)")))
    assert len(names["folders"]) == 2
    pairs = (("[0, 1, 0, 1]", "[0, 0]"), ("[False] * 2 + [True] * 2", "[False, True]"))
    episodes = ("1920, evaluate_every=320", "4, evaluate_every=4"), ("s(action_input", "s(copies=4, action_input")
    names = run(smaller(ppo, *pairs, *episodes, ("Maze(100,", "Maze(3,"), (" 64,", " 6,")))
    assert names["evaluation"].episode == 4


def test_advice_is_asked_for_as_shown(capsys):
    (block,) = blocks(GUIDE / "advice.md")
    names = run(smaller(block, ("(2000, 50)", "(200, 30)"), ("lr=3e-3", "steps=0")))
    assert names["advice"].length == 30
    assert capsys.readouterr().out.startswith("Advice: cannot tell.")
