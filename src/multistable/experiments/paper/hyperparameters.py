"""Section 5.4 and appendices E and F: selected hyperparameters, and whether the results hold for others."""

from itertools import product

from multistable.experiments.experiment import Experiment
from multistable.experiments.panels import Panels
from multistable.experiments.paper.grids import CELLS, COPY, DENOISING, LINE_MNIST, THREE_VERSIONS, WARMED, grid
from multistable.experiments.pictures import Label, by_version
from multistable.experiments.search import SELECTION, Space
from multistable.experiments.selection import Kind, Selected, Setting, final_runs
from multistable.tasks import Task
from multistable.training import Config, RunConfig

GRID = Space()

LAYERS = (1, 2)
OTHER_SETTINGS = tuple(product(LAYERS, (64, 256), (1e-3, 1e-4), (32, 64)))
"""Of appendix E: layers, units, learning rate, batch size."""


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
    """The sixteen settings of appendix E."""
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
    """The rest of the setting, as the appendix writes it, for the runs of so many layers."""

    def label(config: Config) -> str | None:
        rest = f"H = {config.hidden_size}, α = {config.learning_rate:g}, B = {config.batch_size}"
        return rest if config.num_layers == layers else None

    return label


def final_of_cell(config: Config) -> str | None:
    """The cell of a run that was not for selecting, for the cells whose curves the paper shows."""
    final = isinstance(config, RunConfig) and config.selection == 0
    return config.cell.upper() if final and config.cell in WARMED[:3] else None


FINAL_CURVES = Panels(
    name="curves",
    caption="Validation loss of the final runs, with the settings that won for each cell and version.",
    part=final_of_cell,
    series=by_version,
    abreast=3,
)


# Appendix F prints these: L, H, learning rate, B; mean and standard deviation.
DENOISING_TABLE: dict[Kind, tuple[Setting, float, float]] = {
    ("lstm", "classic"): ((3, 512, 1e-3, 32), 0.9970, 0.0089),
    ("lstm", "double"): ((3, 256, 5e-4, 64), 0.0004, 0.0001),
    ("lstm", "warmup"): ((3, 256, 1e-3, 64), 0.0010, 0.0009),
    ("gru", "classic"): ((1, 512, 1e-3, 32), 0.2656, 0.4593),
    ("gru", "double"): ((2, 256, 1e-3, 32), 0.0002, 0.0001),
    ("gru", "warmup"): ((1, 512, 5e-4, 64), 0.0002, 0.0001),
    ("mgu", "classic"): ((3, 512, 1e-3, 32), 0.3356, 0.5695),
    ("mgu", "double"): ((2, 256, 5e-4, 32), 0.0003, 0.0000),
    ("mgu", "warmup"): ((1, 256, 1e-3, 32), 0.0003, 0.0002),
    ("chrono", "classic"): ((1, 512, 1e-3, 32), 0.0003, 0.0002),
    ("chrono", "double"): ((1, 512, 1e-3, 32), 0.0004, 0.0003),
    ("chrono", "warmup"): ((1, 512, 1e-3, 32), 0.0004, 0.0002),
    ("brc", "classic"): ((3, 256, 1e-3, 32), 0.0006, 0.0001),
    ("nbrc", "classic"): ((1, 512, 1e-3, 32), 0.0001, 0.0000),
}
MNIST_TABLE: dict[Kind, tuple[Setting, float, float]] = {
    ("lstm", "classic"): ((2, 512, 1e-3, 64), 0.6693, 0.4807),
    ("lstm", "double"): ((2, 256, 5e-4, 32), 0.9519, 0.0058),
    ("lstm", "warmup"): ((3, 256, 5e-4, 32), 0.9475, 0.0008),
    ("gru", "classic"): ((3, 512, 5e-4, 32), 0.9578, 0.0087),
    ("gru", "double"): ((2, 512, 1e-4, 32), 0.9549, 0.0011),
    ("gru", "warmup"): ((1, 512, 1e-4, 32), 0.9555, 0.0053),
    ("mgu", "classic"): ((2, 512, 5e-4, 64), 0.9576, 0.0085),
    ("mgu", "double"): ((2, 512, 5e-4, 64), 0.9562, 0.0045),
    ("mgu", "warmup"): ((2, 256, 5e-4, 32), 0.9485, 0.0073),
    ("chrono", "classic"): ((1, 256, 1e-3, 32), 0.9545, 0.0020),
    ("chrono", "double"): ((1, 256, 1e-3, 32), 0.9575, 0.0029),
    ("chrono", "warmup"): ((1, 256, 1e-3, 32), 0.9562, 0.0017),
    ("brc", "classic"): ((2, 512, 5e-4, 32), 0.9589, 0.0064),
    ("nbrc", "classic"): ((2, 512, 5e-4, 64), 0.9600, 0.0006),
}

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
                printed=DENOISING_TABLE,
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
                printed=MNIST_TABLE,
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
                series=lambda config: config.cell,
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
