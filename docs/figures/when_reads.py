"""What networks hold of their sequences before training: how strongly each input moves the last state, and what a
linear readout of that state tells.

    python docs/figures/when_reads.py                 # two minutes of one CPU core
    python docs/figures/when_reads.py --hidden 8 --seeds 2 --cells gru --T 12

Networks of one layer read the texts of ``FirstWord`` and ``WordCounts``: classic, warmed up by the default, and with
double layers warmed up by the default. The influence of an input is the gradient of the last state in a random
direction of length 1, its norm in the mean over sequences. The readouts are fitted by least squares to 2,000 sequences
and tested on 1,000: the topic of the first word, and that of most words. Writes ``docs/results/when_reads.json`` and
draws ``docs/results/when_reads.png``, unless it is told ``--output`` elsewhere; prints a table.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import multistable as ms
from multistable.experiments.experiment import Spread
from multistable.experiments.figures import curve, figure, name_axes, png
from multistable.experiments.pictures import legend_below
from multistable.experiments.styles import cell_name, style_of
from multistable.tasks import FirstWord, WordCounts
from multistable.tasks.words import Words

RESULTS = Path(__file__).parents[1] / "results"
VERSIONS = ("classic", "warmup", "double")
FITTED, TESTED, FOLLOWED, RIDGE = 2000, 1000, 200, 1e-3


def seeded(seed: int) -> torch.Generator:
    """A generator."""
    return torch.Generator().manual_seed(seed)


def network(cell: str, version: str, sequences: Tensor, hidden: int, seed: int) -> ms.RNN:
    """A network before training."""
    rnn = ms.RNN(cell, sequences.shape[-1], hidden, double=version == "double", generator=seeded(seed))
    if version != "classic":
        ms.warmup(rnn, sequences, generator=seeded(seed), progress=False)
    return rnn


def influence(rnn: nn.Module, sequences: Tensor) -> list[float]:
    """How strongly each input ``(T,)`` moves the last state."""
    inputs = sequences[:, :FOLLOWED].clone().requires_grad_()
    last = rnn(inputs)[0][-1]
    directions = functional.normalize(torch.randn(last.shape, generator=seeded(1)), dim=-1)
    (moved,) = torch.autograd.grad((directions * last).sum(), inputs)
    return moved.norm(dim=-1).mean(1).tolist()


@torch.no_grad()
def told(rnn: nn.Module, task: Words, seed: int) -> float:
    """The share of topics that a linear readout of the last state tells."""
    inputs, topics = task.training(FITTED + TESTED, generator=seeded(seed))
    last = rnn(inputs)[0][-1].double()
    states = torch.cat([last, torch.ones(len(last), 1)], dim=1)
    wanted = functional.one_hot(topics[:, 0], task.topics).double()
    square = states[:FITTED].T @ states[:FITTED] + RIDGE * torch.eye(states.shape[1])
    weights = torch.linalg.solve(square, states[:FITTED].T @ wanted[:FITTED])
    right = (states[FITTED:] @ weights).argmax(1) == topics[FITTED:, 0]
    return float(right.double().mean())


def row(cell: str, version: str, asked: argparse.Namespace) -> dict[str, Any]:
    """What is measured of the networks of a cell and a version."""
    first, counts = FirstWord(asked.T), WordCounts(asked.T)
    found: dict[str, Any] = {"cell": cell, "version": version, "influence": [], "first_word": [], "word_counts": []}
    for seed in range(asked.seeds):
        sequences = first.training(FITTED, generator=seeded(seed)).inputs
        rnn = network(cell, version, sequences, asked.hidden, seed)
        found["influence"].append([float(f"{value:.3g}") for value in influence(rnn, sequences)])
        found["first_word"].append(told(rnn, first, seed))
        found["word_counts"].append(told(rnn, counts, seed))
    return found


def draw(rows: list[dict[str, Any]], cells: list[str]) -> Any:
    """The influence of each input, a panel for each cell."""
    drawn, axes = figure(4.6 * len(cells), 3.6, len(cells), squeeze=False, sharey=True)
    for place, cell in zip(axes[0], cells, strict=True):
        for index, found in enumerate(row for row in rows if row["cell"] == cell):
            norms = np.log10(found["influence"])
            curve(place, np.arange(1, norms.shape[1] + 1), norms, style_of(found["version"], index), markers=False)
        name_axes(place, "time step of the input", "influence on the last state, log10", cell_name(cell))
    legend_below(drawn, axes[0])
    return drawn


def main() -> None:
    """Measure, store, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=["gru", "lstm"])
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--T", type=int, default=50)
    parser.add_argument("--output", type=Path, default=RESULTS / "when_reads", help="path of the files, no ending")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row(cell, version, asked) for cell in asked.cells for version in VERSIONS]
    asked.output.with_suffix(".json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    png(draw(rows, asked.cells), asked.output.with_suffix(".png"))
    places = [0, asked.T // 2, asked.T - 1]
    steps = [f"influence of input {place + 1}" for place in places]
    header = ["cell", "version", *steps, "first word told", "most words told"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for found in rows:
        means = [10 ** Spread.of(np.log10(found["influence"])[:, place]).mean for place in places]
        shares = [Spread.of(found[name]) for name in ("first_word", "word_counts")]
        told_of = [*(f"{mean:.2g}" for mean in means), *map(str, shares)]
        print("| " + " | ".join([cell_name(found["cell"]), style_of(found["version"]).label, *told_of]) + " |")


if __name__ == "__main__":
    main()
