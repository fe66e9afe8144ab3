"""Verdicts on made-up results: each can hold, not hold, and lack runs."""

import re
from dataclasses import replace
from itertools import product

import pytest

from made_up_results import (
    ACCURACY,
    CELLS,
    COPY,
    DENOISING,
    LINES,
    ONE,
    RESULTS,
    WARMED,
    at_initialisation,
    before_training,
    copy,
    impact,
    made,
    pretrained,
    selected,
    settled,
    versions,
    warmed_on,
)
from multistable.cli.bodies.claims import show_claims
from multistable.experiments.claims import CLAIMS, FAILS, HOLDS, OPEN, UNDECIDED, Answer
from multistable.experiments.claims.base import forgets_long, title
from multistable.experiments.experiment import Experiment
from multistable.experiments.report import PAGE, write_report
from multistable.experiments.scales import PAPER, SCALES
from multistable.tasks import Denoising
from multistable.training import RunConfig


def test_every_claim_is_tried():
    assert list(RESULTS) == list(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_holds_where_the_results_are_as_claimed_and_fails_where_they_are_not(name):
    """And two runs of each are not enough to say so."""
    as_claimed, not_so = RESULTS[name]
    finding = CLAIMS[name].finding(as_claimed)
    assert finding.verdict == HOLDS, [check for check in finding.checks if check.answer != Answer.YES]
    assert CLAIMS[name].finding(not_so).verdict == FAILS
    assert CLAIMS[name].finding([run for run in as_claimed if run.config.seed < 2]).verdict == OPEN
    assert CLAIMS[name].finding([]).verdict == OPEN


def without_a_cell_or_setting(name):
    """The results as claimed without MGU, and without the hardest task."""
    runs = RESULTS[name][0]
    hardest = max((run.config.task for run in runs), key=lambda task: task.length)
    yield [run for run in runs if run.config.cell != "mgu"]
    yield [run for run in runs if run.config.task != hardest]


@pytest.mark.parametrize("name", ["C2", "C4", "C9", "C11", "C12", "C15", "C22", "C23", "Q1", "Q2"])
def test_a_claim_on_all_cells_and_settings_needs_all_of_them(name):
    assert [CLAIMS[name].finding(others).verdict for others in without_a_cell_or_setting(name)] == [OPEN, OPEN]


def test_claims_on_one_task_or_one_cell_need_the_other():
    """C1, C24: all cells, on one task alone; C10: all tasks, with one cell alone."""
    for name, other in (("C1", 0), ("C24", 0), ("C10", 1)):
        assert CLAIMS[name].finding(list(without_a_cell_or_setting(name))[other]).verdict == OPEN


def test_nbrc_is_not_the_best_where_chrono_ends_lower():
    """C2, whose limit for both is the same."""
    assert CLAIMS["C2"].finding(copy(nbrc=0.002, chrono=0.001)).verdict == FAILS


def test_the_double_layer_must_be_best_for_chrono_lstms_too():
    """C16, of which the paper says: for all types of cell."""
    runs = RESULTS["C16"][0]
    assert CLAIMS["C16"].finding([run for run in runs if run.config.cell != "chrono"]).verdict == OPEN
    worse = versions(LINES, {"classic": 0.96, "warmup": 0.96, "double": 0.95}, ["chrono"], **ACCURACY)
    assert CLAIMS["C16"].finding([run for run in runs if run.config.cell != "chrono"] + worse).verdict == FAILS


@pytest.mark.parametrize(("name", "N"), [("C4", 5), ("C5", 5), ("C6", 100), ("C17", 5)])
def test_a_claim_on_one_forgetting_period_is_not_judged_by_the_other(name, N):
    """Whether the runs would refute it or not."""
    for runs in RESULTS[name]:
        other = [replace(run, config=replace(run.config, task=Denoising(200, N))) for run in runs]
        assert CLAIMS[name].finding(other).verdict == OPEN


def test_the_two_forgetting_periods_are_told_apart_at_every_scale():
    for scale in SCALES.values():
        tasks = [config.task for config in scale.of([RunConfig(task, "gru") for task in DENOISING])]
        assert [forgets_long(task) for task in dict.fromkeys(tasks)] == [False, True]


@pytest.mark.parametrize(("name", "task"), [("C14", LINES[0]), ("C16", LINES[1])])
def test_a_claim_on_one_number_of_black_lines_is_judged_by_that(name, task):
    """Where the runs on the other number refute it, and the other way round."""
    as_claimed, not_so = RESULTS[name]
    for runs, others, verdict in ((as_claimed, not_so, HOLDS), (not_so, as_claimed, FAILS)):
        both = [r for r in runs if r.config.task == task] + [r for r in others if r.config.task != task]
        assert CLAIMS[name].finding(both).verdict == verdict


@pytest.mark.parametrize("name", ["C14", "C16"])
def test_one_forgetting_period_of_line_mnist_does_not_tell_whether_it_is_the_longer(name):
    """Nor by which of the two claims it is to be judged."""
    for runs, there in product(RESULTS[name], LINES):
        finding = CLAIMS[name].finding([run for run in runs if run.config.task == there])
        assert finding.verdict == OPEN
        assert [check.said for check in finding.checks] == ["1 of 2 sequence lengths or forgetting periods"]


@pytest.mark.parametrize(
    ("vaas", "verdict"),
    [((ONE, None, 0.5, None, 0.9), HOLDS), ((ONE, None, ONE, None, 0.9), FAILS), ((ONE, None, ONE, 0.9, 0.9), FAILS)],
)
def test_vaa_counts_up_to_its_first_measurement_after_the_fall_of_the_loss(vaas, verdict):
    for name, task, cells in (("C3", COPY[0], CELLS), ("C6", DENOISING[0], ["gru"])):
        runs = [run for cell in cells for run in made(task, cell, losses=(1.0, 0.1, 0.1, 0.1, 0.1), vaas=vaas)]
        assert CLAIMS[name].finding(runs).verdict == verdict


@pytest.mark.parametrize(("attractors", "verdict"), [(1.45, HOLDS), (1.55, FAILS)])
def test_a_vaa_from_one_and_a_half_attractors_on_is_not_one_attractor(attractors, verdict):
    """C1, where VAA times n is the number of attractors."""
    assert CLAIMS["C1"].finding(at_initialisation(lstm=attractors * ONE)).verdict == verdict


@pytest.mark.parametrize(("attractors", "verdict"), [(1.55, HOLDS), (1.45, FAILS)])
def test_vaa_has_risen_from_one_and_a_half_attractors_on(attractors, verdict):
    for name in ("C3", "C6", "C20"):
        runs = [
            replace(run, metrics=[row | {"vaa": ONE if row["epoch"] == 0 else attractors * ONE} for row in run.metrics])
            for run in RESULTS[name][0]
        ]
        assert CLAIMS[name].finding(runs).verdict == verdict


@pytest.mark.parametrize(("times", "verdict"), [(1.55, HOLDS), (1.45, FAILS)])
def test_vaa_rises_in_pretraining_where_it_grows_by_half(times, verdict):
    runs = [
        replace(run, metrics=[row | {"vaa": 0.1 if row["epoch"] == 0 else 0.1 * times} for row in run.metrics])
        for run in RESULTS["C23"][0]
    ]
    assert CLAIMS["C23"].finding(runs).verdict == verdict


def test_a_gru_that_does_not_learn_denoising_refutes_the_auxiliary_loss():
    assert CLAIMS["C23"].finding(pretrained(risen=7, gru=0.5)).verdict == FAILS


ALL = [*COPY, *DENOISING]
RECORD = {"seconds": 60.0, "together": 1, "device": "a GPU", "torch": "2.0", "multistable": "0.1.0"}


@pytest.mark.parametrize(("loss", "verdict"), [(0.95, HOLDS), (0.5, FAILS)])
def test_more_than_half_of_the_cells_decide_what_is_generally_so(loss, verdict):
    classic = versions(ALL, {"classic": 0.9}, cells=CELLS)
    most, few = (versions(ALL, {"double-classic": loss}, cells=CELLS[:count]) for count in (4, 2))
    assert CLAIMS["C18"].finding(classic + most).verdict == verdict
    assert CLAIMS["C18"].finding(classic + few).verdict == OPEN
    one = [run for run in classic + most if run.config.task == ALL[0]]
    assert CLAIMS["C18"].finding(one).verdict == OPEN


def test_what_is_generally_so_may_be_told_without_the_longest_sequences():
    runs = versions(ALL[:2] + DENOISING, {"classic": 0.9, "double-classic": 0.95}, cells=CELLS)
    assert CLAIMS["C18"].finding(runs).verdict == HOLDS
    assert CLAIMS["C23"].finding([run for run in pretrained(risen=5) if run.config.task != LINES[1]]).verdict == HOLDS


def test_denoising_with_both_forgetting_periods_is_part_of_the_auxiliary_losses():
    runs = [run for run in pretrained(risen=7) if run.config.task != DENOISING[1]]
    assert CLAIMS["C23"].finding(runs).verdict == OPEN


def test_half_of_the_cases_are_not_generally():
    runs = versions(ALL, {"classic": 0.9}, cells=CELLS)
    runs += versions(ALL, {"double-classic": 0.95}, cells=CELLS[:3])
    runs += versions(ALL, {"double-classic": 0.5}, cells=CELLS[3:])
    finding = CLAIMS["C18"].finding(runs)
    assert finding.verdict == FAILS
    (check,) = finding.checks
    assert check.said.endswith("is worse: 15 of 30 cases as claimed, 15 not; in more than half?")
    assert len(check.cases) == 30


def test_the_cases_behind_a_count_are_listed(capsys):
    runs = versions(ALL, {"classic": 0.9, "double-classic": 0.95}, cells=CELLS[:1])
    show_claims([CLAIMS["C18"].finding(runs)], PAPER, "made up", details=True)
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("  open: the double layer without warmup is worse: 5 of 5 cases as claimed") for line in lines
    )
    assert sum(line.startswith("    yes: ") for line in lines) == 5
    assert sum(line.startswith("    open: ") for line in lines) == 25


