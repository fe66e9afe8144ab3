"""The page ``docs/claims.md``: what the stored results say of every claim of the paper.

    python docs/figures/claims.py

Verdicts and numbers are computed. The sentences on what was found are in ``found.py``, each written for one verdict:
where new results change a verdict, the script says which sentence has to be written anew, and writes nothing.
"""

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from found import ABOUT, HOW, INTRODUCTION, READINGS, TOLD
from results import PAGES, RESULTS, learned, of_page, reading, verdicts

from multistable.experiments.archive import by_name
from multistable.experiments.claims import CLAIMS, OPEN, Answer, Check, Finding
from multistable.experiments.claims.reinforcement import learning
from multistable.experiments.experiment import Result, Spread, rank_correlation
from multistable.experiments.paper import experiments
from multistable.experiments.paper.contents import names
from multistable.experiments.report import everything
from multistable.experiments.report import verdicts as findings
from multistable.experiments.scales import PAPER, SMALL, Scale

PAGE = Path(__file__).parents[1] / "claims.md"
KNOWN = list(experiments().values())


class Judged(NamedTuple):
    """The verdicts at a scale, and the files whose runs they come from."""

    scale: Scale
    findings: dict[str, Finding]
    runs: int
    files: list[str]

    @property
    def command(self) -> str:
        """The command that gives the same verdicts."""
        options = [f"--results $R/{name}.json" for name in self.files]
        lines = [" ".join(options[at : at + 2]) for at in range(0, len(options), 2)]
        return " \\\n    ".join([f"multistable claims --scale {self.scale.name} --details", *lines])


def stored() -> dict[str, dict[str, Result]]:
    """The stored results of each page, by the names of the runs."""
    files = {name: RESULTS / f"{name}.json" for name in sorted(PAGES)}
    return {name: by_name([file]) for name, file in files.items() if file.exists()}


def judge(scale: Scale, results_of: dict[str, dict[str, Result]]) -> Judged:
    """Judge the claims by all stored results at a scale.

    A run that two files have counts as in the last: that of the page about its task, not about auxiliary losses.
    """
    every = {run: result for results in results_of.values() for run, result in results.items()}
    found = everything(KNOWN, scale, every)
    files = [name for name, results in results_of.items() if found.keys() & results]
    return Judged(scale, findings(KNOWN, scale, found), len(found), files)


def overview(paper: Judged, small: Judged) -> list[str]:
    """How many claims have which verdict, and a table of all."""
    counts = Counter(finding.verdict for name, finding in paper.findings.items() if name.startswith("C"))
    told = ", ".join(f"{counts[verdict]} {words}" for verdict, words in TOLD.items() if counts[verdict])
    rows = [
        f"| [{name}](#{name.lower()}) | {escaped(claim.statement)} | **{paper.findings[name].verdict}** | "
        f"{small.findings[name].verdict} |"
        for name, claim in CLAIMS.items()
    ]
    return [
        f"**Of the paper's 24 claims at its own scale: {told}.**",
        "",
        "| | claim (C), or answer to a question (Q) | at the paper's scale | at the scale small |",
        "|---|---|---|---|",
        *rows,
    ]


def section(name: str, paper: Judged, small: Judged) -> list[str]:
    """What was found on a claim, at the larger scale that has runs for it."""
    claim, about = CLAIMS[name], ABOUT[name]
    used = small if paper.findings[name].verdict == OPEN and small.findings[name].verdict != OPEN else paper
    # A claim with some runs at the paper's scale, but too few for a verdict, is told by these.
    used = paper if any(count.made for count in paper.findings[name].counts) else used
    finding = used.findings[name]
    if finding.verdict != about.verdict:
        raise SystemExit(
            f"{name}: the sentence in found.py is written for '{about.verdict}', the results say '{finding.verdict}'. "
            f"Write it anew: {about.found}"
        )
    lines = [f"## {name}", "", f"*{escaped(claim.statement)}* ({names(claim.labels)})", ""]
    lines += [f"**{finding.verdict_at(used.scale).capitalize()}: {'; '.join(finding.tally)}.** {about.found}", ""]
    lines += [f"![{shown}](results/{picture}.png)" for shown, picture in about.pictures]
    lines += [""] if about.pictures else []
    lines += numbers(finding.checks)
    if reason := finding.reason_at(used.scale):
        lines += [f"**Why**: {reason}", ""]
    if claim.authors:
        lines += [f"**The authors' code**: {claim.authors}", ""]
    lines += FURTHER[name](used) if name in FURTHER else []
    if about.records:
        lines += [f"More: {', '.join(f'[{words}](results/{page}.md)' for words, page in about.records)}.", ""]
    return lines


