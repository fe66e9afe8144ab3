"""What is measured of the networks of runs while they train, for their training sequences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multistable.dynamics.measure import Attractors, DivergedError, attractors, lyapunov, measure, robustness
from multistable.dynamics.measure.fixed_points_and_cycles import shares_of_kinds
from multistable.dynamics.system.sequences import SequenceSet
from multistable.networks import Ensemble
from multistable.training.seeds import generator

LONGEST_LIFETIME = 1e7
"""The number of steps that stands for longer lifetimes, and for differences that do not shrink at all."""

NOISE = 0.1
"""The standard deviation of the noise after which states are to be told."""


@dataclass(frozen=True)
class Measured:
    """The measures of R runs at one epoch; those of VAA, of kinds and of memory see the same states.

    Each takes the numbers of some runs and the ensemble of their networks, and gives a value for each; ``None`` where
    states do not stay finite.

    Attributes:
        seeds: of the runs.
        sequences: of the runs.
        options: those of ``ms.measure``.
        epoch: the epochs that are over.
    """

    seeds: Sequence[int]
    sequences: SequenceSet
    options: Mapping[str, Any]
    epoch: int

    def vaa(self, members: list[int], ensemble: Ensemble) -> list[float | None]:
        """VAA."""
        return self._each(lambda *of: measure(*of[:2], progress=False, **of[2]).vaa, members, ensemble)

    def kinds(self, members: list[int], ensemble: Ensemble) -> list[tuple[float, float] | None]:
        """The shares of states at fixed points and on cycles."""
        return self._each(lambda *of: list(zip(*shares_of_kinds(*of[:2], **of[2]), strict=True)), members, ensemble)

    def attractors(self, members: list[int], ensemble: Ensemble) -> list[Attractors | None]:
        """The attractors under an input of zero; those of every epoch are of the same states."""

        def found(networks: Ensemble, sequences: SequenceSet, options: Any) -> list[Attractors]:
            return list(attractors(networks, sequences, inputs="zero", **options).members)

        return self._each(found, members, ensemble, "attractors")

    def memory(self, members: list[int], ensemble: Ensemble) -> list[tuple[float, float] | None]:
        """The lifetime of a small difference in steps, and the share of states that can be told after noise."""

        def found(networks: Ensemble, sequences: SequenceSet, options: Any) -> list[tuple[float, float]]:
            same = [draws.clone_state() for draws in options["generator"]]
            recalled = robustness(networks, sequences, noise=NOISE, **options).told
            without = {name: value for name, value in options.items() if name != "eps"}
            lasting = lyapunov(networks, sequences, **without | {"generator": same}).lifetime
            return [(min(steps, LONGEST_LIFETIME), share) for steps, share in zip(lasting, recalled, strict=True)]

        return self._each(found, members, ensemble)

    def _each(
        self,
        of: Callable[[Ensemble, SequenceSet, dict[str, Any]], list[Any]],
        members: list[int],
        ensemble: Ensemble,
        *purpose: str,
    ) -> list[Any]:
        """The values of ``of``, of all runs at once, or of each by itself where states of some are not finite."""
        named = purpose or ("vaa", self.epoch)
        draws = [generator(self.seeds[index], *named) for index in members]
        try:
            return of(ensemble, self.sequences.of_members(members), {**self.options, "generator": draws})
        except DivergedError:
            if len(members) == 1:
                return [None]
            alone = ((member, ensemble.select([place])) for place, member in enumerate(members))
            return [self._each(of, [member], network, *purpose)[0] for member, network in alone]
