"""How a comparison, and with it a claim, is answered: as claimed, not, by chance either way, or without enough runs."""

from dataclasses import replace

import pytest

from made_up_results import COPY, DENOISING, RESULTS, made, versions
from multistable.cli.bodies.claims import show_claims
from multistable.experiments.claims import CLAIMS, FAILS, HOLDS, OPEN, UNDECIDED, Answer, Check, Claim
from multistable.experiments.claims.base import UNLIKELY, above, below, judged, less, mostly
from multistable.experiments.experiment import Experiment, Spread
from multistable.experiments.report import write_report
from multistable.experiments.scales import PAPER, SCALES
from small_runs import RECORD

YES, NO, EITHER, MISSING = Answer.YES, Answer.NO, Answer.EITHER, Answer.OPEN
LOW, HIGH = Spread.of([1.0, 2.0, 3.0]), Spread.of([4.0, 5.0, 6.0])
BETWEEN = Spread.of([2.5, 3.0, 3.5])


def test_means_that_are_fewer_than_two_standard_errors_apart_cannot_be_told_apart():
    """The error of the difference is 0.82, 0.65."""
    assert less(("one", "other"), (LOW, HIGH)).answer == YES
    assert less(("one", "other"), (HIGH, LOW)).answer == NO
    assert less(("one", "other"), (LOW, BETWEEN)).answer == EITHER
    assert less(("one", "other"), (BETWEEN, LOW)).answer == EITHER
    assert less(("one", "other"), (HIGH, BETWEEN), factor=1.5).answer == EITHER
    assert less(("one", "other"), (HIGH, BETWEEN), factor=3).answer == YES


def test_nor_can_a_mean_and_a_limit():
    """The error of the mean is 0.58."""
    assert [above("it", LOW, limit).answer for limit in (0.8, 0.9, 3.1, 3.2)] == [YES, EITHER, EITHER, NO]
    assert [below("it", LOW, limit).answer for limit in (0.8, 0.9, 3.1, 3.2)] == [NO, EITHER, EITHER, YES]


def test_equal_numbers_without_any_spread_are_not_less():
    alike = Spread.of([1.0] * 3)
    check = less(("one", "other"), (alike, alike))
    assert (check.answer, check.said) == (NO, "one 1 ± 0 (3 runs), less than other 1 ± 0 (3 runs)?")
    assert above("it", alike, 0.99).answer == YES


def test_a_mean_far_above_a_small_limit_refutes_it_though_one_run_of_five_did_it():
    """0.2 is 1.0 standard errors from 0.001; a loss that is below 0.001 on average is not 1 once in five runs."""
    failed = Spread.of([1.0, 0.0, 0.0, 0.0, 0.0])
    check = below("it", failed, 0.001)
    assert (check.answer, check.said) == (NO, "it: 0.2 ± 0.45 (5 runs), below 0.001? 200 times that")
    assert below("it", failed, 1.01 * failed.mean / UNLIKELY).answer == EITHER


def test_without_enough_runs_a_comparison_is_open():
    for few in (None, Spread.of([1.0, 1.0]), Spread(1.0, 0.0, 3, diverged=1)):
        assert less(("one", "other"), (few, HIGH)).answer == MISSING
        assert less(("one", "other"), (HIGH, few)).answer == MISSING
        assert below("it", few, 9.0).answer == above("it", few, 0.1).answer == MISSING


def test_a_comparison_says_how_far_apart_its_means_are():
    assert less(("one", "other"), (LOW, HIGH)).said == (
        "one 2 ± 1 (3 runs), less than other 5 ± 1 (3 runs)? 3.7 standard errors apart"
    )
    factored = less(("one", "other"), (LOW, HIGH), factor=0.5).said
    assert factored.endswith("less than 0.5 times other 5 ± 1 (3 runs)? 0.8 standard errors from 0.5 times that mean")
    assert above("it", LOW, 1.0).said == "it: 2 ± 1 (3 runs), above 1? 1.7 standard errors from it"
    assert judged("it", 100.0, 1.0).said == "it? 100 standard errors apart"


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ((YES, YES), HOLDS),
        ((YES, EITHER, NO, MISSING), FAILS),
        ((YES, EITHER), UNDECIDED),
        ((YES, EITHER, MISSING), UNDECIDED),
        ((YES, MISSING), OPEN),
        ((), OPEN),
    ],
)
def test_one_clear_comparison_refutes_a_claim_and_chance_leaves_it_undecided(answers, verdict):
    claim = Claim("C0", "It is so", (), lambda results: [Check("", answer) for answer in answers], why="A cause.")
    finding = claim.finding([])
    assert finding.verdict == verdict
    assert finding.reason_at(PAPER) == ("A cause." if verdict in (FAILS, UNDECIDED) else "")