def numbers(checks: Sequence[Check]) -> list[str]:
    """The comparisons: few that are not as claimed in full view, all others behind a click."""
    single = [one for check in checks for one in (check.cases or (check,))]
    lines = []
    for answer, what in SHOWN.items():
        told = [one.said for one in single if one.answer == answer]
        if answer == Answer.NO and len(told) <= FEW:
            lines += [*(f"- **no**: {escaped(one)}" for one in told), *([""] if told else [])]
        else:
            lines += folded(told, what)
    return lines


def escaped(text: str) -> str:
    """Text in which VAA* is not the beginning of an emphasis."""
    return text.replace("*", "\\*")


SHOWN = {Answer.NO: "not as claimed", Answer.EITHER: "cannot be told apart", Answer.YES: "as claimed"}
"""The comparisons that a section lists, and what they are called."""
FEW = 8
"""As many comparisons that are not as claimed stand in full view."""


def folded(items: Iterable[str], what: str) -> list[str]:
    """A list behind a click, as HTML, which GitHub and the site show alike; nothing for no items."""
    told = [f"<li>{html.escape(item, quote=False)}</li>" for item in items]
    return [f"<details><summary>{len(told)} {what}</summary><ul>", *told, "</ul></details>", ""] if told else []


def fluctuations(judged: Judged) -> list[str]:
    """C7 by the rank correlation over all evaluations, and what is wrong with that."""
    grus = of_page(PAGES["tmaze_200"], RESULTS / "tmaze_200.json")
    whole = Spread.of(map(of_all_evaluations, grus))
    learnt = Spread.of(course.correlation for run in grus if (course := learning(run)))
    return [
        f"**Not by the rank correlation of VAA with the return of the same evaluation**, which is {whole} over all "
        f"evaluations, and {learnt} with the best return so far. An agent whose greedy policy runs into a wall stays "
        "there until the episode is truncated, for a return of down to -60, however much it remembers; and most "
        "evaluations come after VAA has risen. So the correlation over all evaluations is about these falls, and "
        "about the last digits of a VAA near 1, not about learning.",
        "",
    ]


def of_all_evaluations(agent: Result) -> float:
    """The rank correlation of VAA and return over the evaluations that have both."""
    vaa, returns = (dict(zip(*agent.curve(name), strict=True)) for name in ("vaa", "return"))
    both = [episode for episode in vaa if episode in returns]
    return rank_correlation([returns[episode] for episode in both], [vaa[episode] for episode in both])


FURTHER = {"C7": fluctuations}
"""What else a claim's section tells."""


def readings() -> list[str]:
    """Whether other readings of the paper change a verdict, from warmed-up LSTMs on copy with T = 300."""
    runs = of_page(PAGES["lstm_readings"], RESULTS / "lstm_readings.json")
    single = [run for run in runs if reading(run.config)[:2] == ("warmup", 300)]
    told = []
    for place, ways in enumerate(WAYS, start=2):
        counts = [learned([run for run in single if reading(run.config)[place] == value]) for value in ways]
        told.append(" | ".join(f"{words}: {count}" for words, count in zip(ways.values(), counts, strict=True)))
    agents = of_page(PAGES["tmaze_32"], RESULTS / "tmaze_32.json")
    mazes = f"\n\n{verdicts(PAGES['tmaze_32'].claims, agents)}" if agents else "It has not been run yet."
    return [READINGS.format(ways="\n".join(f"| {row} |" for row in told), mazes=mazes)]


WAYS = (
    {200: "n = 200, as the text has it", 32: "n = 32"},
    {1: "one bias vector", 2: "two"},
    {"ieee": "float32", "tf32": "TF32"},
)
"""What a reading of the paper leaves open, as ``reading`` of ``results.py`` tells it: value by value, in words."""


def page() -> str:
    """The page in Markdown."""
    results = stored()
    paper, small = (judge(scale, results) for scale in (PAPER, SMALL))
    how = HOW.format(paper=paper.command, small=small.command, paper_runs=paper.runs, small_runs=small.runs)
    lines = [INTRODUCTION, *overview(paper, small), "", how]
    for name in CLAIMS:
        lines += section(name, paper, small)
    return "\n".join([*lines, *readings()])


if __name__ == "__main__":
    PAGE.write_text(page())
