"""Made-up results: for each claim, results that confirm it and results that refute it."""

from itertools import product

from multistable.experiments.experiment import Result
from multistable.rl import AgentConfig, Maze
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, PermutedSequentialMNIST
from multistable.training import RunConfig

MONOSTABLE = ("lstm", "gru", "mgu")
WARMED = (*MONOSTABLE, "chrono")
CELLS = (*WARMED, "brc", "nbrc")
COPY = [CopyFirstInput(T) for T in (50, 300, 600)]
DENOISING = [Denoising(200, N) for N in (5, 100)]
LINES = [PermutedLineSequentialMNIST(N) for N in (72, 472)]
ONE = 1 / 32
ACCURACY = {"quantity": "test_accuracy"}


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


def selected(mgu=0.94, **changes):
    """Final runs in the order of the paper's tables, with the accuracies of warmed-up MGUs and of GRUs as given."""
    final = {"settings": {"data_seed": 0}}
    right = final | ACCURACY
    losses = versions(DENOISING[1:], {"classic": 0.9, "warmup": 1e-3, "double": 1e-3}, **final)
    better = versions(LINES[1:], {"classic": 0.6, "warmup": 0.9, "double": 0.9}, ["lstm", "chrono"], **right)
    alike = versions(LINES[1:], {"classic": 0.96, "warmup": 0.95, "double": 0.95} | changes, ["gru"], **right)
    return losses + better + alike + versions(LINES[1:], {"classic": 0.96, "warmup": mgu}, ["mgu"], **right)


def with_costs(runs, seconds, steps):
    """The runs with a cost before their training."""
    for run in runs:
        if run.config.version == "auxiliary":
            run.record.update(together=1, pretraining={"seconds": seconds, "steps": steps})
        else:
            run.warmup.update(step_seconds=seconds, together=1, vaa_star=[[0.0]] * steps)
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
    """Runs whose warmups and pretrainings take the given seconds and steps."""
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


def players(maze, kind, first, share):
    """Agents that are first optimal after ``first`` episodes, and then in this share of the later evaluations."""
    returns, later = [0.0] * 101, 0 if first is None else 100 - first // 20
    made = agents(maze, kind, returns, first)
    for run in made:
        for at, row in enumerate(run.metrics):
            since = None if first is None else at - first // 20
            row["optimal"] = since is not None and 0 <= since <= round(share * later)
    return made


def in_mazes(warmed=(40, 40, 40), classic=(60, 400, None), shares=(0.9, 0.5), **changes):
    """Agents that are first optimal in each maze after these episodes, and then in these shares of the evaluations.

    ``changes`` has the episodes of other kinds than all the better ones, such as ``lstm_warmup=500``.
    """
    made = []
    for maze, better, worse in zip(MAZES, warmed, classic, strict=True):
        for kind in BETTER:
            made += players(maze, kind, changes.get(f"{kind[0]}_{kind[1]}", better), shares[0])
        for kind in CLASSIC:
            made += players(maze, kind, worse, shares[1])
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
    "C12": (in_mazes(), in_mazes(lstm_warmup=500)),
    "C13": (
        versions([PermutedSequentialMNIST()], {"classic": 0.92, "warmup": 0.91}, **ACCURACY),
        versions([PermutedSequentialMNIST()], {"classic": 0.92, "warmup": 0.95}, **ACCURACY),
    ),
    "C14": (
        versions(LINES, {"classic": 0.92, "warmup": 0.91}, **ACCURACY),
        versions(LINES, {"classic": 0.92, "warmup": 0.95}, **ACCURACY),
    ),
    "C15": (
        versions([*COPY, *DENOISING], {"classic": 0.9, "warmup": 0.1, "double": 0.12})
        + versions([*LINES, PermutedSequentialMNIST()], {"classic": 0.5, "warmup": 0.95, "double": 0.95}, **ACCURACY),
        versions([*COPY, *DENOISING], {"classic": 0.9, "warmup": 0.1, "double": 0.5}),
    ),
    "C16": (
        versions(LINES, {"classic": 0.3, "warmup": 0.8, "double": 0.95}, WARMED, **ACCURACY),
        versions(LINES, {"classic": 0.3, "warmup": 0.96, "double": 0.95}, WARMED, **ACCURACY),
    ),
    "C17": (faster(double=0.01, warmup=0.3), faster(double=0.3, warmup=0.01)),
    "C18": (
        versions([*COPY, *DENOISING], {"classic": 0.9, "double-classic": 0.95}, cells=CELLS),
        versions([*COPY, *DENOISING], {"classic": 0.9, "double-classic": 0.5}, cells=CELLS),
    ),
    "C19": (selected(), selected(mgu=0.97)),
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
