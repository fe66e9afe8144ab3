"""The paper's claims, one by one: a verdict for each, computed from stored results.

A new claim is an entry in ``CLAIMS`` of a file here; the files are found by themselves.
"""

import importlib
import pkgutil

from multistable.experiments.claims.base import FAILS, HOLDS, OPEN, Check, Claim, Finding


def _declared() -> list[Claim]:
    """The claims of every file here."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [claim for module in modules for claim in getattr(module, "CLAIMS", ())]


CLAIMS: dict[str, Claim] = {
    claim.name: claim for claim in sorted(_declared(), key=lambda claim: (claim.name[0], int(claim.name[1:])))
}
"""By name: the paper's claims, C1 and on, then the questions that it leaves open, Q1 and on."""

__all__ = ["CLAIMS", "FAILS", "HOLDS", "OPEN", "Check", "Claim", "Finding"]
