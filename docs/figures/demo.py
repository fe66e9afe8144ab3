"""The picture at the top of the README: what a warmup does to the states of the demo's GRU, and to what it learns.

Run: make figures, or python docs/figures/demo.py (two minutes of one core, or less after `make demo`)
"""

from pathlib import Path
from typing import Any

from multistable.experiments import demo, demo_page, figures
from multistable.experiments.experiment import Result
from multistable.experiments.settling import Settling
from multistable.training import RunFolder

TITLES = {
    "before": "Before the warmup:\n100 states end at one point",
    "warmed": "After the warmup:\nall 100 states stay apart",
    "trained": "After training:\nin the order of the numbers",
}
LAYOUT = (("before", "before", "warmed", "warmed", "trained", "trained"), (*["distance"] * 3, *["loss"] * 3))


def main(out: Path = Path("runs/demo")) -> None:
    """Draw the picture beside this file."""
    demo.demo(out)
    folders = {config.version: RunFolder.of(config, out) for config in demo.configs()}
    spaces = demo.state_spaces(folders["warmup"])
    results = {version: Result.of(folder) for version, folder in folders.items()}
    assert [space.settling.points for space in spaces.each().values()] == [1, 100, 100], "the titles say otherwise"

    drawn, axes = figures.mosaic(12.6, 8.2, LAYOUT)
    for name, space in spaces.each().items():
        dots = figures.state_space(axes[name], space.settling, spaces.first_inputs)
        figures.name_axes(axes[name], "first principal component", "second principal component", TITLES[name])
    magnify(axes["warmed"], spaces.warmed.settling, spaces.first_inputs)
    about = "first number of the sequence: what is to be remembered"
    places = [axes[name] for name in demo_page.TIMES]
    drawn.colorbar(dots, ax=places, label=about, location="bottom", aspect=60, shrink=0.5)
    demo_page.draw_distances(axes["distance"], spaces)
    demo_page.draw_losses(axes["loss"], results)
    figures.png(drawn, Path(__file__).with_suffix(".png"))


def magnify(axes: Any, shown: Settling, values: list[float]) -> None:
    """Show that the dots at the left, which seem to be one, are apart too."""
    inset = axes.inset_axes((0.22, 0.1, 0.42, 0.42))
    figures.state_space(inset, shown, values)
    ends = shown.projected()[-1]
    left = ends[ends[:, 0] < ends[:, 0].mean()]
    for limit, side in ((inset.set_xlim, left[:, 0]), (inset.set_ylim, left[:, 1])):
        margin = 0.1 * (side.max() - side.min()).item()
        limit(side.min().item() - margin, side.max().item() + margin)
    inset.set_xticks([])
    inset.set_yticks([])
    inset.spines[["top", "right"]].set_visible(True)
    axes.indicate_inset_zoom(inset, edgecolor="black")


if __name__ == "__main__":
    main()
