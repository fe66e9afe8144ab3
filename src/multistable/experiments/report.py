"""The report: every figure and table in the paper's order, and a verdict on every claim, on one page."""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multistable.experiments.claims import CLAIMS, Claim, Finding
from multistable.experiments.claims.base import without_links
from multistable.experiments.experiment import Experiment, Picture, Result, Source, finished, results_of
from multistable.experiments.figures import png, svg
from multistable.experiments.page import write_page
from multistable.experiments.paper.contents import Place, names, places
from multistable.experiments.pictures import IN_PAPER, setting
from multistable.experiments.scales import Scale
from multistable.files import write_atomically

PAGE = "report.html"
PICTURES = "pictures"


@dataclass(frozen=True)
class Shown:
    """A picture of an experiment and its table, as a page shows them.

    Attributes:
        svg: the picture; empty where there is no result to draw.
        inches: the width that it was drawn for.
        caption: what the picture shows.
        header: of the table.
        rows: of the table.
        printed: whether the table has numbers of the paper's.
    """

    svg: str
    inches: float
    caption: str
    header: list[str]
    rows: list[list[str]]
    printed: bool


@dataclass(frozen=True)
class Section:
    """An experiment, as a page shows it.

    Attributes:
        experiment: the experiment itself.
        places: the figures and tables of the paper that it makes again.
        runs: how many runs it has at this scale.
        settings: of the tasks of these runs; the title of the experiment has the paper's.
        results: of the finished runs.
        commands: the commands that make its runs, one for each precision with results.
        shown: its pictures; without results only the tables that have numbers of the paper's.
        seconds: how long its runs took; runs that were trained together count once.
        findings: on the claims that it bears on.
    """

    experiment: Experiment
    places: list[Place]
    runs: int
    settings: list[str]
    results: list[Result]
    commands: list[str]
    shown: list[Shown]
    seconds: float
    findings: list[Finding]


def everything(experiments: Iterable[Experiment], scale: Scale, source: Source) -> dict[str, Result]:
    """The results of all finished runs of some experiments, by the names of the runs."""
    return results_of((config for experiment in experiments for config in experiment.at(scale, source)), source)


def verdicts(experiments: Sequence[Experiment], scale: Scale, source: Source) -> dict[str, Finding]:
    """The verdict on each claim, from the experiments that bear on it and their runs on its tasks.

    Other experiments have the same tasks with other hyperparameters: their runs say nothing about the claim. Nor do
    runs with cells of the user's own.
    """
    scale = scale.also(())
    results = everything(experiments, scale, source)
    return {name: claim.finding(_evidence(claim, experiments, scale, results)) for name, claim in CLAIMS.items()}


def _evidence(
    claim: Claim, experiments: Sequence[Experiment], scale: Scale, results: Mapping[str, Result]
) -> list[Result]:
    bearing = [experiment for experiment in experiments if claim.name in experiment.claims]
    tasks = set(map(scale.tasks, claim.tasks))
    return [result for result in everything(bearing, scale, results).values() if result.config.task in tasks]


def write_report(
    experiments: Sequence[Experiment], scale: Scale, out: Path | str, command: str, source: Source | None = None
) -> Path:
    """Draw the results so far, and write the page.

    Args:
        experiments: in the paper's order.
        scale: of the runs.
        out: where the page and the pictures go.
        command: the command that made the page.
        source: where the results are; by default in ``out``.

    Returns:
        The path of the page.
    """
    out = Path(out)
    results = everything(experiments, scale, out if source is None else source)
    found = verdicts(experiments, scale, results)
    sections = [_section(experiment, scale, results, found, out) for experiment in experiments]
    return write_page(
        out / PAGE,
        "report.html.j2",
        scale=scale,
        sections=sections,
        findings=list(found.values()),
        names=names,
        plain=without_links,
        command=command,
        seconds=wall_time(results.values()),
        records=sorted({_versions(result) for result in results.values()}),
        runs=len(results),
        planned=len({config.name for experiment in experiments for config in experiment.at(scale, results)}),
    )


def wall_time(results: Iterable[Result]) -> float:
    """Seconds that runs took; runs that were trained together count once."""
    launches = {(result.config.goes_with().name, result.record["seconds"]) for result in results}
    return math.fsum(seconds for _, seconds in launches)


def _section(
    experiment: Experiment,
    scale: Scale,
    results: Mapping[str, Result],
    found: Mapping[str, Finding],
    out: Path,
) -> Section:
    configs = experiment.at(scale, results)
    mine = finished(configs, results)
    return Section(
        experiment,
        places=places(experiment.labels),
        runs=len(configs),
        settings=list(filter(None, dict.fromkeys(setting(config.task) for config in configs))),
        results=mine,
        commands=_commands(experiment, scale, mine),
        shown=list(
            filter(None, (_shown(experiment, picture, mine, out / PICTURES) for picture in experiment.pictures))
        ),
        seconds=wall_time(mine),
        findings=[found[name] for name in experiment.claims if name in found],
    )


def _shown(experiment: Experiment, picture: Picture, results: Sequence[Result], folder: Path) -> Shown | None:
    """Draw a picture into a folder and show it with its table; ``None`` if there is nothing to show."""
    header, rows = picture.table(results)
    printed = IN_PAPER in " ".join(header)
    if not results:
        return Shown("", 0.0, picture.caption, header, rows, printed) if rows else None
    drawn = picture.draw(results)
    name = f"{experiment.name}-{picture.name}".replace("_", "-")
    folder.mkdir(parents=True, exist_ok=True)
    png(drawn, folder / f"{name}.png")
    inline = svg(drawn, name, picture.caption)
    write_atomically(folder / f"{name}.svg", inline.replace("currentColor", "#000").encode())
    return Shown(inline, drawn.get_figwidth(), picture.caption, header, rows, printed)


def _commands(experiment: Experiment, scale: Scale, results: Sequence[Result]) -> list[str]:
    base = ["multistable", "reproduce", experiment.name, "--scale", scale.name]
    base += [part for condition in scale.where for part in ("--where", condition)]
    base += [part for cell in scale.cells for part in ("--cell", cell)]
    precisions = sorted({result.config.precision for result in results} or {"ieee"})
    options = [[] if precision == "ieee" else ["--precision", precision] for precision in precisions]
    return [shlex.join([*base, *option]) for option in options]


def _versions(result: Result) -> str:
    record, precision = result.record, result.config.precision
    trained = "" if precision == "ieee" else f", trained in {precision}"
    return f"multistable {record['multistable']}, PyTorch {record['torch']}, {record['device']}{trained}"
