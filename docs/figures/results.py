"""The pictures and tables of a page in ``docs/results``, from the results that are stored beside it.

    python docs/figures/results.py copy_50                 # from docs/results/copy_50.json
    python docs/figures/results.py copy_50 --runs runs     # from run folders, whose results are stored first

Results that are stored already are kept where the folder has no finished run of that name. Tables and verdicts are
printed as Markdown.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from warmed_networks import EARLY, MANY, Kept, LastLayer, learned, warmed_by

from multistable.dynamics.warmup.history import RECENT_STEPS
from multistable.experiments.archive import read_results, write_results
from multistable.experiments.catalogue import experiments
from multistable.experiments.claims import CLAIMS, Answer
from multistable.experiments.claims.auxiliary import LOW
from multistable.experiments.experiment import Picture, Result, Spread, finished, grouped, spread_of
from multistable.experiments.figures import png
from multistable.experiments.paper.grids import CELLS, COPY, DENOISING, FOUR_VERSIONS, THREE_VERSIONS, grid
from multistable.experiments.paper.tmaze import KINDS
from multistable.experiments.pictures import Bars, Curves, Rows, by_version
from multistable.experiments.report import wall_time
from multistable.experiments.scales import PAPER, SMALL
from multistable.experiments.score_pictures import score
from multistable.rl import AgentConfig, Maze
from multistable.tasks import CopyFirstInput, Task
from multistable.training import Config, RunConfig

RESULTS = Path(__file__).parents[1] / "results"
CURVES = ("validation_loss", "vaa")
TF32 = PAPER.computed_in("tf32")
LEARNED = {"learn (score below 0.6)": 0.6, "in between": 0.95, "guess (score above 0.95)": np.inf}
"""How far classic networks come, by their mean score."""


@dataclass(frozen=True)
class Page:
    """What a page is made of.

    Attributes:
        runs: the runs whose results are stored.
        pictures: what is drawn of them, and printed as tables.
        claims: the claims that they bear on.
        tables: further tables to print.
        shared: other pages whose files have some of these runs.
        courses: whether VAA* at each step of the warmups is stored; nothing else needs as much room.
    """

    runs: list[Config]
    pictures: tuple[Picture, ...]
    claims: tuple[str, ...] = ()
    tables: tuple[Callable[[Sequence[Result]], Rows], ...] = ()
    shared: tuple[str, ...] = ()
    courses: bool = True


def classic(config: RunConfig) -> str | None:
    """The cell of a classic run."""
    return config.cell if config.version == "classic" else None


def gru(config: RunConfig) -> str | None:
    """The version of a GRU."""
    return config.version if config.cell == "gru" else None


def kind(config: RunConfig) -> tuple[str, str]:
    """The cell and the version, with the warmup where it is not the paper's."""
    usual = not config.kind.warmed or warmed_by(config) == "100 steps"
    return config.cell, config.version if usual else f"{config.version}, {warmed_by(config)}"


def first_low(run: Result) -> int | str:
    """The first epoch with a low validation loss."""
    return min(
        (epoch for epoch, loss in zip(*run.curve("validation_loss"), strict=True) if loss < LOW), default="never"
    )


def by_seed(results: Sequence[Result]) -> Rows:
    """VAA after the first epoch, the first epoch with a low loss, and the test loss of each seed."""
    header = ["cell", "version", "VAA after epoch 1", f"first epoch with a validation loss below {LOW}", "test loss"]
    rows = []
    for (cell, version), runs in grouped(results, kind).items():
        low = [first_low(run) for run in runs]
        vaa = [dict(zip(*run.curve("vaa"), strict=True))[1] for run in runs]
        losses = [run.results["test_loss"] for run in runs]
        cells = [[f"{value:.2f}" for value in vaa], [str(epoch) for epoch in low], [f"{loss:.2g}" for loss in losses]]
        rows.append([cell.upper(), version, *(", ".join(values) for values in cells)])
    return header, rows


