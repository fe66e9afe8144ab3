"""Figures of many panels: runs that are alike in something, such as their cell or their setting, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from multistable.experiments.experiment import Result, grouped, spread
from multistable.experiments.pictures import (
    Label,
    Rows,
    bar,
    curve_panel,
    first_to_last,
    legend_below,
    limit,
    quantity_name,
)
from multistable.experiments.styles import style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Panels:
    """Quantities epoch by epoch, and a result at the end beside them, for each part of the runs.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        part: the title of the panels that a run is in; ``None`` for runs that are not shown.
        series: which curve or bar of these panels a run belongs to.
        quantities: the metrics, each with a panel of curves.
        ending: a result of the summaries, with a panel of bars; by default there is none.
        abreast: how many parts stand side by side.
        names: what a part and a series are called.
    """

    name: str
    caption: str
    part: Label
    series: Label
    quantities: tuple[str, ...] = ("validation_loss",)
    ending: str | None = None
    abreast: int = 2
    names: tuple[str, str] = ("cell", "version")

    def draw(self, results: Sequence[Result]) -> "Figure":
        """The panels of the parts, row by row; each quantity has one scale, so that parts can be compared."""
        from multistable.experiments.figures import figure

        parts = grouped(results, self.part)
        hues = list(grouped((run for group in parts.values() for run in group), self.series))
        columns = max(min(self.abreast, len(parts)), 1) * len(self._kinds)
        rows = max(-(-len(parts) // self.abreast), 1)
        drawn, axes = figure(3.7 * columns + 0.4, 3.0 * rows + 0.5, columns, rows, squeeze=False)
        shown: dict[str, list[Any]] = {quantity: [] for quantity in self._kinds}
        for place, (title, quantity) in zip(axes.flat, product(parts, self._kinds), strict=False):
            if shown[quantity]:
                place.sharey(shown[quantity][0])
            shown[quantity].append(place)
            self._panel(place, grouped(parts[title], self.series), quantity, hues)
            place.set_title(title)
        for place in axes.flat[len(parts) * len(self._kinds) :]:
            place.set_axis_off()
        if not parts:
            curve_panel(axes[0, 0], {}, self._kinds[0])
        # Last, since panels that share a range no longer widen it once it is set.
        for quantity, places in shown.items():
            for place in places:
                limit(place, quantity)
        # The legend names the curves, since it shows how lines are dashed; bars have their names below them.
        legend_below(drawn, [place for quantity in self.quantities for place in shown[quantity]])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each part and series: the quantities before training and at the end, and the result."""
        rows = []
        for title, group in grouped(results, self.part).items():
            for label, runs in grouped(group, self.series).items():
                row = [title, style_of(label, 0).label, str(len(runs))]
                row += [first_to_last(runs, quantity) for quantity in self.quantities]
                if self.ending is not None:
                    value = spread(runs, self.ending)
                    row.append("" if value is None else str(value))
                rows.append(row)
        ending = [] if self.ending is None else [self.ending]
        return [*self.names, "runs", *(f"{name}, first to last" for name in self.quantities), *ending], rows

    @property
    def _kinds(self) -> tuple[str, ...]:
        return self.quantities if self.ending is None else (*self.quantities, self.ending)

    def _panel(self, place: Any, groups: Mapping[str, list[Result]], quantity: str, hues: Sequence[str]) -> None:
        if quantity != self.ending:
            curve_panel(place, groups, quantity)
            return
        from multistable.experiments.figures import name_axes

        for x, hue in enumerate(hues):
            bar(place, x, 0.8, groups.get(hue, []), quantity, style_of(hue, x))
        place.set_xticks(range(len(hues)), [style_of(hue, x).label for x, hue in enumerate(hues)], fontsize=8.5)
        name_axes(place, self.names[1], quantity_name(quantity, next(iter(groups.values()))[0].config.task))