def test_the_table_has_the_cases_of_a_claim_that_counts_them(capsys, monkeypatch):
    """C18 before it is decided; C23, which has other comparisons beside them; a claim without runs."""
    some = versions(ALL, {"classic": 0.9, "double-classic": 0.95}, cells=CELLS[:1])
    runs = {"C18": some, "C23": pretrained(risen=4), "C9": []}
    monkeypatch.setenv("COLUMNS", "200")
    show_claims([CLAIMS[name].finding(results) for name, results in runs.items()], PAPER, "made up", details=False)
    told = capsys.readouterr().out
    assert re.search(r"C18 .* not enough runs +5 of 5 cases as claimed, of 30 in all ", told)
    assert re.search(r"C23 .* holds +2 of 2 as claimed *\n +12 of 21 cases as claimed, 9 not *\n", told)
    assert re.search(r"C9 .* not enough runs +none ", told)


def test_without_runs_a_claim_is_told_in_terms_that_fit():
    """n is that of the runs, of which there are none; agents are in mazes."""
    said = {name: [check.said for check in CLAIMS[name].finding([]).checks] for name in ("C1", "C5", "C12")}
    assert "copy first input, lstm, VAA before training: (no run), below 1.5/n?" in said["C1"]
    assert "lstm, VAA in the epoch in which its mean is highest: (no run), below 3/n?" in said["C5"]
    assert said["C12"] == ["0 of 3 lengths of the maze"]


