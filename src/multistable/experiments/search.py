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
"""Of the learning set, as in the paper."""

SELECTION = 0.2
"""The share of the learning set to select by; the paper does not say."""

Evaluate = Callable[[Sequence[Setting]], list[float | None]]
"""From settings to the mean selection loss of each; ``None`` for one of which a run has diverged."""

Search = Callable[[Evaluate], None]
"""Has settings evaluated, as many at once as it likes."""


@dataclass(frozen=True)
class Space:
    """What can be chosen; the default is the paper's.

    Attributes:
        num_layers: L.
        hidden_size: H.
        learning_rate: of Adam. A search that is not a grid takes any rate between the lowest and the highest.
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
    """Every setting, all at once."""

    def search(evaluate: Evaluate) -> None:
        evaluate(space.settings())

    return search


def by_optuna(space: Space, trials: int, seed: int = 0) -> Search:
    """As many settings as ``trials``, one after the other, by Optuna's tree-structured Parzen estimator.

    What it proposes follows from the seed and the losses so far: a search that is begun again takes the same way, and
    the runs that are there are not repeated.
    """
    try:
        # Late: an extra, and slow to import.
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

    Every trial is made of ordinary runs: what is finished is not run again, and what was interrupted goes on.

    Args:
        base: the task, the cell, the version and everything that is not chosen.
        search: which settings are tried, see :func:`by_grid` and :func:`by_optuna`.
        run: trains what is not finished of some runs and returns the results of all.
        splits: how many ways the learning set is divided; as many final runs are made.

    Returns:
        The results of the trials, and last those of the final runs; none of these when every setting diverged.
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
    """The runs that :func:`select` would ask for, by the results that are there.

    Args:
        base: as in :func:`select`.
        search: as in :func:`select`.
        there: the results of those of some runs that are finished.
        splits: as in :func:`select`.

    Returns:
        The trials, in a list for each time that the search asks; and the final runs, or ``None`` where these are not
        known because trials are left.
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
    """The runs by which a setting is judged: one for each way in which the learning set is divided."""
    one = replace(at(base, setting), data_seed=0, selection=base.selection or SELECTION, vaa_every=0)
    return [replace(one, seed=seed) for seed in range(splits)]


def at(base: RunConfig, setting: Setting) -> RunConfig:
    """A run with a setting."""
    layers, units, rate, batch = setting
    return replace(base, num_layers=layers, hidden_size=units, learning_rate=rate, batch_size=batch)
