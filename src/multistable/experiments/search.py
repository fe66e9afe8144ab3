"""Search for the hyperparameters of a task of one's own, as appendix F does: over a grid, or by Optuna."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from multistable.experiments.experiment import Result
from multistable.experiments.selection import Setting, best, mean_loss
from multistable.extras import missing
from multistable.training import RunConfig

SPLITS = 5
"""How many splits of the learning set a setting is judged by, as in the paper."""

SELECTION = 0.2
"""The share of the learning set to select by; the paper does not say how large it is."""

Evaluate = Callable[[Sequence[Setting]], list[float | None]]
"""From settings to the mean selection loss of each; ``None`` for a setting with a run that diverged."""

Search = Callable[[Evaluate], None]
"""Chooses settings and has them evaluated, one or several at once."""


@dataclass(frozen=True)
class Space:
    """The values to choose among; the defaults are the paper's.

    Attributes:
        num_layers: L.
        hidden_size: H.
        learning_rate: of Adam. Optuna takes any rate between the lowest and the highest.
        batch_size: B.
    """

    num_layers: tuple[int, ...] = (1, 2, 3)
    hidden_size: tuple[int, ...] = (256, 512)
    learning_rate: tuple[float, ...] = (1e-3, 5e-4, 1e-4)
    batch_size: tuple[int, ...] = (32, 64)

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            if not values:
                raise ValueError(f"{name} must have at least one value, got none")

    def settings(self) -> list[Setting]:
        """Every setting."""
        return list(product(self.num_layers, self.hidden_size, self.learning_rate, self.batch_size))


def by_grid(space: Space) -> Search:
    """A search that evaluates every setting, all at once."""

    def search(evaluate: Evaluate) -> None:
        evaluate(space.settings())

    return search


def by_optuna(space: Space, trials: int, seed: int = 0) -> Search:
    """A search of ``trials`` settings, one after the other, by Optuna's tree-structured Parzen estimator.

    The seed and the losses so far decide each proposal: a search that is begun again proposes the same settings, and
    finished runs are not repeated.
    """
    try:
        # Imported late, since Optuna is an extra and slow to import.
        import optuna
    except ModuleNotFoundError as error:
        raise missing("--search optuna", "optuna") from error

    def propose(trial: Any) -> Setting:
        return (
            trial.suggest_categorical("layers", space.num_layers),
            trial.suggest_categorical("units", space.hidden_size),
            trial.suggest_float("rate", min(space.learning_rate), max(space.learning_rate), log=True),
            trial.suggest_categorical("batch_size", space.batch_size),
        )

    def search(evaluate: Evaluate) -> None:
        said = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        finally:
            optuna.logging.set_verbosity(said)
        for _ in range(trials):
            trial = study.ask()
            (loss,) = evaluate([propose(trial)])
            failed = optuna.trial.TrialState.FAIL if loss is None else None
            study.tell(trial, loss, state=failed)

    return search


def select(
    base: RunConfig, search: Search, run: Callable[[Sequence[RunConfig]], list[Result]], splits: int = SPLITS
) -> list[Result]:
    """Choose a setting by its mean selection loss over splits of one learning set, then run it on the usual division.

    Every trial is made of ordinary runs: finished runs are not repeated, and interrupted runs go on.

    Args:
        base: the task, the cell, the version and everything that is not chosen.
        search: which settings are tried, see :func:`by_grid` and :func:`by_optuna`.
        run: trains the unfinished ones of some runs, and returns the results of all.
        splits: in how many ways the learning set is divided; as many final runs are made.

    Returns:
        The results of the trials, then those of the final runs. There are no final runs if every setting diverged.
    """
    tried: dict[str, Result] = {}

    def evaluate(settings: Sequence[Setting]) -> list[float | None]:
        trials = [trial(base, setting, splits) for setting in settings]
        tried.update((result.config.name, result) for result in run([config for runs in trials for config in runs]))
        return [mean_loss([tried[config.name] for config in runs]) for runs in trials]

    search(evaluate)
    results = list(tried.values())
    return [*results, *run(runs_of_the_winner(base, results, splits))]


def planned(
    base: RunConfig, search: Search, there: Callable[[Sequence[RunConfig]], list[Result]], splits: int = SPLITS
) -> tuple[list[list[RunConfig]], list[RunConfig] | None]:
    """The runs that :func:`select` would ask for, given the results so far.

    Args:
        base: as in :func:`select`.
        search: as in :func:`select`.
        there: returns the results of the finished ones of some runs.
        splits: as in :func:`select`.

    Returns:
        The trials, in a list for each evaluation that the search asks for; and the final runs, or ``None`` while
        unfinished trials leave them unknown.
    """
    asked: list[list[RunConfig]] = []

    def evaluate(settings: Sequence[Setting]) -> list[float | None]:
        trials = [trial(base, setting, splits) for setting in settings]
        asked.append([config for runs in trials for config in runs])
        found = [there(runs) for runs in trials]
        return [mean_loss(results) if len(results) == splits else None for results in found]

    search(evaluate)
    trials = list({config.name: config for runs in asked for config in runs}.values())
    results = there(trials)
    return asked, runs_of_the_winner(base, results, splits) if len(results) == len(trials) else None


def runs_of_the_winner(base: RunConfig, results: Sequence[Result], splits: int = SPLITS) -> list[RunConfig]:
    """The runs with the setting that won, on the usual division of the learning set."""
    return [
        replace(chosen, selection=0.0, vaa_every=base.vaa_every, seed=seed)
        for chosen in best(results).values()
        for seed in range(splits)
    ]


def trial(base: RunConfig, setting: Setting, splits: int = SPLITS) -> list[RunConfig]:
    """The runs by which a setting is judged: one for each split of the learning set."""
    one = replace(at(base, setting), data_seed=0, selection=base.selection or SELECTION, vaa_every=0)
    return [replace(one, seed=seed) for seed in range(splits)]


def at(base: RunConfig, setting: Setting) -> RunConfig:
    """The run ``base`` with another setting."""
    layers, units, rate, batch = setting
    return replace(base, num_layers=layers, hidden_size=units, learning_rate=rate, batch_size=batch)
