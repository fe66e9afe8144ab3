"""How long networks remember a small difference between two of their states, before and after a warmup.

    python docs/figures/lifetimes.py                              # half an hour on one busy CPU core
    python docs/figures/lifetimes.py --hidden 16 --seeds 2 --cells gru --T 10

Networks of one layer read the sequences of copy first input. They are classic, warmed up by Algorithm 3, or warmed up
by the default. Measures VAA, the shares of states at rest and in chaos, and the lifetime of a difference. Writes
``docs/results/lifetimes.json`` and draws ``docs/results/lifetimes.png``, unless it is told ``--output`` elsewhere;
prints a table.
"""

import argparse
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import multistable as ms
from multistable.experiments.figures import figure, name_axes, png, rule
from multistable.experiments.pictures import legend_below
from multistable.experiments.styles import Style, style_of
from multistable.palette import BLUE, GREEN, VERMILLION
from multistable.tasks import CopyFirstInput

RESULTS = Path(__file__).parents[1] / "results"
KINDS = {
    "classic": Style("classic", VERMILLION, "o"),
    "paper": Style("Algorithm 3", BLUE, "s"),
    "reliable": Style("the default", GREEN, "^"),
}
STABILISATION, SEQUENCES = 10_000, 1000
LONGEST = 1e7
"""The number of steps that stands for longer lifetimes, and for differences that do not shrink at all."""

Row = dict[str, Any]


def generators(seeds: int, first: int) -> list[torch.Generator]:
    """One for each network."""
    return [torch.Generator().manual_seed(first + seed) for seed in range(seeds)]


def row(cell: str, kind: str, asked: argparse.Namespace) -> Row:
    """What is measured of networks of one cell and one kind."""
    sequences = CopyFirstInput(asked.T).training(SEQUENCES, generator=torch.Generator().manual_seed(1)).inputs
    members = [ms.RNN(cell, 1, asked.hidden, generator=generator) for generator in generators(asked.seeds, 0)]
    networks = ms.Ensemble(members)
    if kind != "classic":
        with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
            ms.warmup(networks, sequences, algorithm=kind, generator=generators(asked.seeds, 100))
    sizes: dict[str, Any] = {"batches": 4, "stabilisation": STABILISATION}
    measured = ms.measure(networks, sequences, **sizes, generator=generators(asked.seeds, 200))
    settled = ms.attractors(networks, sequences, **sizes, generator=generators(asked.seeds, 200))
    found = ms.lyapunov(networks, sequences, **sizes, generator=generators(asked.seeds, 200))
    return {
        "cell": cell,
        "kind": kind,
        "vaa": measured.vaa,
        "fixed_points": settled.fixed_points,
        "chaotic": found.chaotic,
        "lifetime": [min(LONGEST, steps) for steps in found.lifetime],
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """The lifetime of each network, by cell and kind."""
    drawn, axes = figure(7.2, 3.4)
    cells = list(dict.fromkeys(found["cell"] for found in rows))
    for index, (kind, style) in enumerate(KINDS.items()):
        for found in (found for found in rows if found["kind"] == kind):
            place = cells.index(found["cell"]) + 0.25 * (index - 1)
            spread = [place + 0.03 * (seed - (len(found["vaa"]) - 1) / 2) for seed in range(len(found["vaa"]))]
            look = {"color": style.colour, "markersize": 5, "alpha": 0.8, "label": style.label}
            axes.plot(spread, found["lifetime"], style.marker, **look)
    axes.set_yscale("log")
    rule(axes, STABILISATION, "M")
    axes.set_ylim(1, 2 * LONGEST)
    axes.set_xticks(range(len(cells)), [style_of(cell).label for cell in cells])
    name_axes(axes, "cell", "lifetime of a difference (steps)")
    legend_below(drawn, [axes])
    png(drawn, path)


def main() -> None:
    """Measure, store, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=list(ms.CELLS), choices=list(ms.CELLS))
    parser.add_argument("--T", type=int, default=50)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "lifetimes", help="where to write, without a suffix")
    asked = parser.parse_args()
    rows = []
    print("| cell | network | VAA | states at rest | in chaos | lifetime, steps |\n|---|---|---|---|---|---|")
    for cell in asked.cells:
        for kind, style in KINDS.items():
            found = row(cell, kind, asked)
            rows.append(found)
            shares = (", ".join(f"{v:.2f}" for v in found[name]) for name in ("vaa", "fixed_points", "chaotic"))
            lifetimes = ", ".join(f"{steps:.3g}" for steps in found["lifetime"])
            print(f"| {style_of(cell).label} | {style.label} | {' | '.join(shares)} | {lifetimes} |", flush=True)
    settings = {name: value for name, value in vars(asked).items() if name != "output"}
    asked.output.with_suffix(".json").write_text(json.dumps({"settings": settings, "rows": rows}) + "\n")
    draw(rows, asked.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
