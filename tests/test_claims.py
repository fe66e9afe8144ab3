"""Verdicts on made-up results: each can hold, not hold, and lack runs."""

import math
from dataclasses import replace
from itertools import product

import pytest

from multistable.experiments.claims import CLAIMS, FAILS, HOLDS, OPEN
from multistable.experiments.claims.base import forgets_long, less
from multistable.experiments.claims.reinforcement import correlation
from multistable.experiments.experiment import Result, Spread
from multistable.experiments.scales import SCALES
from multistable.rl import AgentConfig, Maze
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, PermutedSequentialMNIST
from multistable.training import RunConfig

MONOSTABLE = ("lstm", "gru", "mgu")
CELLS = (*MONOSTABLE, "chrono", "brc", "nbrc")
COPY = [CopyFirstInput(T) for T in (50, 300, 600)]
DENOISING = [Denoising(200, N) for N in (5, 100)]
LINES = [PermutedLineSequentialMNIST(N) for N in (72, 472)]
ONE = 1 / 32


def made(
    task, cell, version="classic", *, seeds=3, losses=(1.0, 0.9), vaas=(ONE, ONE), stars=(), settings=None, **results
):
    """Made-up runs that differ in their seed, and a little in their results."""
    metrics = [
        {"epoch": epoch, "validation_loss": loss, "vaa": vaa}
        for epoch, (loss, vaa) in enumerate(zip(losses, vaas, strict=True))
    ]
    summary = {"initial_vaa": vaas[0], "final_vaa": vaas[-1]} | results
    return [
        Result(
            RunConfig(task, cell, version=version, seed=seed, **{"num_layers": 2} | (settings or {})),
            metrics,
            {name: value * (1 + 1e-3 * seed) for name, value in summary.items()},
            {},
            {"vaa_star": [list(stars)] * 20, "vaa": 1.0, "outcome": "multistable"} if stars else None,
        )
        for seed in range(seeds)
    ]


def table(tasks, losses, quantity="test_loss", **more):
    """Runs on some tasks with a result for each (cell, version)."""
    return [
        run
        for task in tasks
        for (cell, version), value in losses.items()
        for run in made(task, cell, version, **{quantity: value}, **more)
    ]


def at_initialisation(lstm=ONE, nbrc=0.9):
    vaa = dict.fromkeys(MONOSTABLE, ONE) | {"lstm": lstm, "brc": 0.5, "nbrc": nbrc}
    return [run for task in (COPY[0], DENOISING[0]) for cell, v in vaa.items() for run in made(task, cell, vaas=(v, v))]


def copy(**changes):
    losses = dict.fromkeys((*MONOSTABLE, "brc"), 0.9) | {"chrono": 0.002, "nbrc": 0.001} | changes
    return table(COPY, {(cell, "classic"): loss for cell, loss in losses.items()})


def curves(tasks, cells, vaas):
    return [run for task in tasks for c in cells for run in made(task, c, losses=(1.0, 0.9, 0.1), vaas=vaas)]


def denoising(**changes):
    losses = dict.fromkeys(MONOSTABLE, 0.9) | {"brc": 0.05, "chrono": 0.002, "nbrc": 0.001} | changes
    return table(DENOISING, {(cell, "classic"): loss for cell, loss in losses.items()})


def denoising_vaa(lstm=ONE):
    vaas = {"brc": (0.9, 1.0), "nbrc": (0.9, 1.0), "lstm": (ONE, lstm)}
    return [run for cell, values in vaas.items() for run in made(DENOISING[1], cell, vaas=values)]


def versions(tasks, values, cells=MONOSTABLE, **more):
    """The same values for each cell, by version."""
    return table(tasks, {(cell, version): v for cell in cells for version, v in values.items()}, **more)


def impact(low, high):
    return [
        run
        for task in COPY
        for cell in MONOSTABLE
        for k, loss in ((0.25, low), (0.95, high))
        for run in made(task, cell, "warmup", settings={"target": k}, test_loss=loss)
    ]


def faster(double, warmup):
    return [
        run
        for cell in ("gru", "mgu")
        for version, loss in (("double", double), ("warmup", warmup))
        for run in made(DENOISING[1], cell, version, losses=(1.0, loss))
    ]


