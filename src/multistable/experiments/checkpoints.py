"""Networks and sequences of anyone, from files: what ``multistable inspect`` reads."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from multistable.training import load

KINDS: dict[int, Callable[..., nn.RNNBase]] = {1: nn.RNN, 3: nn.GRU, 4: nn.LSTM}
"""The recurrent networks of ``torch.nn`` by the number of their gates."""

FIRST = "weight_hh_l0"
"""The weights that every one of them has."""


def network_of(path: Path, part: str | None = None) -> nn.Module:
    """The network of a checkpoint: a ``state_dict`` with a ``torch.nn`` RNN, GRU or LSTM in it, or a run folder.

    Args:
        path: a file of safetensors, one that ``torch.load`` reads with ``weights_only``, or the folder of a run.
        part: the name of the network inside the model, where there are several.
    """
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    if path.is_dir():
        return load(path).rnn
    tensors = _tensors(path)
    prefixes = [name.removesuffix(FIRST) for name in tensors if name == FIRST or name.endswith(f".{FIRST}")]
    chosen = [prefix for prefix in prefixes if part is None or prefix.removesuffix(".") == part]
    if len(chosen) != 1:
        found = ", ".join(repr(prefix.removesuffix(".")) for prefix in prefixes) or "none"
        given = "" if part is None else f", got --part {part}"
        raise ValueError(
            f"{path} must have one torch.nn RNN, GRU or LSTM, or --part must choose one; found: {found}{given}"
        )
    (prefix,) = chosen
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    return _recurrence(
        {name: tensor for name, tensor in own.items() if re.match(r"(weight|bias)_[hi]\w_l\d", name)}, path
    )


def sequences_of(path: Path, batch_first: bool = False) -> Tensor:
    """Sequences ``(time, n, features)``: the array of three dimensions in a file of NumPy (npy, npz) or safetensors."""
    arrays = _arrays(path)
    fitting = {name: array for name, array in arrays.items() if array.dim() == 3}
    if len(fitting) != 1:
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
        raise ValueError(f"{path} must have one array of three dimensions, (time, n, features), got {shapes}")
    (tensor,) = fitting.values()
    return tensor.transpose(0, 1) if batch_first else tensor


def _tensors(path: Path) -> dict[str, Tensor]:
    with _readable(path, "a state_dict, as safetensors or torch.save(model.state_dict(), file) write it"):
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        stored = torch.load(path, map_location="cpu", weights_only=True)
    stored = stored.get("state_dict", stored) if isinstance(stored, dict) else stored
    if not isinstance(stored, dict) or not all(isinstance(value, Tensor) for value in stored.values()):
        raise ValueError(f"{path} must be a state_dict, or have one as its entry 'state_dict'")
    return stored


def _arrays(path: Path) -> dict[str, Tensor]:
    with _readable(path, "a file of NumPy (.npy, .npz) or safetensors with numbers"):
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        stored = np.load(path, allow_pickle=False)
        named = dict(stored) if path.suffix == ".npz" else {"array": stored}
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in named.items()}


@contextmanager
def _readable(path: Path, accepted: str) -> Iterator[None]:
    """What PyTorch, NumPy and safetensors say of a file of another kind, in a line."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} must be {accepted}, and it cannot be read as one") from error


def _recurrence(own: dict[str, Tensor], path: Path) -> nn.RNNBase:
    if any("_reverse" in name or "weight_hr" in name for name in own):
        raise ValueError(
            f"{path} has a bidirectional network or one with projections, which have no state of their own"
        )
    gates, rest = divmod(own[FIRST].shape[0], own[FIRST].shape[1])
    if rest or gates not in KINDS:
        raise ValueError(f"{path} has no torch.nn RNN, GRU or LSTM: {FIRST} is {tuple(own[FIRST].shape)}")
    layers = sum(name.startswith("weight_hh_l") for name in own)
    features, hidden = own["weight_ih_l0"].shape[1], own[FIRST].shape[1]
    rnn = KINDS[gates](features, hidden, layers, bias="bias_hh_l0" in own, dtype=own[FIRST].dtype)
    rnn.load_state_dict(own)
    return rnn
