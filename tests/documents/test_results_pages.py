"""What is stored in ``docs/results``, and how the results of runs are added to it."""

import hashlib
import re
import sys

import pytest

from figure_scripts import figure_script
from made_up_results import CELLS, COPY, DENOISING, pretrained, versions
from multistable.experiments.archive import read_results
from multistable.experiments.claims import CLAIMS, FAILS, HOLDS, OPEN, UNDECIDED, Answer, Check, Claim
from multistable.experiments.experiment import Result
from multistable.rl import PassiveMaze
from multistable.tasks import CopyFirstInput
from multistable.training import RunFolder
from paths import ROOT
from small_agents import small_ppo
from small_runs import RECORD, small

STORED = ROOT / "docs" / "results"
RUNS = [small(seed=seed) for seed in range(4)]


def test_what_is_stored_is_small_and_told_of():
    """A file is named on a page or, for a script to read, by its name without an ending."""
    files = [path for path in STORED.iterdir() if path.suffix != ".md"]
    assert sum(path.stat().st_size for path in STORED.iterdir()) < 7e6
    text = "\n".join(path.read_text() for path in STORED.glob("*.md"))
    assert [path.name for path in files if not re.search(rf"\b{re.escape(path.stem)}\b", text)] == []


def test_stored_runs_keep_the_names_they_had():
    """Supervised runs and agents, of both scales."""
    files = ("copy_50", "denoising_100", "tmaze", "auxiliary_small", "attractors_small", "warmup_300")
    names = [result.config.name for file in files for result in read_results(STORED / f"{file}.json")]
    assert len(names) == 681
    assert hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] == "b7b0af493791d501"


@pytest.fixture(scope="module")
def pages():
    """The script ``docs/figures/results.py``."""
    return figure_script("results")


def finish(config, out, device="CPU"):
    """Make the folder of a run that is finished."""
    folder = RunFolder.of(config, out)
    folder.path.mkdir(parents=True)
    folder.write_config(config)
    folder.add_metrics({"epoch": config.duration, "validation_loss": 1 / 3 + config.seed, "seconds": 1.0})
    record = RECORD | {"seconds": 1 + config.seed, "device": device}
    folder.finish({"results": {"test_loss": 0.1, "warmup": None}, "record": record})


@pytest.fixture
def stored(pages, tmp_path):
    """A file with the results of two of the runs, which have no folder any more."""
    for config in RUNS[1:3]:
        finish(config, tmp_path / "former")
    pages.store(RUNS, tmp_path / "former", tmp_path / "stored.json")
    return tmp_path / "stored.json"


def test_results_are_added_in_the_order_of_the_runs(pages, stored, tmp_path):
    before = stored.read_text().splitlines()[1:-1]
    for config in (RUNS[0], RUNS[3]):
        finish(config, tmp_path / "runs")
    pages.store(RUNS, tmp_path / "runs", stored)
    after = stored.read_text().splitlines()[1:-1]
    assert [line.rstrip(",") for line in after[1:3]] == [line.rstrip(",") for line in before]
    assert [result.config for result in read_results(stored)] == RUNS


def test_nothing_finished_is_refused(pages, stored, tmp_path):
    before = stored.read_bytes()
    with pytest.raises(SystemExit, match=r"none of the runs of this page is finished in .*runs; nothing was written"):
        pages.store(RUNS, tmp_path / "runs", stored)
    assert stored.read_bytes() == before


def test_stored_results_of_other_runs_are_not_dropped(pages, stored, tmp_path):
    before = stored.read_bytes()
    finish(RUNS[0], tmp_path / "runs")
    with pytest.raises(SystemExit, match=rf"1 runs .* not of this page, such as {re.escape(RUNS[2].name)};"):
        pages.store(RUNS[:2], tmp_path / "runs", stored)
    assert stored.read_bytes() == before


@pytest.fixture
def page(pages, tmp_path, monkeypatch):
    """A function that runs the script for a page without pictures, whose file is that of ``stored``."""
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    monkeypatch.setitem(pages.PAGES, "stored", pages.Page(RUNS, (), ()))

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["results.py", "stored", *map(str, options)])
        pages.main()

    return run