def warmups(results: Sequence[Result]) -> Rows:
    """How the warmup of each seed ended."""
    rows = []
    for (cell, version), runs in grouped(results, kind).items():
        courses = [run.warmup for run in runs if run.warmup and "vaa_star" in run.warmup]
        if courses:
            layers = np.array([np.mean(course["vaa_star"][-RECENT_STEPS:], axis=0) for course in courses]).T
            ends = [*layers, [course["vaa"] for course in courses]]
            rows.append([cell.upper(), version, *(", ".join(f"{value:.2f}" for value in end) for end in ends)])
            rows[-1].append(", ".join(course["outcome"] for course in courses))
    stars = [f"VAA* of layer {layer + 1} in the last ten steps" for layer in range(len(rows[0]) - 4)] if rows else []
    return ["cell", "version", *stars, "VAA after the warmup", "outcome"], rows


def by_target(results: Sequence[Result]) -> Rows:
    """For each length, cell and target: the loss, VAA before training, how the warmups ended, and who learned."""
    header = ["T", "cell", "k", "VAA before training", "after epoch 1", "outcome of the warmup"]
    header += [f"first epoch with a validation loss below {LOW}", "test loss", "learned"]
    rows = []
    groups = grouped(results, lambda config: (config.task.length, CELLS.index(config.cell), config.target))
    for (length, cell, target), runs in sorted(groups.items()):
        vaa = [dict(zip(*run.curve("vaa"), strict=True)) for run in runs]
        looks = [", ".join(f"{values[epoch]:.2f}" for values in vaa) for epoch in (0, 1)]
        outcomes = ", ".join(run.warmup["outcome"] for run in runs)
        losses = ", ".join(f"{run.results['test_loss']:.2g}" for run in runs)
        low = ", ".join(str(first_low(run)) for run in runs)
        rows.append([str(length), CELLS[cell].upper(), str(target), *looks, outcomes, low, losses, learned(runs)])
    return header, rows


def four_versions(runs: list[Config], claims: tuple[str, ...], *further: Picture) -> Page:
    """All cells in the four versions on one task."""
    pictures = (
        Bars(name="test_loss", caption="Test loss: mean, standard deviation and each run."),
        Curves(name="classic", caption="Classic networks.", quantities=CURVES, series=classic),
        Curves(name="gru", caption="The four versions of a GRU.", quantities=CURVES, series=gru),
    )
    return Page(runs, (*pictures, *further), claims, (by_seed, warmups))


def of_tasks(tasks: tuple[Task, ...], claims: tuple[str, ...], *further: Picture) -> dict[int, Page]:
    """A page for each T of copy first input, or N of denoising, trained in TF32."""
    runs = {task: TF32.of(grid([task], CELLS, FOUR_VERSIONS)) for task in tasks}
    made = {task: four_versions(configs, claims, *further) for task, configs in runs.items()}
    return {getattr(task, "N", None) or task.length: page for task, page in made.items()}


def mazes(*lengths: int) -> list[Config]:
    """The agents of ``tmaze-warmup`` in mazes of some lengths, without chrono."""
    kinds = [kind for kind in KINDS if kind[0] != "chrono"]
    return TF32.of([AgentConfig(Maze(L), cell, version=version) for L in lengths for cell, version in kinds])


def small(*names: str, without: tuple[str, ...] = ()) -> Page:
    """Experiments of one kind at the scale small, in the pictures of the first."""
    made = [experiments()[name] for name in names]
    pictures = tuple(picture for picture in made[0].pictures if picture.name not in without)
    return Page([config for one in made for config in one.at(SMALL)], pictures, made[0].claims)


def each_run(results: Sequence[Result]) -> Rows:
    """VAA and losses of every run; its epochs of training are counted from the end of a pretraining."""
    header = ["cell", "version", "seed", "VAA first", "before training", f"after epoch {EARLY}", "last"]
    header += ["reconstruction loss before training", "last", f"epochs to {LOW}", "test loss"]
    rows = []
    for run in results:
        config = run.config
        before = config.pretraining
        vaa, validated, reconstructed = (
            dict(zip(*run.curve(name), strict=True)) for name in ("vaa", "validation_loss", "reconstruction_loss")
        )
        looks = [vaa[epoch] for epoch in (0, before, before + EARLY, config.duration)]
        ends = [reconstructed.get(epoch) for epoch in (before, config.duration)]
        below = [epoch - before for epoch, loss in validated.items() if loss < LOW]
        rows.append([config.cell.upper(), config.version, str(config.seed), *(f"{value:.3f}" for value in looks)])
        rows[-1] += ["" if value is None else f"{value:.3f}" for value in ends]
        rows[-1] += [str(min(below, default="never")), f"{run.results['test_loss']:.3g}"]
    return header, rows


