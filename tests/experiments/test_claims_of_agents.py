"""Verdicts on made-up results of agents: C7 and C12."""

import pytest

from made_up_results import MAZES, ONE, agents, in_mazes, players
from multistable.experiments.claims import CLAIMS, FAILS, HOLDS, OPEN, UNDECIDED, Answer
from multistable.experiments.claims.reinforcement import learning, stays_optimal
from multistable.experiments.experiment import rank_correlation


def test_bistable_cells_must_beat_classic_ones_too():
    assert CLAIMS["C12"].finding(in_mazes(brc_classic=500)).verdict == FAILS


def test_warmup_must_gain_more_in_longer_mazes():
    for classic, verdict in (((400, 400, 420), HOLDS), ((420, 400, 400), FAILS)):
        finding = CLAIMS["C12"].finding(in_mazes(classic=classic))
        assert [check.answer for check in finding.checks if check.said.startswith("gain by warmup in episodes")] == [
            {HOLDS: Answer.YES, FAILS: Answer.NO}[verdict]
        ]


def test_warmed_up_agents_must_be_optimal_first_in_the_longest_maze():
    for warmed, classic in ((60, 40), (None, 40), (None, None)):
        mazes = {"warmed": (40, 40, warmed), "classic": (60, 60, classic)}
        assert CLAIMS["C12"].finding(in_mazes(**mazes)).verdict == FAILS


def test_warmed_up_agents_must_stay_optimal():
    assert CLAIMS["C12"].finding(in_mazes(shares=(0.5, 0.9))).verdict == FAILS


@pytest.mark.parametrize(("share", "first", "expected"), [(0.5, 1000, 0.5), (0.0, 1000, 0.0), (1.0, 2000, 0.0)])
def test_an_agent_stays_optimal_in_a_share_of_the_evaluations_after_the_first_such(share, first, expected):
    """Without any later evaluation it has not been seen to stay so."""
    (run, *_) = players(MAZES[0], ("gru", "classic"), first, share)
    assert stays_optimal(run) == expected
    (never, *_) = players(MAZES[0], ("gru", "classic"), None, share)
    assert stays_optimal(never) == 0


def test_an_agent_that_never_was_optimal_counts_with_all_its_episodes():
    """One of three, in the mean of 2000, 40 and 40, which is then too uncertain to be the lower one."""
    runs = in_mazes(classic=(700, 800, 900))
    for run in runs:
        if run.config.seed == 0 and run.config.version == "warmup":
            run.results["first_optimal"] = None
    finding = CLAIMS["C12"].finding(runs)
    assert finding.verdict == UNDECIDED
    said = (
        "maze, L = 200, episodes until optimal of gru warmed up (2 of 3 ever optimal) 693 ± 1132 (3 runs), "
        "less than gru classic 900 ± 0 (3 runs)? 0.3 standard errors apart"
    )
    assert [check.answer for check in finding.checks if check.said == said] == [Answer.EITHER]


def test_the_longest_maze_so_far_is_not_the_longest():
    others = [run for run in in_mazes() if run.config.task != MAZES[-1]]
    finding = CLAIMS["C12"].finding(others)
    assert finding.verdict == OPEN
    assert not [check for check in finding.checks if check.said.startswith("gain by warmup")]


def test_agents_that_never_learn_say_nothing_of_return_and_vaa():
    results = agents(MAZES[-1], ("gru", "classic"), (-0.5, 1.95, -0.5), vaas=(ONE, 0.5, 0.9))
    assert CLAIMS["C7"].finding(results).verdict == OPEN


def test_returns_that_fall_again_do_not_hide_what_an_agent_has_learned():
    """C7: the best return so far counts, since a greedy policy that runs into a wall has not lost its memory."""
    returns = (-0.5, 1.95, 3.9, -60.0, -20.0, -60.0)
    vaas = (ONE, ONE, 0.8, 0.9, 0.95, 0.99)
    runs = agents(MAZES[-1], ("gru", "classic"), returns, vaas=vaas)
    assert rank_correlation(returns, vaas) < 0
    assert learning(runs[0]).correlation > 0.8
    assert CLAIMS["C7"].finding(runs).verdict == HOLDS


def test_an_agent_that_learns_has_vaa_until_then_and_from_then_on():
    """The evaluation whose return takes memory counts with what comes after it."""
    (run, *_) = agents(MAZES[-1], ("gru", "classic"), (-0.5, 1.95, 2.0, -60.0), vaas=(0.1, 0.3, 0.6, 0.8))
    assert (learning(run).before, learning(run).after) == (pytest.approx(0.2), pytest.approx(0.7))


def test_the_rank_correlation_is_spearmans():
    ties = (1, 2, 2, 3), (1, 2, 3, 4), 0.9486833
    for x, y, expected in (((1, 2, 3), (0.1, 0.2, 0.9), 1.0), ((1, 2, 3), (0.9, 0.2, 0.1), -1.0), ties):
        assert rank_correlation(x, y) == pytest.approx(expected)
