"""What ``multistable claims`` does."""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from multistable.cli.console import console, table
from multistable.cli.experiments import chosen, chosen_scale, results_in
from multistable.experiments.claims import FAILS, HOLDS, Finding
from multistable.experiments.claims.base import without_links
from multistable.experiments.report import verdicts
from multistable.experiments.scales import Scale

STYLES = {HOLDS: "green", FAILS: "red"}


def run(scale: str, precision: str, out: Path, results: Sequence[Path] | None, details: bool) -> None:
    """Judge the claims by the results there are, and show the verdicts."""
    size, known = chosen_scale(scale, precision), chosen(["all"])
    found = results_in(results, out, known, size)
    judged, seeds = verdicts(known, size, found), len({result.config.seed for result in found.values()})
    show_claims(list(judged.values()), size, f"{len(found)} runs, {seeds} seeds", details)


def show_claims(found: Sequence[Finding], scale: Scale, runs: str, details: bool) -> None:
    """Show a table of the verdicts, with ``details`` also the comparisons behind each."""
    title = f"Claims, scale {scale.name} ({scale.about}): {runs}"
    listing = table("claim", "", "verdict", "comparisons", title=title)
    for finding in found:
        verdict = Text(finding.verdict_at(scale), style=STYLES.get(finding.verdict, ""))
        listing.add_row(finding.claim.name, finding.claim.statement, verdict, "\n".join(finding.tally))
    console().print(listing)
    for finding in found:
        if reason := finding.reason_at(scale):
            console().print(f"{finding.claim.name}, {finding.verdict}, why: {without_links(reason)}", markup=False)
    for finding in found if details else ():
        if finding.checks:
            console().print(f"{finding.claim.name}: {finding.claim.statement}")
        for check in finding.checks:
            for indent, one in (("  ", check), *(("    ", case) for case in check.cases)):
                console().print(f"{indent}{one.answer}: {one.said}")
