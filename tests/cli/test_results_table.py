"""The table of results stays readable on a narrow terminal."""

import re

import pytest

from commands import call
from multistable.cli.console import console
from multistable.cli.wide import WideTable
from multistable.tasks import Denoising
from multistable.training import RunFolder
from small_runs import RECORD, small

SETTINGS = ({}, {"hidden_size": 256, "learning_rate": 0.0005, "batch_size": 32}, {"training_sequences": 40000})
RUNS = [small(seed=seed, version=version, **some) for seed, (version, some) in enumerate(
    [("classic", SETTINGS[0]), ("double-classic", SETTINGS[1]), ("warmup", SETTINGS[2])]
)]  # fmt: skip
AGAIN = [small(seed=seed, version="warmup", **SETTINGS[2]) for seed in (3, 4)]


def results_of(number):
    """Such that every number of every run is another."""
    names = ("validation_loss", "test_loss", "initial_vaa", "final_vaa")
    values = {name: 0.1001 + number / 100 + place / 1000 for place, name in enumerate(names)}
    return {"best_epoch": 12 + number, **values}


@pytest.fixture
def folders(tmp_path):
    """Finished runs that differ in several settings."""
    made = []
    for number, config in enumerate([*RUNS, *AGAIN]):
        folder = RunFolder.of(config, tmp_path)
        folder.path.mkdir()
        folder.write_config(config)
        warmup = "multistable" if config.kind.warmed else None
        folder.finish({"results": results_of(number) | {"warmup": warmup}, "record": RECORD | {"seconds": 12345.0}})
        made.append(folder.path)
    return made


def shown(folders, columns):
    result = call("show", *folders, env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("columns", [30, 50, 120])
def test_no_number_is_folded(folders, columns):
    lines = shown(folders, columns).splitlines()
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for number in range(len(folders)):
        found = results_of(number)
        assert str(found.pop("best_epoch")) in words
        assert all(f"{value:.4f}" in words for value in found.values())
    assert {"256", "0.0005", "32", "40000", "12345", "multistable"} <= set(words)
    # Mean and deviation stand side by side.
    assert len(re.findall(r"\d\.\d{4} ± \d\.\d{4}", "\n".join(lines))) == 4
    # Every number stands in the row of its run, whatever part of a name is in the first line of that.
    for number, folder in enumerate(folders):
        for value in list(results_of(number).values())[1:]:
            (line,) = (line for line in lines if f" {value:.4f} " in f"{line} " and "±" not in line)
            assert folder.name.startswith(line.split()[0])


def test_titles_are_folded_between_words_alone(folders):
    words = set(shown(folders, 80).split())
    assert {"hidden", "size", "learning", "rate", "training", "sequences", "validation", "loss", "before"} <= words


def test_a_table_that_fits_is_one(folders):
    lines = shown(folders, 250).splitlines()
    (header,) = (line for line in lines if line.startswith(" run "))
    titles = re.split(" {2,}", header.strip())
    assert titles[0] == "run"
    assert {"hidden size", "learning rate", "best epoch", "validation loss", "VAA after", "seconds"} <= set(titles)
    assert all(sum(folder.name in line for line in lines) == 1 for folder in folders)


def test_names_are_in_every_part(folders):
    lines = shown(folders, 120).splitlines()
    parts = sum(line.startswith(" run ") for line in lines)
    assert parts > 1
    assert all(sum(folder.name in line for line in lines) == parts for folder in folders)
    assert sum("Seconds are those of all runs" in line for line in lines) == 1


def test_something_that_is_longer_than_a_line_is_shown_all_the_same(tmp_path):
    made = []
    for options in ({}, {"t_max": 123456789.25}):
        config = small(task=Denoising(20, 5), cell="chrono", cell_options=options)
        folder = RunFolder.of(config, tmp_path)
        folder.path.mkdir()
        folder.write_config(config)
        folder.finish({"results": results_of(0) | {"warmup": None}, "record": RECORD})
        made.append(folder.path)
    found = shown(made, 36)
    assert max(map(len, found.splitlines())) <= 36
    assert "0.1001" in found


@pytest.mark.parametrize(
    ("columns", "rows", "width"), [(["run"], 0, "2"), (["run", "loss"], 2, "2"), (["run", "loss"], 2, "40")]
)
def test_a_table_of_almost_nothing(monkeypatch, capsys, columns, rows, width):
    monkeypatch.setenv("COLUMNS", width)
    made = WideTable(columns)
    for _ in range(rows):
        made.add_row(*["0.5"] * len(columns))
        made.add_section()
    console().print(made)
    found = capsys.readouterr().out
    assert max(map(len, found.splitlines())) <= int(width)
    if width == "40":
        assert found.split()[: len(columns)] == columns
        assert found.count("0.5") == rows * len(columns)


def test_of_several_parts_the_first_has_the_title_and_the_last_the_caption(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    made = WideTable(["run", "first", "second", "third"], title="A title", caption="A caption")
    made.add_row("name", *["0.123456789"] * 3)
    console().print(made)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert sum(line.startswith("run ") for line in lines) == 2
    assert (lines[0], lines[-1]) == ("A title", "A caption")
    assert (lines.count("A title"), lines.count("A caption")) == (1, 1)


def test_runs_that_differ_in_more_than_their_seed_stand_apart(folders):
    """An empty line is between the three kinds of runs, of which the last has three seeds and their mean."""
    rows = shown(folders, 250).rsplit("─ \n", 1)[-1].split("Seconds are")[0].rstrip()
    assert [len(kind.splitlines()) for kind in re.split(r"\n *\n", rows)] == [1, 1, 4]
