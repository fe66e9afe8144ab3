"""What ``reproduce``, ``claims`` and ``report`` share: which experiments are meant, and which results there are."""

import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import typer

from multistable.cells import CELLS
from multistable.cli.conditions import conditions
from multistable.experiments import beyond
from multistable.experiments.catalogue import experiments
from multistable.experiments.experiment import Experiment, Result, Source
from multistable.experiments.scales import SCALES, Scale
from multistable.training.settings import PRECISIONS


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name, in the paper's order; all of the paper's for ``all``."""
    known = experiments()
    unknown = [name for name in names if name not in known and name != "all"]
    if unknown:
        close = get_close_matches(unknown[0], [*known, "all"], n=1, cutoff=0.75)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"an experiment must be one of {', '.join(known)} or all, got {unknown[0]!r}{meant}")
    wanted = known.keys() - beyond.experiments().keys() if "all" in names else ()
    return [experiment for name, experiment in known.items() if name in {*names, *wanted}]


def chosen_scale(name: str, precision: str = "ieee", where: Sequence[str] = (), cells: Sequence[str] = ()) -> Scale:
    """A scale by name, at a precision, with only the runs that ``where`` chooses, and with ``cells`` of one's own."""
    if name not in SCALES:
        raise ValueError(f"--scale must be one of {', '.join(SCALES)}, got {name!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    own = [CELLS.checked("--cell", cell) for cell in cells]
    return SCALES[name].computed_in(precision).only(conditions(where)).also(own)


def results_in(
    files: Sequence[Path] | None, out: Path, wanted: Sequence[Experiment], scale: Scale
) -> dict[str, Result]:
    """The results of experiments at a scale, from ``files`` or else from the run folders in ``out``; at least one."""
    from multistable.experiments.archive import by_name
    from multistable.experiments.report import everything

    precision = scale.changes.get("precision", "ieee")
    if files and precision != "ieee":
        raise ValueError("--precision must not be given with --results, which count in whatever precision they are")
    if not (files or out.is_dir()):
        raise ValueError(f"--out must be a folder with runs, there is no folder {out}")
    source = by_name(files) if files else out
    found = everything(wanted, scale, source)
    if not found:
        others = {name: other.computed_in(precision).only(scale.conditions) for name, other in SCALES.items()}
        there = [name for name, other in others.items() if everything(wanted, other, source)]
        got = f"those of the {'scale' if len(there) == 1 else 'scales'} {', '.join(there)}" if there else "none"
        option = "--results" if files else f"--out {out}"
        trained = "" if precision == "ieee" else f", trained in {precision}"
        raise ValueError(f"{option} must have some of the experiments at the scale {scale.name}{trained}, got {got}")
    return found


def write_report(wanted: Sequence[Experiment], scale: Scale, out: Path, source: Source | None = None) -> None:
    """Draw the pictures and write the page."""
    from multistable.experiments.report import write_report

    page = write_report(wanted, scale, out, shlex.join(["multistable", *sys.argv[1:]]), source)
    typer.echo(f"The report: {page.resolve().as_uri()}")
