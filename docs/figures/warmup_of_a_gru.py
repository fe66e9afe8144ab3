"""The picture in the README: VAA* and VAA of a GRU during warmup.

Run: make figures, or python docs/figures/warmup_of_a_gru.py
"""

from pathlib import Path

import matplotlib
import torch

import multistable as ms

SEEDS, EVERY = 4, 10
BLUE, ORANGE = "#0072b2", "#d55e00"  # of the Okabe-Ito palette, which colour-blind readers can tell apart


def warm_up(seed: int) -> tuple[list[float], list[float], list[float]]:
    """VAA* at each step, and the steps and values at which the true VAA was measured."""
    torch.manual_seed(seed)
    rnn = torch.nn.GRU(1, 128)
    sequences = torch.randn(50, 1000, 1)

    def true_vaa() -> float:
        return ms.measure(rnn, sequences, batches=3).vaa

    steps, values = [0.0], [true_vaa()]

    def every_few_steps(step: ms.WarmupStep) -> None:
        if step.step % EVERY == 0:
            steps.append(step.step)
            values.append(true_vaa())
            print(f"seed {seed}, step {step.step}: VAA* {step.vaa_star.item():.3f}, VAA {values[-1]:.3f}")

    history = ms.warmup(rnn, sequences, on_step=every_few_steps)
    return history.vaa_star[:, 0].tolist(), steps, values


def main() -> None:
    """Draw the picture beside this file."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 3.7), layout="constrained")
    for seed in range(1, SEEDS + 1):
        vaa_star, steps, vaa = warm_up(seed)
        first = seed == 1
        star_label = "VAA*, the differentiable proxy: after at most 200 steps" if first else None
        label = "VAA, the share of states that stay apart: after 10,000 steps" if first else None
        axes.plot(range(1, len(vaa_star) + 1), vaa_star, color=BLUE, linewidth=1, alpha=0.7, label=star_label)
        axes.plot(steps, vaa, "o-", color=ORANGE, linewidth=1.4, markersize=4, alpha=0.8, label=label)
    for value, text in ((0.95, "target 0.95"), (1 / 32, "1/32: one\nattractor")):
        axes.axhline(value, color="0.6", linestyle=":", linewidth=1)
        axes.text(1.01, value, text, transform=axes.get_yaxis_transform(), va="center", color="0.4", fontsize=9)
    axes.set_xlabel("gradient step of the warmup")
    axes.set_ylabel("VAA*, VAA")
    axes.set_title(f"Warmup of torch.nn.GRU(1, 128), {SEEDS} seeds", fontsize=10)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.05)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=150)


if __name__ == "__main__":
    main()