SIXTEEN = [
    {"num_layers": layers, "hidden_size": units, "learning_rate": rate, "batch_size": batch}
    for layers, units, rate, batch in product((1, 2), (64, 256), (1e-3, 1e-4), (32, 64))
]


def in_other_settings(vaas):
    return [
        run
        for settings, cell in product(SIXTEEN, MONOSTABLE)
        for run in made(COPY[0], cell, losses=(1.0, 0.9, 0.1), vaas=vaas, settings=settings)
    ]


def accuracies_in_other_settings(**accuracies):
    return [
        run
        for settings in SIXTEEN
        for version, value in accuracies.items()
        for run in made(LINES[1], "gru", version, test_accuracy=value, settings=settings)
    ]


def with_costs(runs, seconds, steps):
    """Runs that tell what came before their training."""
    for run in runs:
        if run.config.version == "auxiliary":
            run.record.update(together=1, pretraining={"seconds": seconds, "steps": steps})
        else:
            run.warmup.update(step_seconds=seconds, together=1, loss=[0.0] * steps)
    return runs


def pretrained(risen, gru=0.01):
    """Networks with an auxiliary loss on every task; VAA rises on the first ``risen`` of them."""
    return [
        run
        for index, task in enumerate([*COPY, *DENOISING, *LINES])
        for cell in MONOSTABLE
        for run in made(
            task,
            cell,
            "auxiliary",
            vaas=(ONE, 0.5 if index < risen else ONE),
            settings={"pretraining_epochs": 1},
            test_loss=gru if cell == "gru" else 0.9,
        )
    ]


def before_training(warmup, pretraining):
    """Warmups and pretrainings of so many seconds and steps."""
    warmed = [run for cell in MONOSTABLE for run in made(COPY[0], cell, "warmup", stars=(0.95,))]
    others = [run for cell in MONOSTABLE for run in made(COPY[0], cell, "auxiliary")]
    return with_costs(warmed, *warmup) + with_costs(others, *pretraining)


MAZES = [Maze(L) for L in (20, 100, 200)]
CLASSIC = [(cell, "classic") for cell in MONOSTABLE]
BETTER = [*((cell, "warmup") for cell in MONOSTABLE), ("brc", "classic"), ("nbrc", "classic")]


def agents(maze, kind, returns, first_optimal=None, vaas=None, seeds=3):
    """Made-up agents that were evaluated every twenty episodes."""
    vaas = [ONE] * len(returns) if vaas is None else vaas
    metrics = [
        {"episode": 20 * i, "return": value, "vaa": vaa}
        for i, (value, vaa) in enumerate(zip(returns, vaas, strict=True))
    ]
    cell, version = kind
    return [
        Result(AgentConfig(maze, cell, version=version, seed=seed), metrics, {"first_optimal": first_optimal}, {})
        for seed in range(seeds)
    ]


def three_grus(vaas):
    return [run for maze in MAZES for run in agents(maze, ("gru", "classic"), (-0.5, 1.0, 4.0, 4.0), vaas=vaas)]


def in_mazes(losses=(1.0, 2.0, 3.0), warmed=40, classic=None, **changes):
    """Returns of 4 for the better kinds; ``losses`` are what the others lack in each maze, ``changes`` of the cells."""
    made = []
    for maze, loss in zip(MAZES, losses, strict=True):
        for kind in BETTER:
            made += agents(maze, kind, (0.0, changes.get(f"{kind[0]}_{kind[1]}", 4.0)), warmed)
        for kind in CLASSIC:
            made += agents(maze, kind, (0.0, 4.0 - loss), classic)
    return made


def warmed_on(data, random, classic=0.9):
    """Three tasks with networks warmed up on the data, and on random sequences."""
    tasks = [*COPY[:2], DENOISING[0]]
    noise = versions(tasks, {"warmup": random}, settings={"warmup_sequences": "random"})
    return versions(tasks, {"classic": classic, "warmup": data}) + noise


