"""The paper's claims, one by one: a verdict for each, computed from stored results.

To add a claim, add an entry to ``CLAIMS`` in a file of this folder. A new file needs no registration.
"""

import importlib
import pkgutil

from multistable.experiments.claims.base import FAILS, HOLDS, OPEN, UNDECIDED, Answer, Check, Claim, Finding


def _declared() -> list[Claim]:
    """The claims of all files in this folder."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [claim for module in modules for claim in getattr(module, "CLAIMS", ())]


CLAIMS: dict[str, Claim] = {
    claim.name: claim for claim in sorted(_declared(), key=lambda claim: (claim.name[0], int(claim.name[1:])))
}
"""By name: the paper's claims from C1 on, then the questions that the paper leaves open from Q1 on."""

__all__ = ["CLAIMS", "FAILS", "HOLDS", "OPEN", "UNDECIDED", "Answer", "Check", "Claim", "Finding"]
