"""The picture at the top of the README: four of the demo's pictures in one.

Run: make figures, or python docs/figures/demo.py (what `make demo` has trained is not trained again)
"""

from pathlib import Path

from multistable.experiments import demo, demo_page, figures
from multistable.experiments.experiment import Result
from multistable.training import RunFolder


def main(out: Path = Path("runs/demo")) -> None:
    """Draw the picture beside this file."""
    demo.demo(out)
    folders = {config.version: RunFolder.of(config, out) for config in demo.configs()}
    spaces = demo.state_spaces(folders["warmup"])
    results = {version: Result.of(folder) for version, folder in folders.items()}

    drawn, axes = figures.figure(9.6, 7.4, columns=2, rows=2)
    for place, (name, title) in zip(axes.flat, demo_page.TIMES.items(), strict=False):
        shown = getattr(spaces, name)
        dots = figures.state_space(place, shown, spaces.first_inputs)
        figures.name_axes(place, "first principal component", "second principal component")
        place.set_title(f"{title}: {len(spaces.first_inputs)} states, {demo_page.attractors(shown)}")
    about = "first input of the sequence: what is to be remembered"
    drawn.colorbar(dots, ax=axes, label=about, location="bottom", aspect=60, shrink=0.6)
    demo_page.draw_losses(axes[1, 1], results)
    axes[1, 1].set_title("Validation loss", y=1.1)
    figures.png(drawn, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