def settled(initial, final):
    """Shares of states at fixed points; the others are on cycles."""
    kinds = [
        *product((*MONOSTABLE, "chrono"), ("classic", "warmup", "double")),
        ("brc", "classic"),
        ("nbrc", "classic"),
    ]
    shares = {"initial_fixed_points": initial, "initial_cycles": 1 - initial}
    shares |= {"final_fixed_points": final, "final_cycles": 1 - final}
    return [run for task in (COPY[0], DENOISING[0]) for kind in kinds for run in made(task, *kind, **shares)]


accuracy = {"quantity": "test_accuracy"}
RESULTS = {
    "C1": (at_initialisation(), at_initialisation(nbrc=0.1)),
    "C2": (copy(), copy(brc=0.1)),
    "C3": (curves(COPY[:1], CELLS, (ONE, 0.5, 0.9)), curves(COPY[:1], CELLS, (ONE, ONE, ONE))),
    "C4": (denoising(), denoising(gru=0.3)),
    "C5": (denoising_vaa(), denoising_vaa(lstm=0.5)),
    "C6": (curves(DENOISING, ["gru"], (ONE, 0.2, 1.0)), curves(DENOISING, ["gru"], (ONE, ONE, ONE))),
    "C7": (three_grus((ONE, 0.3, 0.8, 0.9)), three_grus((0.9, 0.8, 0.3, ONE))),
    "C8": (
        made(DENOISING[0], "gru", "warmup", vaas=(0.99, 0.99), stars=(0.95, 0.93)),
        made(DENOISING[0], "gru", "warmup", vaas=(0.99, 0.99), stars=(0.95, 0.4)),
    ),
    "C9": (versions(COPY, {"classic": 0.9, "warmup": 1e-4}), versions(COPY, {"classic": 0.9, "warmup": 0.01})),
    "C10": (
        versions([*COPY, *DENOISING], {"classic": 0.001, "warmup": 0.002}, ["chrono"]),
        versions([*COPY, *DENOISING], {"classic": 0.003, "warmup": 0.002}, ["chrono"]),
    ),
    "C11": (versions(DENOISING, {"classic": 0.9, "warmup": 0.1}), versions(DENOISING, {"classic": 0.1, "warmup": 0.2})),
    "C12": (in_mazes(), in_mazes(lstm_warmup=0.5)),
    "C13": (
        versions([PermutedSequentialMNIST()], {"classic": 0.92, "warmup": 0.91}, **accuracy),
        versions([PermutedSequentialMNIST()], {"classic": 0.92, "warmup": 0.95}, **accuracy),
    ),
    "C14": (
        versions(LINES, {"classic": 0.92, "warmup": 0.91}, **accuracy),
        versions(LINES, {"classic": 0.92, "warmup": 0.95}, **accuracy),
    ),
    "C15": (
        versions([*COPY, *DENOISING], {"classic": 0.9, "warmup": 0.1, "double": 0.12})
        + versions([*LINES, PermutedSequentialMNIST()], {"classic": 0.5, "warmup": 0.95, "double": 0.95}, **accuracy),
        versions([*COPY, *DENOISING], {"classic": 0.9, "warmup": 0.1, "double": 0.5}),
    ),
    "C16": (
        versions(LINES, {"classic": 0.3, "warmup": 0.8, "double": 0.95}, **accuracy),
        versions(LINES, {"classic": 0.3, "warmup": 0.96, "double": 0.95}, **accuracy),
    ),
    "C17": (faster(double=0.01, warmup=0.3), faster(double=0.3, warmup=0.01)),
    "C18": (
        versions([*COPY, *DENOISING], {"classic": 0.9, "double-classic": 0.95}, cells=CELLS),
        versions([*COPY, *DENOISING], {"classic": 0.9, "double-classic": 0.5}, cells=CELLS),
    ),
    "C19": (
        versions(DENOISING[1:], {"classic": 0.9, "warmup": 1e-3, "double": 1e-3}, settings={"data_seed": 0})
        + versions(LINES[1:], {"classic": 0.6, "warmup": 0.9, "double": 0.9}, settings={"data_seed": 0}, **accuracy),
        versions(DENOISING[1:], {"classic": 0.1, "warmup": 0.2, "double": 0.01}, settings={"data_seed": 0}),
    ),
    "C20": (in_other_settings((ONE, 0.5, 0.9)), in_other_settings((ONE, ONE, ONE))),
    "C21": (
        accuracies_in_other_settings(classic=0.4, warmup=0.9, double=0.95),
        accuracies_in_other_settings(classic=0.4, warmup=0.3, double=0.95),
    ),
    "C22": (impact(low=0.5, high=0.01), impact(low=0.01, high=0.5)),
    "C23": (pretrained(risen=4), pretrained(risen=3)),
    "C24": (before_training((2.0, 100), (60.0, 20_000)), before_training((70.0, 100), (60.0, 20_000))),
    "Q1": (warmed_on(data=0.02, random=0.03), warmed_on(data=0.02, random=0.05)),
    "Q2": (settled(0.99, 0.97), settled(0.99, 0.9)),
}


