"""The paper's claims, one by one: a verdict for each, computed from stored results."""

from multistable.experiments.claims import auxiliary, hyperparameters, learning, questions, reinforcement, warming
from multistable.experiments.claims.base import FAILS, HOLDS, OPEN, Check, Claim, Finding

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in sorted(
        (
            *(*learning.CLAIMS, *reinforcement.CLAIMS, *warming.CLAIMS, *hyperparameters.CLAIMS, *auxiliary.CLAIMS),
            *questions.CLAIMS,
        ),
        key=lambda claim: (claim.name[0], int(claim.name[1:])),
    )
}
"""By name: the paper's claims, C1 and on, then the questions that it leaves open, Q1 and on."""

__all__ = ["CLAIMS", "FAILS", "HOLDS", "OPEN", "Check", "Claim", "Finding"]
