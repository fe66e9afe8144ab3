"""The report: every figure and table in the paper's order, and a verdict on every claim, on one page."""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multistable.experiments.claims import CLAIMS, Claim, Finding
from multistable.experiments.experiment import Experiment, Result, Source, finished, results_of
from multistable.experiments.figures import png, svg
from multistable.experiments.page import write_page
from multistable.experiments.pictures import setting
from multistable.experiments.scales import Scale
from multistable.training.store import write_atomically

PAGE = "report.html"
PICTURES = "pictures"


@dataclass(frozen=True)
class Shown:
    """A picture of an experiment, as a page has it; ``inches`` is the width that it was drawn for."""

    svg: str
    inches: float
    caption: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Section:
    """An experiment, as a page has it.

    Attributes:
        experiment: which.
        runs: how many runs it has at this scale.
        settings: of the tasks of these: its title has the paper's.
        results: those that are finished.
        commands: by which its runs are made, in each precision that there are results of.
        shown: its pictures; none without results.
        seconds: how long its runs took, those trained together counted once.
        findings: on the claims it bears on.
    """

    experiment: Experiment
    runs: int
    settings: list[str]
    results: list[Result]
    commands: list[str]
    shown: list[Shown]
    seconds: float
    findings: list[Finding]


def everything(experiments: Iterable[Experiment], scale: Scale, source: Source) -> dict[str, Result]:
    """The results there are of some experiments, by the names of the runs."""
    return results_of((config for experiment in experiments for config in experiment.at(scale, source)), source)


def verdicts(experiments: Sequence[Experiment], scale: Scale, source: Source) -> dict[str, Finding]:
    """The verdict on each claim, from the runs on its tasks of the experiments that bear on it.

    The same tasks are also run with other hyperparameters; such runs say nothing about the other claims.
    """
    return {name: claim.finding(_evidence(claim, experiments, scale, source)) for name, claim in CLAIMS.items()}


def _evidence(claim: Claim, experiments: Sequence[Experiment], scale: Scale, source: Source) -> list[Result]:
    bearing = [experiment for experiment in experiments if claim.name in experiment.claims]
    tasks = set(map(scale.tasks, claim.tasks))
    return [result for result in everything(bearing, scale, source).values() if result.config.task in tasks]


def write_report(
    experiments: Sequence[Experiment], scale: Scale, out: Path | str, command: str, source: Source | None = None
) -> Path:
    """Draw what there are results of, and write the page.

    Args:
        experiments: in the paper's order.
        scale: of the runs.
        out: where the page and the pictures go.
        command: by which the page was made.
        source: where the results are; in ``out`` when not given.

    Returns:
        The page.
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
        command=command,
        seconds=wall_time(results.values()),
        records=sorted({_versions(result) for result in results.values()}),
        runs=len(results),
        planned=len({config.name for experiment in experiments for config in experiment.at(scale, results)}),
    )


def wall_time(results: Iterable[Result]) -> float:
    """Seconds that runs took, those that were trained together counted once."""
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
    shown = []
    pictures = out / PICTURES
    for picture in experiment.pictures if mine else ():
        drawn = picture.draw(mine)
        name = f"{experiment.name}-{picture.name}".replace("_", "-")
        pictures.mkdir(parents=True, exist_ok=True)
        png(drawn, pictures / f"{name}.png")
        inline = svg(drawn, name, picture.caption)
        write_atomically(pictures / f"{name}.svg", inline.replace("currentColor", "#000").encode())
        shown.append(Shown(inline, drawn.get_figwidth(), picture.caption, *picture.table(mine)))
    claims = [found[name] for name in experiment.claims if name in found]
    settings = list(filter(None, dict.fromkeys(setting(config.task) for config in configs)))
    commands = _commands(experiment, scale, mine)
    return Section(experiment, len(configs), settings, mine, commands, shown, wall_time(mine), claims)


def _commands(experiment: Experiment, scale: Scale, results: Sequence[Result]) -> list[str]:
    base = ["multistable", "reproduce", experiment.name, "--scale", scale.name]
    base += [part for condition in scale.where for part in ("--where", condition)]
    precisions = sorted({result.config.precision for result in results} or {"ieee"})
    options = [[] if precision == "ieee" else ["--precision", precision] for precision in precisions]
    return [shlex.join([*base, *option]) for option in options]


def _versions(result: Result) -> str:
    record, precision = result.record, result.config.precision
    trained = "" if precision == "ieee" else f", trained in {precision}"
    return f"multistable {record['multistable']}, PyTorch {record['torch']}, {record['device']}{trained}"