def test_all_devices_are_named(page, stored, tmp_path, capsys):
    finish(RUNS[0], tmp_path / "runs", "a GPU")
    page("--runs", tmp_path / "runs")
    assert capsys.readouterr().out.endswith("3 of 4 runs, 6 s on CPU, a GPU\n")


def test_a_page_without_results_is_refused(page, tmp_path):
    with pytest.raises(SystemExit, match=r"no results in .*--runs"):
        page()
    assert not (tmp_path / "stored.json").exists()


@pytest.mark.parametrize(
    ("answers", "verdict", "count"),
    [
        ("yy", HOLDS, "2 of 2 as claimed"),
        ("yno", FAILS, "1 of 2 as claimed, 1 not, of 3 in all<br>no: 1"),
        ("ye", UNDECIDED, "1 of 2 as claimed, 1 cannot be told apart<br>cannot be told apart: 1"),
        ("o", OPEN, "0 of 0 as claimed, of 1 in all"),
        ("", OPEN, "none"),
    ],
)
def test_a_page_has_the_verdict_of_the_claim_and_the_comparisons_that_did_not_come_out(
    pages, monkeypatch, answers, verdict, count
):
    known = {"y": Answer.YES, "n": Answer.NO, "e": Answer.EITHER, "o": Answer.OPEN}
    checks = [Check(str(place), known[answer]) for place, answer in enumerate(answers)]
    monkeypatch.setitem(CLAIMS, "C1", Claim("C1", "It is so", (), lambda results: checks))
    assert pages.verdicts(("C1",), []).splitlines()[-1] == f"| C1: It is so | {verdict} | {count} |"


def test_a_page_counts_the_cases_of_a_claim_as_the_command_does(pages):
    """C18 is a count of cases alone; C23 has other comparisons beside them."""
    eighteen = versions(COPY + DENOISING, {"classic": 0.9}, cells=CELLS[:2])
    eighteen += versions(COPY + DENOISING, {"double-classic": 0.95}, cells=CELLS[:1])
    eighteen += versions(COPY + DENOISING, {"double-classic": 0.5}, cells=CELLS[1:2])
    for name, results, tally, wrong in (
        ("C18", eighteen, ["5 of 10 cases as claimed, 5 not, of 30 in all"], 5),
        ("C23", pretrained(risen=4), ["2 of 2 as claimed", "12 of 21 cases as claimed, 9 not"], 9),
    ):
        told = pages.verdicts((name,), results).splitlines()[-1].removesuffix(" |").split(" | ")[-1].split("<br>")
        assert [one for one in told if not one.startswith("no: ")] == tally == CLAIMS[name].finding(results).tally
        assert len(told) == len(tally) + wrong


def test_a_page_of_some_mazes_judges_no_claim_on_another(pages):
    longest = {name: max(config.task.L for config in pages.PAGES[name].runs) for name in ("tmaze", "tmaze_200")}
    assert {name: "C7" in pages.PAGES[name].claims for name in longest} == {
        name: L == 200 for name, L in longest.items()
    }


