"""Section 5.4 and appendices E and F: selected hyperparameters, and whether the results hold for others."""

from itertools import product

from multistable.experiments.experiment import Experiment
from multistable.experiments.paper.grids import CELLS, COPY, DENOISING, LINE_MNIST, THREE_VERSIONS, WARMED, grid
from multistable.experiments.pictures import Bars, Curves, Label
from multistable.experiments.search import SELECTION, Space
from multistable.experiments.selection import Kind, Selected, Setting, final_runs
from multistable.tasks import Task
from multistable.training import Config, RunConfig

GRID = Space()

OTHER_SETTINGS = tuple(product((1, 2), (64, 256), (1e-3, 1e-4), (32, 64)))
"""Of appendix E: layers, units, learning rate, batch size."""


def candidates(task: Task) -> tuple[RunConfig, ...]:
    """Every setting of the appendix's grid, for every cell and version, on splits of one learning set."""
    return tuple(
        run
        for layers, units, rate, batch in product(GRID.layers, GRID.units, GRID.rates, GRID.batch_sizes)
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


def setting_of_version(version: str) -> Label:
    """The setting in words, for the runs of a version."""

    def label(config: Config) -> str | None:
        sizes = f"{config.num_layers} x {config.hidden_size}, {config.learning_rate:g}, {config.batch_size}"
        return sizes if config.version == version else None

    return label


def cell_at(layers: int, rate: float) -> Label:
    """The cell and the rest of the setting, for the runs of so many layers and this rate."""

    def label(config: Config) -> str | None:
        if (config.num_layers, config.learning_rate) != (layers, rate):
            return None
        return f"{config.cell.upper()}, H = {config.hidden_size}, B = {config.batch_size}"

    return label


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
            Curves(
                name=f"layers{layers}_rate{rate:g}",
                caption=f"{layers} {'layer' if layers == 1 else 'layers'}, learning rate {rate:g}.",
                quantities=("validation_loss", "vaa"),
                series=cell_at(layers, rate),
            )
            for layers, rate in product((1, 2), (1e-3, 1e-4))
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
            Bars(
                name=f"accuracy_{version}",
                caption=f"Test accuracy of {version} GRUs: layers x units, learning rate, batch size.",
                quantity="test_accuracy",
                hue=setting_of_version(version),
            )
            for version in THREE_VERSIONS
        ),
        claims=("C21",),
    ),
)
