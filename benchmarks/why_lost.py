"""What training changed where networks of benchmarks/ways_to_keep.py lost their attractors.

For each network the look at which VAA was first below 0.5, or if there is none the look after ``--step`` steps: how far
training has moved the recurrent matrix by then, and the largest Lyapunov exponent of the network with parts of what
training changed taken back; of those that lost their attractors VAA, too. Taken back are whole parameters, the columns
of one gate (f, i, r, c) of all parameters, or a part of the change of the recurrent matrix: its first singular
components, or all but these.

Run: python benchmarks/why_lost.py kept.json [--way plain] [--step 100], after benchmarks/ways_to_keep.py
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import multistable as ms
from multistable.tasks import CopyFirstInput
from ways_to_keep import EXPONENT, HIDDEN, MEASURE, SEQUENCES, generator

Weights = dict[str, Tensor]
"""``input_weight (1, 4 H)``, ``recurrent_weight (H, 4 H)``, ``bias`` and ``recurrent_bias (4 H)`` of a network."""
RECURRENT = "recurrent_weight"


def without(*names: str) -> Callable[[Weights, Weights], Weights]:
    """Parameters are put back."""
    return lambda before, after: after | {name: before[name] for name in names}


def without_gate(place: int) -> Callable[[Weights, Weights], Weights]:
    """The columns of a gate are put back."""

    def changed(before: Weights, after: Weights) -> Weights:
        back = {name: value.clone() for name, value in after.items()}
        for name, value in back.items():
            value.chunk(4, dim=-1)[place].copy_(before[name].chunk(4, dim=-1)[place])
        return back

    return changed


def without_components(first: int, last: int | None = None) -> Callable[[Weights, Weights], Weights]:
    """Singular components of what was added to the recurrent matrix are taken out."""

    def changed(before: Weights, after: Weights) -> Weights:
        u, s, v = torch.linalg.svd(after[RECURRENT] - before[RECURRENT], full_matrices=False)
        part = slice(first, last)
        return after | {RECURRENT: after[RECURRENT] - u[:, part] * s[part] @ v[part]}

    return changed


TAKEN_BACK: dict[str, Callable[[Weights, Weights], Weights]] = {
    "nothing": without(),
    "W_h": without(RECURRENT),
    "biases": without("bias", "recurrent_bias"),
    "W_in": without("input_weight"),
    "but W_h": without("bias", "recurrent_bias", "input_weight"),
    **{f"gate {name}": without_gate(place) for place, name in enumerate("firc")},
    "1st": without_components(0, 1),
    "1-4": without_components(0, 4),
    "but 1st": without_components(1),
    "but 1-4": without_components(4),
}


def of_member(stored: dict[str, Tensor], member: int) -> Weights:
    """The weights of one network of an ensemble."""
    return {name.rpartition(".")[2]: value[member] for name, value in stored.items()}


def network(weights: Weights) -> ms.RNN:
    """An LSTM with these weights."""
    rnn = ms.RNN("lstm", 1, HIDDEN, recurrent_bias=True)
    rnn.load_state_dict({f"layers.0.cell.{name}": value for name, value in weights.items()})
    return rnn


def sizes(before: Weights, after: Weights) -> str:
    """Norms of the recurrent matrix and of what training has added to it."""
    old, new = before[RECURRENT], after[RECURRENT] - before[RECURRENT]
    of_old, of_new = torch.linalg.svdvals(old), torch.linalg.svdvals(new)
    in_first = float(of_new[0] ** 2 / of_new.square().sum())
    return f"{old.norm():7.1f}{of_old[0]:7.1f}{new.norm():8.2f}{of_new[0]:8.2f}{in_first:8.0%}"


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stored", type=Path)
    parser.add_argument("--way", default="plain")
    parser.add_argument("--T", type=int, default=300)
    parser.add_argument("--step", type=int, default=100)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(asked.stored.read_text())[asked.way]
    looks = torch.load(asked.stored.with_suffix(f".{asked.way}.pt"))
    inputs = CopyFirstInput(asked.T).training(SEQUENCES, generator=generator(1)).inputs
    print(" " * 67 + "".join(f"{name:>9}" for name in TAKEN_BACK))
    print("seed step exponent  |W_h|   s_1 |added|     s_1  in 1st")
    for member, course in enumerate(zip(*found["vaa"], strict=True)):
        lost = [look for look, value in enumerate(course) if value < 0.5]
        look = lost[0] if lost else found["step"].index(asked.step)
        before, after = of_member(looks[0], member), of_member(looks[look], member)
        variants = ms.Ensemble([network(change(before, after)) for change in TAKEN_BACK.values()])
        draws: list[list[torch.Generator]] = [[generator(9) for _ in TAKEN_BACK] for _ in range(2)]
        exponents = ms.lyapunov(variants, inputs, generator=draws[0], **EXPONENT).exponent
        start = f"{member:4}{found['step'][look]:5}{found['exponent'][0][member]:9.4f}{sizes(before, after)}"
        print(f"{start} exponent" + "".join(f"{value:9.4f}" for value in exponents), flush=True)
        if lost:
            vaa = ms.measure(variants, inputs, generator=draws[1], **MEASURE).vaa
            print(f"{'VAA':>62}     " + "".join(f"{value:9.2f}" for value in vaa), flush=True)


if __name__ == "__main__":
    main()
