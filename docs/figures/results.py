"""The pictures and tables of a page in ``docs/results``, from the results that are stored beside it.

    python docs/figures/results.py copy_50                 # from docs/results/copy_50.json
    python docs/figures/results.py copy_50 --runs runs     # from run folders, whose results are stored first

Tables and verdicts are printed as Markdown.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from multistable.experiments.archive import read_results, write_results
from multistable.experiments.claims import CLAIMS
from multistable.experiments.experiment import Picture, Result, finished
from multistable.experiments.figures import png
from multistable.experiments.paper import experiments
from multistable.experiments.paper.grids import CELLS, COPY, DENOISING, FOUR, grid
from multistable.experiments.paper.tmaze import KINDS
from multistable.experiments.pictures import Bars, Curves
from multistable.experiments.report import wall_time
from multistable.experiments.scales import PAPER, SMALL
from multistable.rl import AgentConfig, Maze
from multistable.tasks import Task
from multistable.training import Config, RunConfig

RESULTS = Path(__file__).parents[1] / "results"
CURVES = ("validation_loss", "vaa")
TF32 = PAPER.computed_in("tf32")


@dataclass(frozen=True)
class Page:
    """What a page is made of.

    Attributes:
        runs: those whose results are stored.
        pictures: drawn of them, and printed as tables.
        claims: judged by them.
    """

    runs: list[Config]
    pictures: tuple[Picture, ...]
    claims: tuple[str, ...]


def classic(config: RunConfig) -> str | None:
    """The cell of a classic run."""
    return config.cell if config.version == "classic" else None


def gru(config: RunConfig) -> str | None:
    """The version of a GRU."""
    return config.version if config.cell == "gru" else None


def four_versions(runs: list[Config], claims: tuple[str, ...]) -> Page:
    """All cells in the four versions on one task."""
    return Page(
        runs,
        (
            Bars(name="test_loss", caption="Test loss: mean, standard deviation and the five runs of each kind."),
            Curves(name="classic", caption="Classic networks.", quantities=CURVES, series=classic),
            Curves(name="gru", caption="The four versions of a GRU.", quantities=CURVES, series=gru),
        ),
        claims,
    )


def of_tasks(tasks: tuple[Task, ...], claims: tuple[str, ...]) -> dict[int, Page]:
    """A page for each T of copy first input, or N of denoising, trained in TF32."""
    runs = {task: TF32.of(grid([task], CELLS, FOUR)) for task in tasks}
    return {getattr(task, "N", None) or task.length: four_versions(made, claims) for task, made in runs.items()}


def mazes(*lengths: int) -> list[Config]:
    """The agents of ``tmaze-warmup`` in mazes of some lengths, without chrono."""
    kinds = [kind for kind in KINDS if kind[0] != "chrono"]
    return TF32.of([AgentConfig(Maze(L), cell, version=version) for L in lengths for cell, version in kinds])


def small(*names: str) -> Page:
    """Experiments of one kind at the scale small, in the pictures of the first."""
    made = [experiments()[name] for name in names]
    return Page([config for one in made for config in one.at(SMALL)], made[0].pictures, made[0].claims)


COPY_CLAIMS = ("C1", "C2", "C3", "C9", "C10", "C15", "C18")
PAGES = {
    "copy_50": four_versions(PAPER.of(grid(COPY[:1], CELLS, FOUR)), COPY_CLAIMS),
    **{f"copy_{T}": page for T, page in of_tasks(COPY[1:], COPY_CLAIMS).items()},
    **{f"denoising_{N}": page for N, page in of_tasks(DENOISING, ("C1", "C4", "C10", "C15", "C18")).items()},
    "tmaze": Page(
        mazes(20, 100),
        experiments()["tmaze-warmup"].pictures,
        ("C7", "C12"),
    ),
    "random_warmup_small": small("random-warmup-copy", "random-warmup-denoising"),
    "attractors_small": small("attractors-copy", "attractors-denoising"),
}


def table(header: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows))


def verdicts(claims: tuple[str, ...], results: list[Result]) -> str:
    """What these runs say of claims: the comparisons that they are enough for."""
    rows = []
    for name in claims:
        checks = [check for check in CLAIMS[name].judge(results) if check.right is not None]
        verdict = "holds" if all(check.right for check in checks) else "does not hold"
        said = "<br>".join(f"{'yes' if check.right else 'NO'}: {check.said}" for check in checks)
        rows.append([f"{name}: {CLAIMS[name].statement}", verdict if checks else "not enough runs", said])
    return table(["claim", "verdict on these runs", ""], rows)


def main() -> None:
    """Store results when asked, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("--runs", type=Path)
    arguments = parser.parse_args()
    page, stored = PAGES[arguments.page], RESULTS / f"{arguments.page}.json"
    if arguments.runs:
        write_results(finished(page.runs, arguments.runs), stored)
    results = read_results(stored)
    for picture in page.pictures:
        png(picture.draw(results), RESULTS / f"{arguments.page}_{picture.name}.png")
        print(table(*picture.table(results)) + "\n")
    print(verdicts(page.claims, results))
    print(f"\n{len(results)} of {len(page.runs)} runs, {wall_time(results):.0f} s on {results[0].record['device']}")


if __name__ == "__main__":
    main()
