"""Colours that colour-blind readers can tell apart, with markers that tell the same."""

# The palette of Okabe and Ito.
BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
YELLOW, BLUE, VERMILLION, PURPLE = "#f0e442", "#0072b2", "#d55e00", "#cc79a7"
GREY = "#a0a0a0"

INK = BLACK
"""The colour of text and axes. In a page it becomes the colour of the text around, which is light in dark mode."""

COLOURS, MARKERS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY), "osv^Dx"
"""Those of one series after another."""
