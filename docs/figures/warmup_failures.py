"""Draw two ways in which the paper's warmup fails, and the default beside them, for ``docs/results/warmup_records.md``.

Run: make figures, or python docs/figures/warmup_failures.py
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import torch
from torch import nn

import multistable as ms
from multistable.experiments.figures import png
from multistable.tasks import CopyFirstInput

PERIODS = (10, 30, 100, 200, 300, 1000, 3000, 10_000)
BLUE, ORANGE = "#0072b2", "#d55e00"  # of the Okabe-Ito palette
COLLAPSE, FALSE_SUCCESS = (nn.RNN, 48, 13), (nn.GRU, 32, 14)


def warmed_up(kind: Callable[..., nn.Module], units: int, seed: int, algorithm: str) -> tuple[list[float], list[float]]:
    """VAA* at each step of the warmup of a network of ``benchmarks/warmup.py``, and VAA after each of the periods."""
    torch.manual_seed(seed)
    rnn = kind(1, units)
    sequences = CopyFirstInput(40).training(1000, generator=torch.Generator().manual_seed(1)).inputs
    generator = torch.Generator().manual_seed(100 + seed)
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        history = ms.warmup(rnn, sequences, algorithm=algorithm, batch_size=64, generator=generator)
    again = torch.Generator()
    vaa = [ms.measure(rnn, sequences, stabilisation=m, generator=again.manual_seed(10_000)).vaa for m in PERIODS]
    print(f"{kind.__name__} seed {seed}, {algorithm}: {history.outcome}, VAA* {history.vaa_star[-10:].mean():.3f} in")
    print(f"  the last 10 of {len(history)} steps; VAA after {PERIODS}: {', '.join(f'{v:.2f}' for v in vaa)}")
    return history.vaa_star[:, 0].tolist(), vaa


def draw(axes: Any, network: tuple[Callable[..., nn.Module], int, int], title: str) -> None:
    """A column: during the warmup, and after it."""
    for algorithm, colour in (("paper", ORANGE), ("reliable", BLUE)):
        vaa_star, vaa = warmed_up(*network, algorithm)
        axes[0].plot(range(1, len(vaa_star) + 1), vaa_star, color=colour, linewidth=1.2, label=algorithm)
        axes[1].semilogx(PERIODS, vaa, "o-", color=colour, linewidth=1.2, markersize=4, label=algorithm)
    kind, units, seed = network
    axes[0].set_title(f"{title}\nnn.{kind.__name__}(1, {units}), seed {seed}", fontsize=10)
    axes[0].set_xlabel("gradient step of the warmup")
    axes[1].set_xlabel("steps of stabilisation, M, after the warmup")
    axes[1].axvline(200, color="0.6", linestyle=":", linewidth=1)
    axes[1].text(190, 0.5, "longest period\nof a warmup", ha="right", va="center", color="0.4", fontsize=9)
    for each in axes:
        each.set_ylim(0, 1.05)
        each.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw the picture beside this file."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8, 5.4), layout="constrained", sharey=True)
    draw(axes[:, 0], COLLAPSE, "a collapse")
    draw(axes[:, 1], FALSE_SUCCESS, "a false success")
    axes[0, 0].set_ylabel("VAA*")
    axes[1, 0].set_ylabel("VAA")
    axes[0, 1].legend(loc="center right", fontsize=9, frameon=False)
    png(figure, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
