"""Links of the documents lead somewhere, every picture is shown, and their short blocks of Python run."""

import re
from pathlib import Path
from typing import Any

import pytest

import multistable as ms
from paths import ROOT

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(document: Path) -> str:
    """The text without its blocks of code."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """What GitHub makes of the headings: lower case, hyphens for spaces, no other signs."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for link in LINK.findall(prose(document)):
        if re.match("https?:", link):
            continue
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_picture_is_shown_somewhere():
    links = {(document.parent / link).resolve() for document in DOCUMENTS for link in LINK.findall(prose(document))}
    pictures = {path for kind in ("png", "svg") for path in (ROOT / "docs").rglob(f"*.{kind}")}
    assert [str(path.relative_to(ROOT)) for path in sorted(pictures - links)] == []


def test_every_block_is_python():
    for document in DOCUMENTS:
        for block in blocks(document):
            compile(block, document, "exec")


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


def test_a_network_is_warmed_up_as_shown(monkeypatch):
    """In two steps, after which it is not multistable and a wanted VAA is missed, as the pages say."""
    warmup, measure = ms.warmup, ms.measure
    monkeypatch.setattr(ms, "measure", lambda *args: measure(*args, batches=2, stabilisation=50))
    monkeypatch.setattr(ms, "warmup", lambda *args, **options: warmup(*args, **options, steps=2))
    (three_lines,), (wanted,) = blocks(ROOT / "README.md"), blocks(ROOT / "docs" / "results" / "warmup_records.md")
    with pytest.warns(ms.WarmupWarning):
        names = run(smaller(three_lines, ("GRU(1, 128)", "GRU(1, 4)")), wanted)
    assert names["history"].outcome == "missed"


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
def test_agents_are_trained_as_shown(tmp_path, monkeypatch):
    """In a short maze, with small networks and few episodes."""
    monkeypatch.chdir(tmp_path)
    maze, env, agents, configs, own, *_ = blocks(ROOT / "docs" / "guide" / "agents.md")
    names = run(maze, env)
    assert (names["maze"].horizon, names["maze"].optimal_return, names["maze"].optimal_length) == (60, 4.0, 21)
    episodes = ("1000, evaluate_every=20, measure_every=100", "2, evaluate_every=2, measure_every=2")
    names = run(smaller(agents, ("TMaze(20)", "TMaze(3)"), (" 128,", " 6,"), episodes), own)
    assert [evaluation.episode for evaluation in names["evaluations"]] == [0, 2]
    size = ("Maze(20), ", "Maze(3), hidden_size=6, num_layers=1, cell=")
    names = run(smaller(configs, size, ("episodes=1000", "episodes=20"), ("range(3)", "range(1)")))
    assert len(names["folders"]) == 2
