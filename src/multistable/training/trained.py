"""The trained network of a run."""

from os import PathLike

from multistable.training.model import Model
from multistable.training.store import RunFolder


def load(path: PathLike[str] | str) -> Model:
    """The network of a finished run with its best weights, or of an agent with its last ones.

    ``load(path).rnn`` is an ``ms.RNN``.

    Args:
        path: the folder of the run, or the ``RunFolder`` that ``train`` returned.
    """
    folder = RunFolder(path)
    if not folder.finished:
        raise ValueError(f"{folder.path} is not the folder of a finished run: it has no summary.json")
    model = Model.of(folder.config())
    model.load_state_dict(folder.weights())
    return model
