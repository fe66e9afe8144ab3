"""Print a table of docs/reference/reproduce.md: how long each experiment may take, on a GPU and on one CPU core."""

from multistable.experiments.estimate import seconds
from multistable.experiments.experiment import Experiment
from multistable.experiments.paper import experiments
from multistable.experiments.reproduce import plan
from multistable.experiments.scales import PAPER, SCALES, SMALL, SMOKE, Scale


def forecast(wanted: list[Experiment], scale: Scale, device: str) -> str:
    """The estimate of ``multistable reproduce --dry-run``, in words."""
    taken = sum(seconds(group, device) for group in plan(wanted, scale, "no such folder").groups)
    for length, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if taken >= 1.5 * length:
            return f"{taken / length:,.0f} {name}" if taken >= 10 * length else f"{taken / length:.1f} {name}"
    return f"{taken:.0f} s"


def row(name: str, wanted: list[Experiment]) -> str:
    """A line of the table."""
    runs = " / ".join(f"{plan(wanted, scale, 'no such folder').runs:,}" for scale in SCALES.values())
    times = [forecast(wanted, scale, device) for device, scale in COLUMNS]
    return f"| `{name}` | {runs} | {' | '.join(times)} |"


COLUMNS = tuple((device, scale) for device in ("cpu", "cuda") for scale in (SMOKE, SMALL, PAPER))

if __name__ == "__main__":
    known = experiments()
    for name, experiment in known.items():
        print(row(name, [experiment]))
    print(row("all", list(known.values())))
