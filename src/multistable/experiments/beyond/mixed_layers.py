"""Double layers of two different cells, which the paper's conclusion proposes, beside double layers of one cell."""

from collections.abc import Sequence

from multistable.experiments.experiment import Experiment
from multistable.experiments.paper.grids import COPY, DENOISING, grid
from multistable.experiments.pictures import Bars
from multistable.tasks import Task

ALONE = ("lstm", "gru", "nbrc")
MIXED = ("gru+lstm", "lstm+gru", "nbrc+gru", "nbrc+lstm")
"""The half that is warmed up first."""


def experiment(name: str, order: int, title: str, tasks: Sequence[Task]) -> Experiment:
    """Partly warmed-up double layers on some tasks."""
    return Experiment(
        name=f"mixed-{name}",
        order=order,
        labels=("sec:conclusion",),
        title=f"{title}: double layers of two cells",
        runs=grid(tasks, [*ALONE, *MIXED], ["double"]),
        pictures=(
            Bars(name="test_loss", caption="Test loss of the weights of the lowest validation loss."),
            Bars(name="vaa", caption="VAA before training.", quantity="initial_vaa"),
        ),
        claims=(),
    )


EXPERIMENTS = (
    experiment("copy", 210, "Copy first input", COPY),
    experiment("denoising", 211, "Denoising", DENOISING),
)
