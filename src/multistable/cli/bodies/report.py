"""What ``multistable report`` does."""

from collections.abc import Sequence
from pathlib import Path

from multistable.cli.conditions import check_conditions
from multistable.cli.experiments import chosen, chosen_scale, results_in, write_report


def run(
    names: Sequence[str],
    scale: str,
    where: Sequence[str],
    cells: Sequence[str],
    precision: str,
    out: Path,
    results: Sequence[Path] | None,
) -> None:
    """Write the report of the results there are."""
    wanted, size = chosen(names), chosen_scale(scale, precision, where, cells)
    check_conditions(wanted, size)
    write_report(wanted, size, out, results_in(results, out, wanted, size))