def test_every_claim_is_tried():
    assert list(RESULTS) == list(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_holds_where_the_results_are_as_claimed(name):
    finding = CLAIMS[name].finding(RESULTS[name][0])
    assert finding.verdict == HOLDS, [check for check in finding.checks if not check.right]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_does_not_hold_where_they_are_not(name):
    assert CLAIMS[name].finding(RESULTS[name][1]).verdict == FAILS


@pytest.mark.parametrize("name", CLAIMS)
def test_two_runs_of_each_are_not_enough(name):
    two = [run for run in RESULTS[name][0] if run.config.seed < 2]
    assert CLAIMS[name].finding(two).verdict == OPEN
    assert CLAIMS[name].finding([]).verdict == OPEN


@pytest.mark.parametrize("name", ["C1", "C2", "C4", "C9", "C11", "C12", "C15", "C23", "C24", "Q1", "Q2"])
def test_a_claim_on_all_cells_needs_all_of_them(name):
    others = [run for run in RESULTS[name][0] if run.config.cell != "mgu"]
    assert CLAIMS[name].finding(others).verdict == OPEN


@pytest.mark.parametrize("name", ["C2", "C4", "C9", "C10", "C11", "C12", "C15", "C18", "C22", "C23", "Q1", "Q2"])
def test_a_claim_on_all_settings_needs_all_of_them(name):
    hardest = max((run.config.task for run in RESULTS[name][0]), key=lambda task: task.length)
    others = [run for run in RESULTS[name][0] if run.config.task != hardest]
    assert CLAIMS[name].finding(others).verdict == OPEN


@pytest.mark.parametrize(("name", "N"), [("C4", 5), ("C5", 5), ("C6", 100), ("C17", 5)])
def test_a_claim_on_one_forgetting_period_is_not_judged_by_the_other(name, N):
    """Whether the runs would refute it or not."""
    for runs in RESULTS[name]:
        other = [replace(run, config=replace(run.config, task=Denoising(200, N))) for run in runs]
        assert CLAIMS[name].finding(other).verdict == OPEN


@pytest.mark.parametrize("scale", SCALES)
def test_the_two_forgetting_periods_are_told_apart_at_every_scale(scale):
    tasks = [config.task for config in SCALES[scale].of([RunConfig(task, "gru") for task in DENOISING])]
    assert [forgets_long(task) for task in dict.fromkeys(tasks)] == [False, True]


def test_a_gru_that_does_not_learn_denoising_refutes_the_auxiliary_loss():
    assert CLAIMS["C23"].finding(pretrained(risen=7, gru=0.5)).verdict == FAILS


ALL = [*COPY, *DENOISING]


@pytest.mark.parametrize(("loss", "verdict"), [(0.95, HOLDS), (0.5, FAILS)])
def test_more_than_half_of_the_cells_decide_what_is_generally_so(loss, verdict):
    classic = versions(ALL, {"classic": 0.9}, cells=CELLS)
    most, few = (versions(ALL, {"double-classic": loss}, cells=CELLS[:count]) for count in (4, 2))
    assert CLAIMS["C18"].finding(classic + most).verdict == verdict
    assert CLAIMS["C18"].finding(classic + few).verdict == OPEN
    one = [run for run in classic + most if run.config.task == ALL[0]]
    assert CLAIMS["C18"].finding(one).verdict == OPEN


def test_half_of_the_cases_are_not_generally():
    runs = versions(ALL, {"classic": 0.9}, cells=CELLS)
    runs += versions(ALL, {"double-classic": 0.95}, cells=CELLS[:3])
    runs += versions(ALL, {"double-classic": 0.5}, cells=CELLS[3:])
    finding = CLAIMS["C18"].finding(runs)
    assert finding.verdict == FAILS
    said = "worse in 15 of 30 cases (by 2 standard errors or more: worse in 15, better in 15)"
    assert said in finding.checks[-1].said


def test_a_loss_that_is_low_is_compared_once():
    """C15, where a double layer is as low as both other versions if its loss is below 0.01."""
    low = versions(COPY[:1], {"classic": 0.9, "warmup": 0.1, "double": 0.001})
    said = [check.said for check in CLAIMS["C15"].finding(low).checks]
    assert len(said) == len(set(said))
    assert sum("below 0.01" in one for one in said) == len({run.config.cell for run in low})


def test_a_comparison_says_how_far_apart_its_means_are():
    values = Spread.of([1.0, 2.0, 3.0]), Spread.of([4.0, 5.0, 6.0])
    check = less(("one", "other"), values)
    assert check.right
    assert check.apart == pytest.approx(3 / math.sqrt(2 / 3))
    assert check.said.endswith("less than other 5 ± 1 (3 runs)? 3.7 standard errors apart")
    assert less(("one", "other"), values, factor=0.5).apart == pytest.approx(0.5 / math.sqrt(1 / 3 + 1 / 12))
    alike = Spread.of([1.0] * 3)
    assert less(("one", "other"), (alike, alike)).apart is None
    assert less(("one", "other"), (values[0], None)).apart is None


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


def test_bistable_cells_must_beat_classic_ones_too():
    assert CLAIMS["C12"].finding(in_mazes(brc_classic=0.5)).verdict == FAILS


def test_warmup_must_gain_more_in_longer_mazes():
    assert CLAIMS["C12"].finding(in_mazes(losses=(3.0, 2.0, 1.0))).verdict == FAILS


def test_warmed_up_agents_must_be_optimal_first_in_the_longest_maze():
    assert CLAIMS["C12"].finding(in_mazes(warmed=40, classic=60)).verdict == HOLDS
    assert CLAIMS["C12"].finding(in_mazes(warmed=60, classic=40)).verdict == FAILS
    assert CLAIMS["C12"].finding(in_mazes(warmed=None, classic=40)).verdict == FAILS


def test_agents_that_never_were_optimal_cannot_be_compared():
    finding = CLAIMS["C12"].finding(in_mazes(warmed=None, classic=None))
    assert finding.verdict == OPEN
    assert "Maze(L=200), gru warmed up optimal (0 of 3 agents), before lstm classic optimal (0 of 3 agents)?" in [
        check.said for check in finding.checks if check.right is None
    ]


def test_agents_that_never_learn_say_nothing_of_return_and_vaa():
    results = agents(MAZES[-1], ("gru", "classic"), (-0.5, -0.5, -0.5))
    assert CLAIMS["C7"].finding(results).verdict == OPEN


@pytest.mark.parametrize(
    ("returns", "vaas", "expected"),
    [((1, 2, 3), (0.1, 0.2, 0.9), 1.0), ((1, 2, 3), (0.9, 0.2, 0.1), -1.0), ((1, 2, 2, 3), (1, 2, 3, 4), 0.9486833)],
)
def test_the_rank_correlation_is_spearmans(returns, vaas, expected):
    (result,) = agents(MAZES[0], ("gru", "classic"), returns, vaas=vaas, seeds=1)
    assert correlation(result) == pytest.approx(expected)


def test_the_numbers_stand_beside_the_verdict():
    finding = CLAIMS["C9"].finding(RESULTS["C9"][0])
    assert "CopyFirstInput(T=50), gru classic, test loss: 0.901 ± 0.0009 (3 runs), above 0.5?" in [
        check.said for check in finding.checks
    ]