def auxiliary(name: str) -> Page:
    """Networks with an auxiliary loss beside classic and warmed-up ones, trained in TF32."""
    made = experiments()[f"auxiliary-{name}"]
    return Page(made.at(TF32), made.pictures, made.claims, (each_run,))


def double_lstms() -> Page:
    """Double LSTMs on denoising, N = 100, by the length and the kind of their partial warmup."""
    kinds = {}, {"warmup_steps": 300}, {"warmup_algorithm": "reliable", "epochs": 30}
    runs = [run for one in kinds for run in TF32.of(grid(DENOISING[1:], ["lstm"], ["double"], **one))]
    picture = LastLayer(name="warmups", caption="VAA* of the last layer in the warmup, and the loss in training.")
    return Page(runs, (picture,), tables=(by_seed, warmups), shared=("denoising_100",))


def reading(config: RunConfig) -> tuple[Any, ...]:
    """What a reading of the paper leaves open: the batch of the warmup, bias vectors, and the precision of training."""
    biases = 2 if config.cell_options.get("recurrent_bias") else 1
    return config.version, config.task.length, config.warmup_batch_size, biases, config.precision


def by_reading(results: Sequence[Result]) -> Rows:
    """For each reading, how many networks have attractors before training and after one epoch, and how many learn."""
    header = ["layers", "T", "n", "bias vectors", "precision", "VAA of 0.5 or more before training"]
    rows = []
    for (version, *told), runs in grouped(results, reading).items():
        looks = [dict(zip(*run.curve("vaa"), strict=True)) for run in runs]
        kept = [f"{sum(vaa[epoch] >= MANY for vaa in looks)} of {len(runs)}" for epoch in (0, 1)]
        layers = "double" if version == "double" else "single"
        rows.append([layers, *map(str, told), *kept, learned(runs)])
    return [*header, "after epoch 1", "learned"], rows


def readings_of_lstms() -> Page:
    """Warmed-up LSTMs in several readings of the paper, trained for ten epochs."""

    def runs(T: int, n: int, biases: int, precision: str, seeds: int = 20, version: str = "warmup") -> list[Config]:
        settings = {"warmup_batch_size": n, "precision": precision, "epochs": 10, "version": version}
        options = {"recurrent_bias": True} if biases == 2 else {}
        task = CopyFirstInput(T)
        return [RunConfig(task, "lstm", seed=seed, cell_options=options, **settings) for seed in range(seeds)]

    single = [runs(300, n, biases, precision) for n in (32, 200) for biases in (1, 2) for precision in ("ieee", "tf32")]
    double = [runs(300, 32, 2, precision, 10, "double") for precision in ("ieee", "tf32")]
    longer = [runs(600, 32, 2, "tf32", 10), runs(600, 200, 1, "tf32", 10)]
    return Page([run for some in (*single, *double, *longer) for run in some], (), tables=(by_reading,))


def by_classic(results: Sequence[Result]) -> Rows:
    """How often another version does better or worse than the classic one, by how far that comes.

    Means differ where they are more than two standard errors apart, and by a hundredth of the loss of guessing.
    """
    groups: dict[str, list[dict[str, Spread]]] = {}
    for runs in grouped(results, lambda config: (config.task, config.cell)).values():
        scores = {version: spread_of(map(score, some)) for version, some in grouped(runs, by_version).items()}
        if set(scores) == set(THREE_VERSIONS) and None not in scores.values():
            name = next(name for name, most in LEARNED.items() if scores["classic"].mean <= most)
            groups.setdefault(name, []).append(scores)
    rows = []
    for name in filter(groups.get, LEARNED):
        means = [f"{np.mean([scores[version].mean for scores in groups[name]]):.2f}" for version in THREE_VERSIONS]
        told = [
            _compared([(each["classic"], each[version]) for each in groups[name]]) for version in THREE_VERSIONS[1:]
        ]
        rows.append([name, str(len(groups[name])), " / ".join(means), *told])
    header = ["classic networks", "tasks and cells", "mean score: classic / warmed up / double"]
    return [*header, "warmed up: better / not told apart / worse", "double: better / not told apart / worse"], rows


