"""Sections 6.2 and 6.3: warmup, and double layers with partial warmup."""

from multistable.experiments.experiment import Experiment
from multistable.experiments.panels import Panels
from multistable.experiments.paper import printed
from multistable.experiments.paper.grids import (
    CELLS,
    COPY,
    DENOISING,
    FOUR_VERSIONS,
    LINE_MNIST,
    SEQUENTIAL_MNIST,
    THREE_VERSIONS,
    TWO_VERSIONS,
    WARMED,
    grid,
)
from multistable.experiments.pictures import Bars, WarmupCourse, by_version
from multistable.experiments.styles import cell_name

LOSS = "Test MSE of the weights of the lowest validation loss."
ACCURACY = "Test accuracy of the weights of the lowest validation loss."

EXPERIMENTS = (
    Experiment(
        name="warmup-course",
        order=20,
        labels=("fig:warmup_denoising_gru",),
        title="VAA* of both layers and VAA of a GRU during its warmup on denoising",
        runs=grid(DENOISING[:1], ["gru"], ["warmup"]),
        pictures=(
            WarmupCourse(
                name="vaa_star",
                printed=printed.VAA_AFTER_WARMUP,
                caption="VAA* of each layer at each step, and VAA of the network, on the way measured as in training.",
            ),
        ),
        claims=("C8",),
    ),
    Experiment(
        name="warmup-copy",
        order=21,
        labels=("tab:warmup_bench1_nodouble",),
        title="Copy first input with and without warmup",
        runs=grid(COPY, WARMED, TWO_VERSIONS),
        pictures=(Bars(name="test_loss", caption=LOSS, printed=printed.COPY),),
        claims=("C9", "C10"),
    ),
    Experiment(
        name="warmup-denoising",
        order=22,
        labels=("tab:warmup_bench2_nodouble",),
        title="Denoising with and without warmup",
        runs=grid(DENOISING, WARMED, TWO_VERSIONS),
        pictures=(Bars(name="test_loss", caption=LOSS),),
        claims=("C10", "C11"),
    ),
    Experiment(
        name="warmup-sequential-mnist",
        order=24,
        labels=("tab:warmup_bench3_nodouble",),
        title="Permuted sequential MNIST with and without warmup",
        runs=grid(SEQUENTIAL_MNIST, WARMED, TWO_VERSIONS, epochs=70),
        pictures=(Bars(name="test_accuracy", caption=ACCURACY, quantity="test_accuracy"),),
        claims=("C13",),
    ),
    Experiment(
        name="warmup-line-mnist",
        order=25,
        labels=("tab:warmup_bench4_nodouble",),
        title="Permuted line-sequential MNIST with and without warmup",
        runs=grid(LINE_MNIST, WARMED, TWO_VERSIONS, epochs=70),
        pictures=(Bars(name="test_accuracy", caption=ACCURACY, quantity="test_accuracy"),),
        claims=("C14",),
    ),
    Experiment(
        name="double-copy",
        order=30,
        labels=("tab:warmup_bench1",),
        title="Copy first input: classic, warmed up, double",
        runs=grid(COPY, WARMED, THREE_VERSIONS) + grid(COPY, CELLS[-2:], ["classic"]),
        pictures=(Bars(name="test_loss", caption=LOSS),),
        claims=("C9", "C10", "C15"),
    ),
    Experiment(
        name="double-denoising",
        order=31,
        labels=("tab:warmup_bench2",),
        title="Denoising: classic, warmed up, double",
        runs=grid(DENOISING, WARMED, THREE_VERSIONS) + grid(DENOISING, CELLS[-2:], ["classic"]),
        pictures=(Bars(name="test_loss", caption=LOSS),),
        claims=("C10", "C11", "C15"),
    ),
    Experiment(
        name="double-sequential-mnist",
        order=32,
        labels=("tab:warmup_bench3",),
        title="Permuted sequential MNIST: classic, warmed up, double",
        runs=grid(SEQUENTIAL_MNIST, WARMED, THREE_VERSIONS, epochs=70)
        + grid(SEQUENTIAL_MNIST, CELLS[-2:], ["classic"], epochs=70),
        pictures=(Bars(name="test_accuracy", caption=ACCURACY, quantity="test_accuracy"),),
        claims=("C13", "C15"),
    ),
    Experiment(
        name="double-line-mnist",
        order=33,
        labels=("tab:warmup_bench4",),
        title="Permuted line-sequential MNIST: classic, warmed up, double",
        runs=grid(LINE_MNIST, WARMED, THREE_VERSIONS, epochs=70) + grid(LINE_MNIST, CELLS[-2:], ["classic"], epochs=70),
        pictures=(Bars(name="test_accuracy", caption=ACCURACY, quantity="test_accuracy"),),
        claims=("C14", "C15", "C16"),
    ),
    Experiment(
        name="double-curves",
        order=34,
        labels=("fig:denoising_double_warmup",),
        title="Denoising, N = 100: the four versions, epoch by epoch",
        runs=grid(DENOISING[1:], WARMED[:3], FOUR_VERSIONS),
        pictures=(
            Panels(
                name="curves",
                caption="Validation MSE of each cell.",
                part=lambda config: cell_name(config.cell),
                series=by_version,
                abreast=3,
            ),
        ),
        claims=("C17",),
    ),
    Experiment(
        name="impact-k",
        order=60,
        labels=("fig:impact_k",),
        title="Copy first input: the target k of the warmup",
        runs=tuple(run for k in (0.25, 0.5, 0.75, 0.95) for run in grid(COPY, WARMED[:3], ["warmup"], target=k)),
        pictures=(Bars(name="test_loss", caption=LOSS, hue=lambda config: f"k = {config.target:g}"),),
        claims=("C22",),
    ),
    Experiment(
        name="double-control-copy",
        order=80,
        labels=("tab:double_bench1",),
        title="Copy first input: double layers without warmup",
        runs=grid(COPY, CELLS, FOUR_VERSIONS),
        pictures=(Bars(name="test_loss", caption=LOSS),),
        claims=("C18",),
    ),
    Experiment(
        name="double-control-denoising",
        order=81,
        labels=("tab:double_bench2",),
        title="Denoising: double layers without warmup",
        runs=grid(DENOISING, CELLS, FOUR_VERSIONS),
        pictures=(Bars(name="test_loss", caption=LOSS),),
        claims=("C18",),
    ),
)