def test_the_page_lists_the_cases_behind_a_count(tmp_path):
    runs = versions(ALL, {"classic": 0.9, "double-classic": 0.95}, cells=CELLS[:1])
    source = {run.config.name: replace(run, record=RECORD) for run in runs}
    experiment = Experiment("made-up", 0, (), "Made up", tuple(run.config for run in runs), (), ("C18",))
    write_report([experiment], PAPER, tmp_path, "command", source)
    page = (tmp_path / PAGE).read_text()
    assert "<summary>comparisons: 5 of 5 cases as claimed, of 30 in all</summary>" in page
    summary, cases = page.split("the double layer without warmup is worse: 5 of 5 cases")[1].split("<ul>", 1)
    assert "<li>" not in summary
    cases = cases.split("</ul>")[0]
    assert (cases.count("<li>yes: "), cases.count("<li>open: ")) == (5, 25)


def test_a_loss_that_is_low_is_compared_once():
    """C15, where a double layer is as low as both other versions if its loss is below 0.01."""
    low = versions(COPY[:1], {"classic": 0.9, "warmup": 0.1, "double": 0.001})
    said = [check.said for check in CLAIMS["C15"].finding(low).checks]
    assert len(said) == len(set(said))
    assert sum("below 0.01" in one for one in said) == len({run.config.cell for run in low})


