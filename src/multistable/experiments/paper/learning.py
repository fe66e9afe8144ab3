"""Section 5.3: multistability and learning, without warmup."""

from multistable.experiments.experiment import Experiment
from multistable.experiments.paper.grids import CELLS, COPY, DENOISING, grid
from multistable.experiments.pictures import Bars, Curves

CURVES = ("validation_loss", "vaa")
LSTMS = ("lstm", "chrono")

LEARNING_AND_VAA = (
    Curves(
        name="lstm_chrono",
        caption="LSTM with its usual and with chrono initialisation.",
        quantities=CURVES,
        series=lambda config: config.cell if config.cell in LSTMS else None,
    ),
    Curves(
        name="others",
        caption="The other cells.",
        quantities=CURVES,
        series=lambda config: None if config.cell in LSTMS else config.cell,
    ),
)

EXPERIMENTS = (
    Experiment(
        name="copy",
        order=10,
        labels=("table:vaa_copybench",),
        title="Copy first input: every cell, three sequence lengths",
        runs=grid(COPY, CELLS, ["classic"]),
        pictures=(Bars(name="test_loss", caption="Test MSE of the weights of the lowest validation loss."),),
        claims=("C1", "C2"),
    ),
    Experiment(
        name="copy-curves",
        order=11,
        labels=("fig:copyfirstinput_lstm_chrono", "fig:copyfirstinput_others"),
        title="Copy first input, T = 50: learning and VAA, epoch by epoch",
        runs=grid(COPY[:1], CELLS, ["classic"]),
        pictures=LEARNING_AND_VAA,
        claims=("C1", "C3"),
    ),
    Experiment(
        name="denoising",
        order=12,
        labels=("table:vaa_denoising",),
        title="Denoising: every cell, two forgetting periods",
        runs=grid(DENOISING, CELLS, ["classic"]),
        pictures=(Bars(name="test_loss", caption="Test MSE of the weights of the lowest validation loss."),),
        claims=("C1", "C4"),
    ),
    Experiment(
        name="denoising-curves",
        order=13,
        labels=("fig:denoising_lstm_chrono", "fig:denoising_others"),
        title="Denoising, N = 100: learning and VAA, epoch by epoch",
        runs=grid(DENOISING[1:], CELLS, ["classic"]),
        pictures=LEARNING_AND_VAA,
        claims=("C5",),
    ),
    Experiment(
        name="denoising-grus",
        order=14,
        labels=("fig:denoising_3gru",),
        title="Denoising, N = 5: each GRU by itself",
        runs=grid(DENOISING[:1], ["gru"], ["classic"]),
        pictures=(
            Curves(
                name="each",
                caption="Each run by itself.",
                quantities=CURVES,
                series=lambda config: f"seed {config.seed}",
            ),
        ),
        claims=("C6",),
    ),
)
