"""Claims on multistability and learning, without warmup (section 5.3)."""

from collections.abc import Sequence
from dataclasses import replace

from multistable.experiments.claims.base import (
    Answer,
    Check,
    Claim,
    above,
    all_of,
    below,
    below_times_one,
    by,
    covering,
    diverges,
    forgets_long,
    less,
    settings,
    spread_of_runs,
    title,
)
from multistable.experiments.experiment import Result, Spread, cell_of
from multistable.tasks import CopyFirstInput, Denoising, Task

MONOSTABLE = ("lstm", "gru", "mgu")
BISTABLE = ("brc", "nbrc")
MANY = 0.25
"""From this VAA on a network has many attractors: one for every four states."""
MULTISTABLE = 1.5
"""With a VAA above this many times 1/n, a network has more than one attractor."""
LEARNED = 0.8
"""Below this loss a network has learned something; without memory the loss of these tasks is 1."""
FOLLOWS = f"have no loss below {LEARNED:g} before they have had more than one attractor"


def classic(results: Sequence[Result], task: type[Task]) -> list[Result]:
    """The runs on a kind of task that have neither a warmup nor double layers."""
    return [r for r in results if r.config.version == "classic" and isinstance(r.config.task, task)]


def at_initialisation(results: Sequence[Result]) -> list[Check]:
    """C1: VAA of each cell before training."""
    checks = []
    for task in (CopyFirstInput, Denoising):
        chosen = classic(results, task)
        vaa = by(chosen, cell_of, "initial_vaa")
        checks += [
            below_times_one(f"{title(task)}, {cell}, VAA before training", vaa[cell], MULTISTABLE, chosen)
            for cell in MONOSTABLE
        ]
        checks += [above(f"{title(task)}, {cell}, VAA before training", vaa[cell], MANY) for cell in BISTABLE]
    return checks


def copy(results: Sequence[Result]) -> list[Check]:
    """C2: test losses at each sequence length."""
    chosen = classic(results, CopyFirstInput)
    checks = covering(chosen, 3)
    for task in settings(chosen):
        named = title(task)
        loss = by([r for r in chosen if r.config.task == task], cell_of, "test_loss")
        checks += [below(f"{named}, {cell}, test loss", loss[cell], 0.05) for cell in ("nbrc", "chrono")]
        checks += [above(f"{named}, {cell}, test loss", loss[cell], 0.5) for cell in (*MONOSTABLE, "brc")]
        checks += [
            less((f"{named}, nbrc", cell), (loss["nbrc"], loss[cell])) for cell in (*MONOSTABLE, "brc", "chrono")
        ]
    return checks


def learning_follows_vaa(result: Result) -> bool | None:
    """Whether the network had more than one attractor before its loss fell, if it ever fell.

    VAA counts up to its first measurement at or after the fall of the loss, since not every epoch measures it.
    ``None`` for a run that diverged without learning, or whose measurements of VAA end too early to tell.
    """
    limit = MULTISTABLE / result.config.vaa_batch_size
    vaa = dict(zip(*result.curve("vaa"), strict=True))
    fallen = fall(result)
    if fallen is None:
        return None if diverges(result, "validation_loss") else True
    measured = min((epoch for epoch in vaa if epoch >= fallen), default=None)
    risen = any(value > limit for epoch, value in vaa.items() if measured is None or epoch <= measured)
    return True if risen else None if measured is None else False


def fall(result: Result) -> int | None:
    """The first epoch with a validation loss below :data:`LEARNED`; ``None`` if there is none."""
    return result.first_epoch(lambda loss: loss < LEARNED)


def some_learn(results: Sequence[Result]) -> list[Check]:
    """An open check if no loss ever falls: that none falls too early then proves nothing."""
    if not results or any(fall(result) is not None for result in results):
        return []
    return [Check(f"0 of {len(results)} runs have a loss below {LEARNED:g}", Answer.OPEN)]


def copy_curves(results: Sequence[Result]) -> list[Check]:
    """C3: learning follows VAA, for the shortest sequences."""
    chosen = classic(results, CopyFirstInput)
    shortest = settings(chosen)[:1]
    chosen = [r for r in chosen if r.config.task in shortest]
    follow = [
        all_of(f"{cell}, {title(task)}", [learning_follows_vaa(r) for r in chosen if r.config.cell == cell], FOLLOWS)
        for task in shortest
        for cell in (*MONOSTABLE, *BISTABLE, "chrono")
    ]
    return [*some_learn(chosen), *follow]


