"""The pictures and the page of the copy first input benchmark at T = 50, from ``docs/results/copy_50.json``.

    python docs/figures/copy_50.py                      # from the results that are there
    python docs/figures/copy_50.py --runs runs          # from run folders, whose results are stored first

The runs are those of ``double-control-copy`` at the paper's scale with T = 50.
"""

import argparse
from pathlib import Path

from multistable.experiments.archive import read_results, write_results
from multistable.experiments.claims import CLAIMS
from multistable.experiments.experiment import Result, finished
from multistable.experiments.figures import png
from multistable.experiments.paper.grids import CELLS, COPY, FOUR, grid
from multistable.experiments.pictures import Bars, Curves
from multistable.experiments.scales import PAPER
from multistable.training import RunConfig

RESULTS = Path(__file__).parents[1] / "results"
STORED = RESULTS / "copy_50.json"
CURVES = ("validation_loss", "vaa")


def classic(config: RunConfig) -> str | None:
    """The cell of a classic run."""
    return config.cell if config.version == "classic" else None


def gru(config: RunConfig) -> str | None:
    """The version of a GRU."""
    return config.version if config.cell == "gru" else None


PICTURES = (
    Bars(name="copy_50_test_loss", caption="Test loss: mean, standard deviation and the five runs of each kind."),
    Curves(
        name="copy_50_classic",
        caption="Classic networks, epoch by epoch: mean and standard deviation over five runs.",
        quantities=CURVES,
        series=classic,
    ),
    Curves(
        name="copy_50_gru",
        caption="The four versions of a GRU, epoch by epoch: mean and standard deviation over five runs.",
        quantities=CURVES,
        series=gru,
    ),
)


def page(results: list[Result]) -> str:
    """The tables and verdicts, in Markdown."""
    header, rows = PICTURES[0].table(results)
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
    lines += ["", "| claim | verdict on these runs | |", "|---|---|---|"]
    for name in ("C1", "C2", "C3", "C9", "C10", "C15", "C18"):
        checks = [check for check in CLAIMS[name].judge(results) if check.right is not None]
        verdict = "holds" if all(check.right for check in checks) else "does not hold"
        said = "<br>".join(f"{'yes' if check.right else 'NO'}: {check.said}" for check in checks)
        lines.append(f"| {name}: {CLAIMS[name].statement} | {verdict} | {said} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Store results when asked, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path)
    arguments = parser.parse_args()
    if arguments.runs:
        write_results(finished(PAPER.of(grid(COPY[:1], CELLS, FOUR)), arguments.runs), STORED)
    results = read_results(STORED)
    for picture in PICTURES:
        png(picture.draw(results), RESULTS / f"{picture.name}.png")
    print(page(results))
    seconds = {}
    for result in results:
        seconds[result.config.goes_with().name] = result.record["seconds"]
    print(f"{len(results)} runs, {sum(seconds.values()):.0f} s of training on {results[0].record['device']}")


if __name__ == "__main__":
    main()
