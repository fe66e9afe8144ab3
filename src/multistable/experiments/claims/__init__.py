"""The paper's claims, one by one: a verdict for each, computed from stored results."""

from multistable.experiments.claims import auxiliary, hyperparameters, learning, reinforcement, warming
from multistable.experiments.claims.base import FAILS, HOLDS, OPEN, Check, Claim, Finding

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in sorted(
        (*learning.CLAIMS, *reinforcement.CLAIMS, *warming.CLAIMS, *hyperparameters.CLAIMS, *auxiliary.CLAIMS),
        key=lambda claim: int(claim.name.lstrip("CQ")),
    )
}

__all__ = ["CLAIMS", "FAILS", "HOLDS", "OPEN", "Check", "Claim", "Finding"]