def returns_by_classic(results: Sequence[Result]) -> Rows:
    """In how many tasks and cells agents of another version have better or worse returns than the classic ones.

    Means differ where they are more than two standard errors apart.
    """
    told: dict[str, Callable[[Result], float]] = {
        "at the end": lambda run: run.results["final_return"],
        "mean over training": lambda run: fmean(run.curve("return")[1]),
    }
    groups = grouped(results, lambda config: (config.task, config.cell)).values()
    rows = []
    for name, of in told.items():
        spreads = [{v: Spread.of(map(of, some)) for v, some in grouped(runs, by_version).items()} for runs in groups]
        whole = [each for each in spreads if set(each) == set(THREE_VERSIONS)]
        counts = [_compared([(each[v], each["classic"]) for each in whole]) for v in THREE_VERSIONS[1:]]
        rows.append([name, str(len(whole)), *counts])
    header = ["return", "tasks and cells", "warmed up: better / not told apart / worse"]
    return [*header, "double: better / not told apart / worse"], rows


def _compared(pairs: Sequence[tuple[Spread, Spread]]) -> str:
    """How many of the second are lower than the first, cannot be told apart from it, and are higher."""
    apart = [(first.mean - second.mean) / max(2 * np.hypot(first.error, second.error), 0.01) for first, second in pairs]
    better, worse = sum(gain > 1 for gain in apart), sum(gain < -1 for gain in apart)
    return f"{better} / {len(apart) - better - worse} / {worse}"


def impact_of_k() -> Page:
    """The target k of the warmup, trained in TF32; k = 0.95 is that of copy first input in general."""
    made = experiments()["impact-k"]
    return Page(made.at(TF32), made.pictures, ("C22",), (by_target,), ("copy_300", "copy_600"))


KEPT = Kept(name="kept", caption="Whether warmed-up networks that keep their attractors are those that learn.")
BY_CELL = experiments()["double-curves"].pictures
AUXILIARY = [name for name in experiments() if name.startswith("auxiliary-")]
COPY_CLAIMS = ("C1", "C2", "C9", "C10", "C15")
DENOISING_CLAIMS = ("C1", "C4", "C5", "C6", "C10", "C11", "C15", "C17")
PAGES = {
    "copy_50": four_versions(PAPER.of(grid(COPY[:1], CELLS, FOUR_VERSIONS)), ("C3", *COPY_CLAIMS), KEPT),
    **{f"copy_{T}": page for T, page in of_tasks(COPY[1:], COPY_CLAIMS, KEPT).items()},
    **{f"denoising_{N}": page for N, page in of_tasks(DENOISING, DENOISING_CLAIMS, *BY_CELL).items()},
    "auxiliary_copy_50": auxiliary("copy-50"),
    "auxiliary_denoising_5": auxiliary("denoising-5"),
    "denoising_double_lstm": double_lstms(),
    "impact_k": impact_of_k(),
    "lstm_readings": readings_of_lstms(),
    "warmup_course": Page(
        experiments()["warmup-course"].at(TF32),
        experiments()["warmup-course"].pictures,
        ("C8",),
        shared=("denoising_5",),
    ),
    "tmaze": Page(mazes(20, 100), experiments()["tmaze-warmup"].pictures, ("C12",)),
    "tmaze_32": Page(experiments()["tmaze-32"].at(PAPER), experiments()["tmaze-32"].pictures, ("C7", "C12")),
    "tmaze_200": Page(experiments()["tmaze-gru"].at(TF32), experiments()["tmaze-gru"].pictures, ("C7",)),
    "sequential_mnist_small": small("warmup-sequential-mnist"),
    "line_mnist_small": small("double-line-mnist"),
    "other_settings_vaa_small": small("other-settings-vaa"),
    "other_settings_warmup_small": small("other-settings-warmup"),
    "impact_k_small": small("impact-k"),
    "random_warmup_small": small("random-warmup-copy", "random-warmup-denoising"),
    "attractors_small": small("attractors-copy", "attractors-denoising"),
    "prepare_small": small("prepare-copy", "prepare-relu", "prepare-denoising"),
    "mixed_small": small("mixed-copy", "mixed-denoising"),
    "when": replace(small("when"), courses=False, tables=(by_classic,)),
    "agents_elsewhere": replace(small("agents"), courses=False, tables=(returns_by_classic,)),
    # The others have one curve or bar for all tasks.
    "auxiliary_small": small(*AUXILIARY, without=("pretraining", "training", "cost")),
}


