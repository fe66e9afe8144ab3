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
        layers: L.
        units: H.
        rates: of Adam. A search that is not a grid takes any rate between the lowest and the highest.
        batch_sizes: B.
    """

    layers: tuple[int, ...] = (1, 2, 3)
    units: tuple[int, ...] = (256, 512)
    rates: tuple[float, ...] = (1e-3, 5e-4, 1e-4)
    batch_sizes: tuple[int, ...] = (32, 64)

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            if not values:
                raise ValueError(f"{name} must have at least one value, got none")


def by_grid(space: Space) -> Search:
    """Every setting, all at once."""

    def search(evaluate: Evaluate) -> None:
        evaluate(list(product(space.layers, space.units, space.rates, space.batch_sizes)))

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
            trial.suggest_categorical("layers", space.layers),
            trial.suggest_categorical("units", space.units),
            trial.suggest_float("rate", min(space.rates), max(space.rates), log=True),
            trial.suggest_categorical("batch_size", space.batch_sizes),
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
    finals = [
        replace(chosen, selection=0.0, vaa_every=base.vaa_every, seed=seed)
        for chosen in best(results).values()
        for seed in range(splits)
    ]
    return [*results, *run(finals)]


def trial(base: RunConfig, setting: Setting, splits: int = SPLITS) -> list[RunConfig]:
    """The runs by which a setting is judged: one for each way in which the learning set is divided."""
    one = replace(at(base, setting), data_seed=0, selection=base.selection or SELECTION, vaa_every=0)
    return [replace(one, seed=seed) for seed in range(splits)]


def at(base: RunConfig, setting: Setting) -> RunConfig:
    """A run with a setting."""
    layers, units, rate, batch = setting
    return replace(base, num_layers=layers, hidden_size=units, learning_rate=rate, batch_size=batch)