def test_a_reason_that_is_not_known_is_open_and_none_is_known_at_other_scales():
    known, unknown = (Claim("C0", "It is so", (), lambda results: [Check("", NO)], why=why) for why in ("A cause.", ""))
    assert unknown.finding([]).reason_at(PAPER) == known.finding([]).reason_at(SCALES["small"]) == "open"


def test_a_reason_is_shown_with_the_targets_of_its_links(capsys):
    claim = Claim("C0", "It is so", (), lambda results: [Check("", NO)], why="Some are [lost](results/lost.md).")
    show_claims([claim.finding([])], PAPER, "made up", details=False)
    assert "C0, does not hold, why: Some are lost [docs/results/lost.md]." in capsys.readouterr().out


def test_the_report_says_why_a_claim_does_not_hold(tmp_path):
    runs = RESULTS["C9"][1]
    source = {run.config.name: replace(run, record=RECORD) for run in runs}
    experiment = Experiment("made-up", 0, (), "Made up", tuple(run.config for run in runs), (), ("C9",))
    page = write_report([experiment], PAPER, tmp_path, "command", source).read_text()
    assert "<p>Why: About half of the LSTMs" in page
    assert "[docs/results/attractors_lost.md]" in page
    assert page.count("<p>Why: ") == 1


def noisy(task, cell, version, values):
    """Runs with these test losses."""
    runs = made(task, cell, version, seeds=len(values), test_loss=0.0)
    for run, value in zip(runs, values, strict=True):
        run.results["test_loss"] = value
    return runs


@pytest.mark.parametrize(("worse", "verdict"), [(0.3, HOLDS), (0.02, UNDECIDED), (-0.02, UNDECIDED), (-0.3, FAILS)])
def test_a_claim_on_two_means_holds_fails_or_is_undecided(worse, verdict):
    """C11, with losses that spread by 0.05."""
    runs = []
    for task in DENOISING:
        for cell in ("lstm", "gru", "mgu"):
            runs += noisy(task, cell, "warmup", (0.45, 0.5, 0.55))
            runs += noisy(task, cell, "classic", (0.45 + worse, 0.5 + worse, 0.55 + worse))
    assert CLAIMS["C11"].finding(runs).verdict == verdict


@pytest.mark.parametrize(
    ("counts", "answer"),
    [
        ((6, 0, 4), YES),
        ((5, 0, 5), EITHER),
        ((0, 5, 5), NO),
        ((3, 2, 0), MISSING),
        ((5, 0, 4), MISSING),
        ((1, 4, 5), EITHER),
        ((1, 1, 7), EITHER),
    ],
)
def test_most_cases_are_more_than_half_and_those_that_cannot_be_told_apart_count_for_neither_side(counts, answer):
    """Of ten: as claimed, not, cannot be told apart; the rest have not enough runs."""
    cases = [Check("", one) for one, count in zip((YES, NO, EITHER), counts, strict=True) for _ in range(count)]
    cases += [Check("", MISSING)] * (10 - len(cases))
    assert mostly("so", cases, 10).answer == answer


def test_what_cannot_be_told_apart_is_counted_and_shown(capsys):
    runs = [run for run in RESULTS["C9"][0] if run.config.version == "warmup"]
    runs += [run for run in versions(COPY, {"classic": 0.9}) if run.config.cell != "gru" or run.config.task != COPY[0]]
    runs += noisy(COPY[0], "gru", "classic", (1.0, 0.9, 0.1))
    finding = CLAIMS["C9"].finding(runs)
    assert (finding.verdict, finding.tally) == (UNDECIDED, ["17 of 18 as claimed, 1 cannot be told apart"])
    show_claims([finding], PAPER, "made up", details=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "cannot be told apart: copy first input, T = 50, gru classic, test loss: 0.667 ± 0.49 (3 runs)" in shown
