"""The cells of appendix A in NumPy, written from the paper with one matrix a gate, to compare the library with.

Matrices are the paper's, ``(out, in)``, and act on the rows of ``(n, in)`` arrays. The second biases of ``torch.nn``
(``b_fh`` and so on) count as zero where there are none. Every operation is analytic and works on complex arrays,
so that the complex step Im f(x + ih) / h gives derivatives without cancellation. At the end are helpers that several
test files share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Arrays = dict[str, np.ndarray]


def sigma(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(p: Arrays, u: np.ndarray, x: Arrays) -> Arrays:
    f = sigma(u @ p["W_fu"].T + x["h"] @ p["W_fh"].T + p["b_f"] + p.get("b_fh", 0))
    i = sigma(u @ p["W_iu"].T + x["h"] @ p["W_ih"].T + p["b_i"] + p.get("b_ih", 0))
    r = sigma(u @ p["W_ou"].T + x["h"] @ p["W_oh"].T + p["b_r"] + p.get("b_rh", 0))
    candidate = np.tanh(u @ p["W_cu"].T + x["h"] @ p["W_ch"].T + p["b_c"] + p.get("b_ch", 0))
    c = f * x["c"] + i * candidate
    return {"h": r * np.tanh(c), "c": c}


def gru(p: Arrays, u: np.ndarray, x: Arrays) -> Arrays:
    z = sigma(u @ p["W_zu"].T + x["h"] @ p["W_zh"].T + p["b_z"] + p.get("b_zh", 0))
    r = sigma(u @ p["W_ru"].T + x["h"] @ p["W_rh"].T + p["b_r"] + p.get("b_rh", 0))
    from_past = x["h"] @ p["W_hh"].T + p.get("b_hh", 0)
    return {"h": z * x["h"] + (1 - z) * np.tanh(u @ p["W_hu"].T + r * from_past + p["b_h"])}


def brc(p: Arrays, u: np.ndarray, x: Arrays) -> Arrays:
    c = sigma(u @ p["W_cu"].T + p["w_c"] * x["h"] + p["b_c"])
    a = 1 + np.tanh(u @ p["W_au"].T + p["w_a"] * x["h"] + p["b_a"])
    return {"h": c * x["h"] + (1 - c) * np.tanh(u @ p["W_hu"].T + a * x["h"] + p["b_h"])}


def nbrc(p: Arrays, u: np.ndarray, x: Arrays) -> Arrays:
    c = sigma(u @ p["W_cu"].T + x["h"] @ p["W_ch"].T + p["b_c"])
    a = 1 + np.tanh(u @ p["W_au"].T + x["h"] @ p["W_ah"].T + p["b_a"])
    return {"h": c * x["h"] + (1 - c) * np.tanh(u @ p["W_hu"].T + a * x["h"] + p["b_h"])}


def mgu(p: Arrays, u: np.ndarray, x: Arrays) -> Arrays:
    f = sigma(u @ p["W_fu"].T + x["h"] @ p["W_fh"].T + p["b_f"])
    candidate = np.tanh(u @ p["W_hu"].T + (f * x["h"]) @ p["W_hh"].T + p["b_h"])
    return {"h": f * candidate + (1 - f) * x["h"]}


@dataclass(frozen=True)
class NumpyCell:
    """A step, the names of its state, and which of the paper's tensors each packed weight holds, in order."""

    step: Callable[[Arrays, np.ndarray, Arrays], Arrays]
    fields: tuple[str, ...]
    packed: dict[str, tuple[str, ...]]

    def unpack(self, weights: Arrays) -> Arrays:
        """The paper's tensors from weights ``(in, gates * out)`` and ``(gates * out,)``."""
        return {
            name: block.T if block.ndim == 2 else block
            for packed, value in weights.items()
            for name, block in zip(self.packed[packed], np.split(value, len(self.packed[packed]), axis=-1), strict=True)
        }

    def run(self, weights: Arrays, u: np.ndarray, state: Arrays) -> Arrays:
        """All states over inputs ``(time, n, in)``: each field ``(time, n, hidden)``."""
        p = self.unpack(weights)
        states = []
        for u_t in u:
            state = self.step(p, u_t, state)
            states.append(state)
        return {name: np.stack([x[name] for x in states]) for name in self.fields}


LSTM = NumpyCell(
    lstm,
    ("h", "c"),
    {
        "input_weight": ("W_fu", "W_iu", "W_ou", "W_cu"),
        "recurrent_weight": ("W_fh", "W_ih", "W_oh", "W_ch"),
        "bias": ("b_f", "b_i", "b_r", "b_c"),
        "recurrent_bias": ("b_fh", "b_ih", "b_rh", "b_ch"),
    },
)

NUMPY_CELLS = {
    "lstm": LSTM,
    "chrono": LSTM,
    "gru": NumpyCell(
        gru,
        ("h",),
        {
            "input_weight": ("W_zu", "W_ru", "W_hu"),
            "recurrent_weight": ("W_zh", "W_rh", "W_hh"),
            "bias": ("b_z", "b_r", "b_h"),
            "recurrent_bias": ("b_zh", "b_rh", "b_hh"),
        },
    ),
    "mgu": NumpyCell(
        mgu,
        ("h",),
        {"input_weight": ("W_fu", "W_hu"), "recurrent_weight": ("W_fh", "W_hh"), "bias": ("b_f", "b_h")},
    ),
    "brc": NumpyCell(
        brc,
        ("h",),
        {
            "input_weight": ("W_cu", "W_au", "W_hu"),
            "recurrent_weight": ("w_c", "w_a"),
            "bias": ("b_c", "b_a", "b_h"),
        },
    ),
    "nbrc": NumpyCell(
        nbrc,
        ("h",),
        {
            "input_weight": ("W_cu", "W_au", "W_hu"),
            "recurrent_weight": ("W_ch", "W_ah"),
            "bias": ("b_c", "b_a", "b_h"),
        },
    ),
}


def complex_step_gradients(function: Callable[[Arrays], Any], arrays: Arrays, step: float = 1e-30) -> Arrays:
    """The gradient of a real-valued analytic ``function`` with respect to each entry of each array."""
    gradients = {name: np.empty_like(value) for name, value in arrays.items()}
    complex_arrays = {name: value.astype(complex) for name, value in arrays.items()}
    for name, value in complex_arrays.items():
        for index in np.ndindex(value.shape):
            value[index] += 1j * step
            gradients[name][index] = function(complex_arrays).imag / step
            value[index] -= 1j * step
    return gradients


def with_random_weights(module: torch.nn.Module, seed: int = 0) -> Any:
    """``module`` with every weight drawn anew: initial biases of 0 or weights of 1 would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.7, generator=generator)
    return module


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    """Standard normal float64 numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def fields(state: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a network's state, which is one tensor or a tuple of them."""
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)


def entry(state: Any, index: int) -> Any:
    """The state of one sequence of a batch, or of one member of an ensemble: the dimension after the layers."""
    own = tuple(field[:, index] for field in fields(state))
    return own[0] if isinstance(state, torch.Tensor) else own