def table(header: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows))


def verdicts(claims: tuple[str, ...], results: list[Result]) -> str:
    """What these runs say of claims, and how many of the comparisons that they are enough for came out as claimed."""
    rows = []
    for name in claims:
        finding = CLAIMS[name].finding(results)
        said = []
        for count in finding.counts:
            said += [str(count), *(f"{check.answer}: {check.said}" for check in count.of(Answer.NO, Answer.EITHER))]
        rows.append([f"{name}: {CLAIMS[name].statement}", finding.verdict, "<br>".join(said or ["none"])])
    return table(["claim", "verdict by these runs alone", "comparisons"], rows)


def without_course(result: Result) -> Result:
    """A result without VAA* at each step of its warmup."""
    kept = {name: value for name, value in (result.warmup or {}).items() if name != "vaa_star"}
    return replace(result, warmup=kept or None)


def store(runs: list[Config], out: Path, stored: Path, *, courses: bool = True) -> None:
    """Add the results of the finished runs to those that are stored, in the order of the runs.

    The courses of their warmups are stored if ``courses`` says so.

    Writes nothing and ends the script where no run is finished, or where a stored run is not among ``runs``.
    """
    known, found = read_results(stored) if stored.exists() else [], finished(runs, out)
    if not found:
        raise SystemExit(f"none of the runs of this page is finished in {out}; nothing was written")
    others = {result.config.name for result in known} - {config.name for config in runs}
    if others:
        some = f"{len(others)} runs that are not of this page, such as {min(others)}"
        raise SystemExit(f"{stored} has results of {some}; nothing was written")
    results = {result.config.name: result for result in [*known, *found]}
    ordered = [results[config.name] for config in runs if config.name in results]
    write_results(ordered if courses else map(without_course, ordered), stored)


def of_page(page: Page, stored: Path) -> list[Result]:
    """The stored results of a page's runs, from its own file and those it shares, in the order of the runs."""
    files = [*(RESULTS / f"{name}.json" for name in page.shared), stored]
    known = {result.config.name: result for file in files if file.exists() for result in read_results(file)}
    return [known[config.name] for config in page.runs if config.name in known]


def main() -> None:
    """Store results when asked, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("--runs", type=Path)
    arguments = parser.parse_args()
    page, stored = PAGES[arguments.page], RESULTS / f"{arguments.page}.json"
    if arguments.runs:
        store(page.runs, arguments.runs, stored, courses=page.courses)
    results = of_page(page, stored)
    if not results:
        raise SystemExit(f"there are no results in {stored}: --runs takes them from a folder of finished runs")
    for picture in page.pictures:
        png(picture.draw(results), RESULTS / f"{arguments.page}_{picture.name}.png")
        print(table(*picture.table(results)) + "\n")
    for further in page.tables:
        print(table(*further(results)) + "\n")
    if page.claims:
        print(verdicts(page.claims, results))
    devices = ", ".join(sorted({result.record["device"] for result in results}))
    print(f"\n{len(results)} of {len(page.runs)} runs, {wall_time(results):.0f} s on {devices}")


if __name__ == "__main__":
    main()
