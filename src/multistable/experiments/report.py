"""The report: every figure and table in the paper's order, and a verdict on every claim, on one page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multistable.experiments.claims import CLAIMS, Finding
from multistable.experiments.experiment import Experiment, Result, finished
from multistable.experiments.figures import png, svg
from multistable.experiments.page import write_page
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
        results: those that are finished.
        shown: its pictures; none without results.
        seconds: how long its runs took, those trained together counted once.
        findings: on the claims it bears on.
    """

    experiment: Experiment
    runs: int
    results: list[Result]
    shown: list[Shown]
    seconds: float
    findings: list[Finding]


def findings(results: Sequence[Result]) -> dict[str, Finding]:
    """The verdict on each claim, from all the results that are given."""
    return {name: claim.finding(results) for name, claim in CLAIMS.items()}


def everything(experiments: Iterable[Experiment], scale: Scale, out: Path | str) -> list[Result]:
    """The results there are of some experiments, each run once."""
    configs = {config.name: config for experiment in experiments for config in experiment.at(scale, out)}
    return finished(configs.values(), out)


def verdicts(experiments: Sequence[Experiment], scale: Scale, out: Path | str) -> dict[str, Finding]:
    """The verdict on each claim, from the runs of the experiments that bear on it.

    The same tasks are also run with other hyperparameters; such runs say nothing about the other claims.
    """
    return {
        name: claim.finding(everything([made for made in experiments if name in made.claims], scale, out))
        for name, claim in CLAIMS.items()
    }


def write_report(experiments: Sequence[Experiment], scale: Scale, out: Path | str, command: str) -> Path:
    """Draw what there are results of, and write the page.

    Args:
        experiments: in the paper's order.
        scale: of the runs.
        out: the folder of the runs; the page and the pictures go there too.
        command: by which the runs were made.

    Returns:
        The page.
    """
    out = Path(out)
    results = {result.config.name: result for result in everything(experiments, scale, out)}
    found = verdicts(experiments, scale, out)
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
        planned=len({config.name for experiment in experiments for config in experiment.at(scale, out)}),
    )


def wall_time(results: Iterable[Result]) -> float:
    """Seconds that runs took, those that were trained together counted once."""
    together: dict[str, dict[float, int]] = {}
    for result in results:
        taken = together.setdefault(result.config.goes_with().name, {})
        taken[result.record["seconds"]] = result.record["together"]
    return sum(seconds for taken in together.values() for seconds in taken)


def _section(
    experiment: Experiment,
    scale: Scale,
    results: Mapping[str, Result],
    found: Mapping[str, Finding],
    out: Path,
) -> Section:
    configs = experiment.at(scale, out)
    mine = [results[config.name] for config in configs if config.name in results]
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
    return Section(experiment, len(configs), mine, shown, wall_time(mine), claims)


def _versions(result: Result) -> str:
    record = result.record
    return f"multistable {record['multistable']}, PyTorch {record['torch']}, {record['device']}"
