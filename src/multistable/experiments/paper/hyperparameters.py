"""Section 6.4 and appendices E and F: selected hyperparameters, and whether the results hold for others."""

from itertools import product

from multistable.experiments.experiment import Experiment, cell_of
from multistable.experiments.panels import Panels
from multistable.experiments.paper import printed
from multistable.experiments.paper.grids import CELLS, COPY, DENOISING, LINE_MNIST, THREE_VERSIONS, WARMED, grid
from multistable.experiments.pictures import Label, by_version
from multistable.experiments.search import SELECTION, Space
from multistable.experiments.selection import Selected, final_runs
from multistable.experiments.styles import cell_name
from multistable.tasks import Task
from multistable.training import Config, RunConfig

GRID = Space()

LAYERS = (1, 2)
OTHER_SETTINGS = tuple(product(LAYERS, (64, 256), (1e-3, 1e-4), (32, 64)))
"""The settings of appendix E: layers, units, learning rate, batch size."""


def candidates(task: Task) -> tuple[RunConfig, ...]:
    """Every setting of the appendix's grid, for every cell and version, on splits of one learning set."""
    return tuple(
        run
        for layers, units, rate, batch in GRID.settings()
        for cells, versions in ((WARMED, THREE_VERSIONS), (CELLS[-2:], THREE_VERSIONS[:1]))
        for run in grid(
            [task],
            cells,
            versions,
            num_layers=layers,
            hidden_size=units,
            learning_rate=rate,
            batch_size=batch,
            selection=SELECTION,
            data_seed=0,
            vaa_every=0,
        )
    )


def other_settings(task: Task, cells: tuple[str, ...], versions: tuple[str, ...], epochs: int) -> tuple[RunConfig, ...]:
    """The runs with the sixteen settings of appendix E."""
    return tuple(
        run
        for layers, units, rate, batch in OTHER_SETTINGS
        for run in grid(
            [task],
            cells,
            versions,
            num_layers=layers,
            hidden_size=units,
            learning_rate=rate,
            batch_size=batch,
            epochs=epochs,
        )
    )


def with_layers(layers: int) -> Label:
    """A label for the runs of networks with ``layers`` layers: the rest of the setting, as the appendix writes it."""

    def label(config: Config) -> str | None:
        rest = f"H = {config.hidden_size}, α = {config.learning_rate:g}, B = {config.batch_size}"
        return rest if config.num_layers == layers else None

    return label


CELLS_WITHOUT_CURVES = ("chrono", "brc", "nbrc")


def final_of_cell(config: Config) -> str | None:
    """The cell of a final run; ``None`` for any other run, and for cells whose curves the paper does not show."""
    final = isinstance(config, RunConfig) and config.selection == 0
    return cell_name(config.cell) if final and config.cell not in CELLS_WITHOUT_CURVES else None


FINAL_CURVES = Panels(
    name="curves",
    caption="Validation loss of the final runs, with the settings that won for each cell and version.",
    part=final_of_cell,
    series=by_version,
    abreast=3,
)


EXPERIMENTS = (
    Experiment(
        name="selection-denoising",
        order=40,
        labels=("tab:ms", "fig:hp_denoising", "tab:hp_denoising"),
        title="Denoising, N = 100, with selected hyperparameters",
        runs=candidates(DENOISING[1]),
        then=final_runs,
        pictures=(
            Selected(
                name="test_loss",
                caption="Test loss with the settings of the lowest mean selection loss.",
                quantity="test_loss",
                printed=printed.DENOISING,
            ),
            FINAL_CURVES,
        ),
        claims=("C19",),
    ),
    Experiment(
        name="selection-line-mnist",
        order=41,
        labels=("tab:ms", "fig:hp_mnist", "tab:hp_mnist"),
        title="Permuted line-sequential MNIST, N = 472, with selected hyperparameters",
        runs=candidates(LINE_MNIST[1]),
        then=final_runs,
        pictures=(
            Selected(
                name="test_accuracy",
                caption="Test accuracy with the settings of the lowest mean selection loss.",
                quantity="test_accuracy",
                printed=printed.LINE_MNIST,
            ),
            FINAL_CURVES,
        ),
        claims=("C19",),
    ),
    Experiment(
        name="other-settings-vaa",
        order=50,
        labels=("fig:copyfirstinput_generalisation_vaa_1", "fig:copyfirstinput_generalisation_vaa_2"),
        title="Copy first input, T = 50: learning and VAA with other hyperparameters",
        runs=other_settings(COPY[0], WARMED[:3], ("classic",), epochs=50),
        pictures=tuple(
            Panels(
                name=f"layers{layers}",
                caption=f"Networks of {layers} {'layer' if layers == 1 else 'layers'}.",
                part=with_layers(layers),
                series=cell_of,
                quantities=("validation_loss", "vaa"),
                names=("setting", "cell"),
            )
            for layers in LAYERS
        ),
        claims=("C20",),
    ),
    Experiment(
        name="other-settings-warmup",
        order=51,
        labels=("fig:copyfirstinput_generalisation_warmup_1", "fig:copyfirstinput_generalisation_warmup_2"),
        title="Permuted line-sequential MNIST, N = 472: GRU versions with other hyperparameters",
        runs=other_settings(LINE_MNIST[1], ("gru",), THREE_VERSIONS, epochs=50),
        pictures=tuple(
            Panels(
                name=f"layers{layers}",
                caption=f"GRUs of {layers} {'layer' if layers == 1 else 'layers'}.",
                part=with_layers(layers),
                series=by_version,
                ending="test_accuracy",
                names=("setting", "version"),
            )
            for layers in LAYERS
        ),
        claims=("C21",),
    ),
)