def test_a_page_takes_what_is_stored_with_others_too_and_rather_its_own(pages, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    for name, configs in (("other", RUNS[:3]), ("own", RUNS[2:])):
        for config in configs:
            finish(config, tmp_path / name, device=name)
        pages.store(configs, tmp_path / name, tmp_path / f"{name}.json")
    found = pages.of_page(pages.Page(RUNS[1:], (), shared=("other",)), tmp_path / "own.json")
    assert [(result.config.seed, result.record["device"]) for result in found] == [(1, "other"), (2, "own"), (3, "own")]


def warmed_up(**settings):
    """A run that learns in its first epoch, after a warmup whose second layer rises to 0.75 in its last ten steps."""
    metrics = [{"epoch": 0, "validation_loss": 1.0, "vaa": 0.25}, {"epoch": 1, "validation_loss": 0.05, "vaa": 0.5}]
    course = {"outcome": "multistable", "vaa": 1.0, "vaa_star": [[0.1, 0.2]] * 5 + [[0.5, 0.75]] * 10}
    config = small(version="warmup", **{"warmup_steps": 100} | settings)
    return Result(config, metrics, {"test_loss": 0.001, "warmup": "multistable"}, RECORD, course)


def test_a_warmup_that_is_not_the_papers_is_told_beside_the_version(pages):
    runs = [warmed_up(), warmed_up(warmup_steps=300), warmed_up(warmup_algorithm="reliable")]
    severalof = [[row[1] for row in table(runs)[1]] for table in (pages.by_seed, pages.warmups)]
    assert severalof == [["warmup", "warmup, 300 steps", "warmup, reliable"]] * 2


def test_the_table_of_targets_has_vaa_before_and_after_the_first_epoch(pages):
    header, rows = pages.by_target([warmed_up(target=0.95), warmed_up(target=0.5)])
    assert [row[2] for row in rows] == ["0.5", "0.95"]
    assert rows[0] == ["6", "GRU", "0.5", "0.25", "0.50", "multistable", "1", "0.001", "1 of 1"]
    assert len(header) == len(rows[0])


def test_the_last_layer_is_drawn_as_a_mean_of_ten_steps(pages):
    drawn = pages.LastLayer(name="", caption="").draw([warmed_up()])
    (line,) = drawn.axes[0].lines
    steps, stars = line.get_data()
    assert list(steps) == [10, 11, 12, 13, 14, 15]
    assert (stars[0], stars[-1]) == (pytest.approx((0.2 + 0.75) / 2), pytest.approx(0.75))


def test_courses_of_warmups_are_left_out_where_a_page_says_so(pages):
    warmed = Result(small(version="warmup"), [], {}, RECORD, {"vaa_star": [[0.5]], "outcome": "multistable"})
    assert pages.without_course(warmed).warmup == {"outcome": "multistable"}
    assert pages.without_course(Result(small(), [], {}, RECORD)).warmup is None
    assert [name for name, page in pages.PAGES.items() if not page.courses] == ["when", "agents_elsewhere"]


def test_severalare_compared_by_how_far_classic_networks_come(pages):
    """Scores are losses here, since guessing costs 1. Losses a little apart, or by chance, are not told apart."""
    losses = {  # of two seeds of a classic, a warmed-up and a double network
        6: ([0.1, 0.1], [0.5, 0.5], [0.101, 0.101]),
        7: ([0.2, 0.2], [0.0, 1.0], [0.1, 0.1]),
        8: ([1.0, 1.0], [0.5, 0.5], [0.9, 0.9]),
    }
    made = [
        Result(small(task=CopyFirstInput(T), version=version, seed=seed), [], {"test_loss": loss}, RECORD)
        for T, several in losses.items()
        for version, values in zip(("classic", "warmup", "double"), several, strict=True)
        for seed, loss in enumerate(values)
    ]
    _, rows = pages.by_classic(made)
    assert rows == [
        ["learn (score below 0.6)", "2", "0.15 / 0.50 / 0.10", "0 / 1 / 1", "1 / 1 / 0"],
        ["guess (score above 0.95)", "1", "1.00 / 0.50 / 0.90", "1 / 0 / 0", "1 / 0 / 0"],
    ]
    assert pages.by_classic(made[:-2])[1] == rows[:1], "without double networks the last task is not counted"


def test_agents_are_compared_by_their_returns(pages):
    """Of two seeds each; a task without double layers is not counted."""
    returns = {
        3: {"classic": [[0, 0.1], [0, 0.1]], "warmup": [[0, 1], [0, 1]], "double": [[0.5, 0], [0.5, 0.2]]},
        4: {"classic": [[0, 1], [0, 1]], "warmup": [[0, 0.5], [0, 0.5]], "double": [[0, 1], [0, 1]]},
        5: {"classic": [[0, 1], [0, 1]], "warmup": [[0, 0.5], [0, 0.5]]},
    }
    made = [
        Result(
            small_ppo(task=PassiveMaze(L), version=version, seed=seed),
            [{"episode": 6 * i, "return": value} for i, value in enumerate(values)],
            {"final_return": values[-1]},
            RECORD,
        )
        for L, versions in returns.items()
        for version, seeds in versions.items()
        for seed, values in enumerate(seeds)
    ]
    assert pages.returns_by_classic(made)[1] == [
        ["at the end", "2", "1 / 0 / 1", "0 / 2 / 0"],
        ["mean over training", "2", "1 / 0 / 1", "1 / 1 / 0"],
    ]
