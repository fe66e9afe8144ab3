"""The trained network of a run."""

from pathlib import Path

from multistable.training.model import Model
from multistable.training.store import RunFolder


def load(path: Path | str) -> Model:
    """The network of a finished run with its best weights, of an agent its last; ``load(path).rnn`` is an ``ms.RNN``.

    Args:
        path: the folder of the run.
    """
    folder = RunFolder(path)
    if not folder.finished:
        raise ValueError(f"{folder.path} is not the folder of a finished run: it has no summary.json")
    model = Model.of(folder.config())
    model.load_state_dict(folder.weights())
    return model