def test_twice_a_loss_of_networks_that_have_not_learned_is_no_limit():
    """C15: a double layer that has learned as little as they is not among the best by that."""
    unlearned = versions(COPY[:1], {"classic": 0.9, "warmup": 0.1, "double": 0.95})
    finding = CLAIMS["C15"].finding(unlearned)
    assert [check.answer for check in finding.checks[1:]] == [Answer.NO, Answer.NO] * 3
    assert CLAIMS["C15"].finding(versions(COPY[:1], {"classic": 0.9, "warmup": 0.9, "double": 0.8})).verdict == OPEN


def test_the_best_must_be_clearly_so():
    """C16, where a mean that is higher by less than two standard errors is not enough."""
    for warmup, verdict in ((0.9555, FAILS), (0.9495, UNDECIDED), (0.945, HOLDS)):
        runs = versions(LINES, {"classic": 0.3, "warmup": warmup, "double": 0.95}, WARMED, **ACCURACY)
        assert CLAIMS["C16"].finding(runs).verdict == verdict


def test_orders_that_the_paper_prints_as_good_as_equal_are_not_compared():
    """C19: those of GRUs on line MNIST."""
    assert CLAIMS["C19"].finding(selected(warmup=0.99, double=0.99)).verdict == HOLDS
    assert CLAIMS["C19"].finding(selected(warmup=0.9, double=0.9)).verdict == HOLDS


@pytest.mark.parametrize("others", [(0.5, 0.95), (0.25, 0.75)])
def test_other_k_than_the_ends_are_not_compared(others):
    changed = dict(zip((0.25, 0.95), others, strict=True))
    for runs in RESULTS["C22"]:
        other = [replace(run, config=replace(run.config, target=changed[run.config.target])) for run in runs]
        assert CLAIMS["C22"].finding(other).verdict == OPEN


def test_other_cells_with_one_k_leave_nothing_open():
    others = [run for task in COPY for run in made(task, "nbrc", "warmup", settings={"target": 0.95}, test_loss=0.01)]
    varied = impact(low=0.5, high=0.01)
    assert CLAIMS["C22"].finding(varied + others).verdict == HOLDS
    assert CLAIMS["C22"].finding([run for run in varied if run.config.cell != "mgu"] + others).verdict == OPEN


def test_warmup_on_random_sequences_must_be_better_than_none():
    assert CLAIMS["Q1"].finding(warmed_on(data=0.6, random=0.95)).verdict == FAILS
    assert CLAIMS["Q1"].finding(warmed_on(data=1e-5, random=1e-3)).verdict == HOLDS


def test_runs_warmed_up_on_random_sequences_do_not_count_as_the_papers():
    noise = {"settings": {"warmup_sequences": "random"}}
    results = versions(COPY, {"classic": 0.9, "warmup": 1e-4}) + versions(COPY, {"warmup": 1.0}, **noise)
    assert CLAIMS["C9"].finding(results).verdict == HOLDS


def test_networks_at_fixed_points_after_training_alone_are_not_at_them_always():
    assert CLAIMS["Q2"].finding(settled(0.5, 0.99)).verdict == FAILS


def test_warmups_whose_time_is_not_known_leave_their_cost_open():
    runs = before_training((2.0, 100), (60.0, 20_000))
    for run in runs:
        if run.warmup:
            del run.warmup["step_seconds"]
    assert CLAIMS["C24"].finding(runs).verdict == OPEN


def test_a_task_is_told_in_words():
    told = {COPY[0]: "copy first input, T = 50", LINES[1]: "permuted line sequential MNIST, N = 472"}
    assert {task: title(task) for task in told} == told
    assert title(Denoising) == "denoising"


def test_the_numbers_stand_beside_the_verdict():
    finding = CLAIMS["C9"].finding(RESULTS["C9"][0])
    said = "copy first input, T = 50, gru classic, test loss: 0.901 ± 0.0009 (3 runs), above 0.5? 772 standard errors"
    assert f"{said} from it" in [check.said for check in finding.checks]


@pytest.mark.parametrize(
    ("scale", "verdicts"),
    [("paper", [HOLDS, FAILS, OPEN]), ("small", [f"{HOLDS}, small scale", f"{FAILS}, small scale", OPEN])],
)
def test_a_scale_smaller_than_the_papers_is_said_in_the_verdict(capsys, scale, verdicts):
    findings = [CLAIMS["C9"].finding(runs) for runs in (*RESULTS["C9"], [])]
    assert [finding.verdict_at(SCALES[scale]) for finding in findings] == verdicts
    show_claims(findings[:1], SCALES[scale], "18 runs", details=False)
    assert f" {verdicts[0]} " in " ".join(capsys.readouterr().out.split())