def denoising(results: Sequence[Result]) -> list[Check]:
    """C4: test losses with each forgetting period."""
    chosen = classic(results, Denoising)
    checks = covering(chosen, 2)
    for task in settings(chosen):
        named = title(task)
        loss = by([r for r in chosen if r.config.task == task], cell_of, "test_loss")
        checks += [
            less((f"{named}, nbrc", cell), (loss["nbrc"], loss[cell])) for cell in (*MONOSTABLE, "brc", "chrono")
        ]
        checks += [less((f"{named}, chrono", cell), (loss["chrono"], loss[cell])) for cell in (*MONOSTABLE, "brc")]
        checks.append(below(f"{named}, brc, test loss", loss["brc"], 0.1))
        if forgets_long(task):
            checks += [above(f"{named}, {cell}, test loss", loss[cell], 0.5) for cell in MONOSTABLE]
    return checks


def denoising_vaa(results: Sequence[Result]) -> list[Check]:
    """C5, for the longer forgetting period: "close to zero throughout the learning" means in every epoch."""
    chosen = [r for r in classic(results, Denoising) if forgets_long(r.config.task)]
    first = by(chosen, cell_of, "initial_vaa")
    checks = [above(f"{cell}, VAA before training", first[cell], MANY) for cell in BISTABLE]
    highest = highest_mean([r for r in chosen if r.config.cell == "lstm"], "vaa")
    return [*checks, below_times_one("lstm, VAA in the epoch in which its mean is highest", highest, 3, chosen)]


def highest_mean(results: Sequence[Result], quantity: str) -> Spread | None:
    """The spread over runs in the epoch with the highest mean; a run that lacks the quantity in an epoch diverged."""
    curves = [dict(zip(*result.curve(quantity), strict=True)) for result in results]
    epochs = {epoch for curve in curves for epoch in curve}
    spreads = [spread for epoch in epochs if (spread := spread_of_runs(curve.get(epoch) for curve in curves))]
    if not spreads:
        return None
    return replace(max(spreads, key=lambda spread: spread.mean), diverged=max(spread.diverged for spread in spreads))


def five_grus(results: Sequence[Result]) -> list[Check]:
    """C6: learning follows VAA, for the shorter forgetting period."""
    chosen = [r for r in classic(results, Denoising) if r.config.cell == "gru" and not forgets_long(r.config.task)]
    follow = [learning_follows_vaa(r) for r in chosen]
    return [*some_learn(chosen), all_of("gru", follow, FOLLOWS)]


CLAIMS = (
    Claim(
        "C1",
        "At initialisation LSTM, GRU and MGU reach one attractor, BRC and NBRC many",
        ("sec:vaa_experiments",),
        at_initialisation,
    ),
    Claim(
        "C2",
        "Copy: NBRC is best whatever T, chrono competes, LSTM, GRU and MGU stay high, BRC does not learn",
        ("table:vaa_copybench",),
        copy,
        why=(
            "With T = 50 a classic LSTM, GRU or MGU either learns completely or not at all, so that the mean "
            "of five is too uncertain to be told from 0.5 ([copy, T = 50](results/copy_50.md)); and NBRC and "
            "chrono, which both learn, have losses that differ little."
        ),
    ),
    Claim(
        "C3",
        "Copy, T = 50: the loss falls only once VAA rises",
        ("fig:copyfirstinput_lstm_chrono", "fig:copyfirstinput_others"),
        copy_curves,
    ),
    Claim(
        "C4",
        "Denoising: NBRC best, then chrono; BRC low; LSTM, GRU and MGU fail at N = 100",
        ("table:vaa_denoising",),
        denoising,
        why=(
            "Open. Chrono also learns sooner than NBRC. With N = 5 classic GRUs learn by themselves, since "
            "training makes attractors ([denoising](results/denoising.md#what-these-runs-say))."
        ),
    ),
    Claim(
        "C5",
        "Denoising, N = 100: VAA of BRC and NBRC is high from the start, that of LSTM stays near 0",
        ("fig:denoising_lstm_chrono", "fig:denoising_others"),
        denoising_vaa,
        why=(
            "Some of the LSTMs gain attractors on the way and lose them again, the others do not "
            "([denoising](results/denoising.md#what-these-runs-say)): the mean of five says little."
        ),
    ),
    Claim(
        "C6",
        "Denoising, N = 5: the loss of each GRU falls only after its VAA leaves 1/n",
        ("fig:denoising_3gru",),
        five_grus,
    ),
)
