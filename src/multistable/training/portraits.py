"""The attractors of networks in the course of their training, each with the number that it has had before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from multistable.dynamics.measure import Attractors, FixedPoints, fixed_points
from multistable.dynamics.measure.course_of_attractors import Change, followed
from multistable.dynamics.measure.labels import Portrait, inherited
from multistable.networks import RNN

WRITTEN, DIGITS = 32, 6
"""The points of so many attractors, and of so many fixed points, are written down, with so many digits."""
STARTS = 128
"""The search for fixed points begins from so many of the states, and from the points that were found before."""

Record = dict[str, Any]
"""What was found after an epoch, as JSON has it."""


@dataclass
class Following:
    """Follows the attractors of one network through its training.

    Attributes:
        records: what was found, in order.
        network: the network as it was when they were last looked for; ``None`` before the first time.
        portrait: the attractors that it had.
        points: the fixed points that it had, where these are looked for, as a portrait of theirs.
        unused: the first number that no attractor has had, and the first that no fixed point has had.
    """

    records: list[Record] = field(default_factory=list)
    network: Any = None
    portrait: Portrait = field(default_factory=lambda: _portrait([], []))
    points: Portrait = field(default_factory=lambda: _portrait([], []))
    unused: tuple[int, int] = (0, 0)

    def add(self, epoch: int, found: Attractors | None, eps: float, *, saddles: bool) -> int | None:
        """Record what a network has after an epoch. Returns how many attractors these are.

        Args:
            epoch: the number of the epoch.
            found: the attractors while the input is zero; ``None`` where states do not stay finite.
            eps: states no more than this apart are the same.
            saddles: whether to look for all fixed points.
        """
        if found is None:
            gone = [_change(Change(epoch, i, False, None)) for i in self.portrait.ids]
            self.records.append({"epoch": epoch, "moving": None, "attractors": [], "changes": gone})
            self.network, self.portrait, self.points = None, _portrait([], []), _portrait([], [])
            return None
        unused, after = self.unused[0], found.portraits[0]
        if self.network is not None:
            pair = self.network, found._network
            after, changes, unused = followed(pair, self.portrait, after, epoch, unused, eps)
        else:
            after, unused = inherited(self.portrait, after, torch.zeros(0, dtype=torch.long, device="cpu"), unused)
            changes = [Change(epoch, i, True, None) for i in after.ids] if self.records else []
        record = _record(epoch, found.moving, after, changes)
        self.portrait, self.unused = after, (unused, self.unused[1])
        if saddles:
            record["fixed_points"] = self._fixed_points(found, eps)
        self.network = found._network
        self.records.append(record)
        return len(after)

    def _fixed_points(self, found: Attractors, eps: float) -> list[Record]:
        """The fixed points, with the numbers of those from which the search leads to them."""
        before, starts = self.points, found.starts[:STARTS].double()
        known = [before.points.double()] if len(before) else []
        there: FixedPoints = fixed_points(found._network, "zero", torch.cat([*known, starts]), eps=eps)
        after = _portrait(range(len(there)), [point.unsqueeze(0) for point in there.points])
        self.points, unused = inherited(before, after, there.labels[: len(before)], self.unused[1])
        self.unused = self.unused[0], unused
        largest = there.eigenvalues.abs().amax(dim=-1).tolist() if len(there) else []
        return [
            {"id": i, "unstable": unstable, "largest_eigenvalue": _short(value), "point": _written(point[0])}
            for i, unstable, value, point in zip(
                self.points.ids[:WRITTEN], there.unstable.tolist(), largest, self.points.orbits, strict=False
            )
        ]

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must have of it, beside :meth:`notes`."""
        if self.network is None:
            return {}
        known = {"attractors": self.portrait, "fixed_points": self.points}
        orbits = {f"orbits.{name}": torch.cat(there.orbits) for name, there in known.items() if len(there)}
        return orbits | {f"network.{name}": weight.detach() for name, weight in self.network.named_parameters()}

    def notes(self) -> dict[str, Any]:
        """What a checkpoint must have of it, as JSON has it."""
        sizes = {
            name: [there.ids, [len(orbit) for orbit in there.orbits]]
            for name, there in (("attractors", self.portrait), ("fixed_points", self.points))
        }
        return {"records": self.records, "unused": self.unused, **sizes}

    @classmethod
    def of(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor], like: RNN) -> "Following":
        """It as it was when the notes and the tensors of a checkpoint were made.

        Args:
            notes: of the checkpoint; empty if nothing was followed yet.
            tensors: of the checkpoint.
            like: a network of the same form, which is taken.
        """
        records, unused = list(notes.get("records", ())), tuple(notes.get("unused", (0, 0)))
        if not tensors:
            return cls(records=records, unused=unused)

        def there(name: str) -> Portrait:
            ids, sizes = notes[name]
            orbits = tensors[f"orbits.{name}"].split(sizes) if ids else []
            return _portrait(ids, orbits, like.input_size)

        with torch.no_grad():
            for name, weight in like.named_parameters():
                weight.copy_(tensors[f"network.{name}"])
        return cls(records, like, there("attractors"), there("fixed_points"), unused)


def course_of(records: Sequence[Record]) -> tuple[list[Portrait], Tensor]:
    """What was recorded, as pictures show it.

    Returns:
        The attractors of each record whose points are written down, and the share of the states that end at each of all
        k attractors, ``(records, k)``.
    """
    portraits = []
    k = 1 + max((one["id"] for record in records for one in record["attractors"]), default=-1)
    shares = torch.zeros(len(records), k, dtype=torch.float64, device="cpu")
    for row, record in zip(shares, records, strict=True):
        for one in record["attractors"]:
            row[one["id"]] = one["fraction"]
        drawn = [one for one in record["attractors"] if "points" in one]
        points = [torch.tensor(one["points"], dtype=torch.float64, device="cpu") for one in drawn]
        portraits.append(_portrait([one["id"] for one in drawn], points))
    return portraits, shares


def _record(epoch: int, moving: float, found: Portrait, changes: Sequence[Change]) -> Record:
    each = zip(found.ids, found.fractions.tolist(), found.orbits, strict=True)
    listed: list[Record] = [
        {"id": i, "fraction": _short(fraction), "period": len(orbit), "points": _written(orbit)}
        for i, fraction, orbit in each
    ]
    for one in sorted(listed, key=lambda one: -one["fraction"])[WRITTEN:]:
        del one["points"]
    return {"epoch": epoch, "moving": _short(moving), "attractors": listed, "changes": list(map(_change, changes))}


def _change(change: Change) -> Record:
    return {"id": change.id, "appears": change.appears, "other": change.other}


def _portrait(ids: Sequence[int], orbits: Sequence[Tensor], features: int = 0) -> Portrait:
    """Attractors without the states that end there, while the input is zero."""
    labels, speeds = torch.zeros(0, dtype=torch.long, device="cpu"), torch.zeros(0, device="cpu")
    return Portrait(torch.zeros(features, device="cpu"), list(ids), list(orbits), labels, speeds)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _written(points: Tensor) -> Any:
    """Points as lists of numbers."""
    if points.dim() > 1:
        return [_written(point) for point in points]
    return list(map(_short, points.tolist()))
