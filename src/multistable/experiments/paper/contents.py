"""The paper's figures, tables and sections as its reader knows them, by the labels of its LaTeX source.

The numbers are those of the compiled paper. Its class, ``article``, numbers figures in the order of their captions,
with one counter for the body and the appendix. A ``wrapfigure`` counts, the lettered parts of a figure do not. Tables
have a counter of their own; many labels that begin with ``tab`` are those of figures all the same. Sections count from
1, appendices from A.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A figure, a table or a section of the paper.

    Attributes:
        name: its number, for instance ``Figure 3``, or ``Appendix F, Table 1``.
        about: what it shows.
    """

    name: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.about})" if self.about else self.name


SECTIONS = {
    "sec:vaa_experiments": Place("Section 5.3", "multistability and learning"),
    "sec:warming_up_rnns": Place("Section 6.1", "the warmup"),
    "sec:warmup_experiments": Place("Section 6.2", "with and without warmup"),
    "sec:recurrent_double_layers": Place("Section 6.3", "double layers"),
    "subsec:model_selection": Place("Section 6.4", "selected hyperparameters"),
    "sec:conclusion": Place("Section 7", "conclusion"),
    "app:generalisation_vaa": Place("Appendix E.1", "multistability and learning with other hyperparameters"),
    "app:generalisation_warmup": Place("Appendix E.2", "warmup with other hyperparameters"),
    "app:impact_k": Place("Appendix E.3", "the target k of the warmup"),
    "app:hyperparameters": Place("Appendix F", "hyperparameter selection"),
    "app:dlu_control": Place("Appendix G", "double layers without warmup"),
    "app:aux_losses": Place("Appendix H", "auxiliary losses"),
}

_COPY, _DENOISING, _LINES = "copy first input", "denoising", "permuted line-sequential MNIST"

# The label of each figure, its appendix if it is in one, and what it shows. Their order here numbers them.
FIGURES = (
    ("fig:small_tmaze", "", "a T-Maze"),
    ("table:vaa_copybench", "", f"test error of every cell on {_COPY}, three lengths"),
    ("fig:copyfirstinput_lstm_chrono", "", f"validation loss and VAA of LSTM and chrono LSTM on {_COPY}, T = 50"),
    ("fig:copyfirstinput_others", "", f"validation loss and VAA of GRU, MGU, BRC and NBRC on {_COPY}, T = 50"),
    ("table:vaa_denoising", "", f"test error of every cell on {_DENOISING}, two forgetting periods"),
    ("fig:denoising_lstm_chrono", "", f"validation loss and VAA of LSTM and chrono LSTM on {_DENOISING}, N = 100"),
    ("fig:denoising_others", "", f"validation loss and VAA of GRU, MGU, BRC and NBRC on {_DENOISING}, N = 100"),
    ("fig:denoising_3gru", "", f"validation loss and VAA of single GRUs on {_DENOISING}, N = 5"),
    ("fig:tmaze200_gru", "", "return and VAA of GRU agents in a T-Maze, L = 200"),
    ("fig:warmup_denoising_gru", "", "VAA* of each layer and VAA of a GRU during its warmup"),
    ("tab:warmup_bench1_nodouble", "", f"test error with and without warmup on {_COPY}"),
    ("tab:warmup_bench2_nodouble", "", f"test error with and without warmup on {_DENOISING}"),
    ("fig:tmaze_warmup", "", "return, and episodes until the policy is optimal, with and without warmup in T-Mazes"),
    ("tab:warmup_bench3_nodouble", "", "test accuracy with and without warmup on permuted sequential MNIST"),
    ("tab:warmup_bench4_nodouble", "", f"test accuracy with and without warmup on {_LINES}"),
    ("fig:double_arch", "", "a double layer"),
    ("tab:warmup_bench1", "", f"test error of classic, warmed-up and double networks on {_COPY}"),
    ("tab:warmup_bench2", "", f"test error of classic, warmed-up and double networks on {_DENOISING}"),
    ("tab:warmup_bench3", "", "test accuracy of classic, warmed-up and double networks on permuted sequential MNIST"),
    ("tab:warmup_bench4", "", f"test accuracy of classic, warmed-up and double networks on {_LINES}"),
    ("fig:denoising_double_warmup", "", f"validation loss of the four versions on {_DENOISING}, N = 100"),
    ("tab:ms", "", "test results with selected hyperparameters"),
    ("fig:hp_denoising", "", f"validation loss with selected hyperparameters on {_DENOISING}, N = 100"),
    ("fig:hp_mnist", "", f"validation loss with selected hyperparameters on {_LINES}, N = 472"),
    ("fig:tmaze", "D", "layouts of the T-Maze"),
    ("fig:copyfirstinput_generalisation_vaa_1", "E", f"validation loss and VAA on {_COPY}, one layer"),
    ("fig:copyfirstinput_generalisation_vaa_2", "E", f"validation loss and VAA on {_COPY}, two layers"),
    ("fig:copyfirstinput_generalisation_warmup_1", "E", f"GRU versions on {_LINES}, N = 472, one layer"),
    ("fig:copyfirstinput_generalisation_warmup_2", "E", f"GRU versions on {_LINES}, N = 472, two layers"),
    ("fig:impact_k", "E", f"test error by the target k of the warmup on {_COPY}"),
    ("tab:double_bench1", "G", f"test error of double layers without warmup on {_COPY}"),
    ("tab:double_bench2", "G", f"test error of double layers without warmup on {_DENOISING}"),
    ("fig:rw_pt_copy", "H", f"pretraining on {_COPY}"),
    ("fig:rw_copy", "H", f"training after it on {_COPY}"),
    ("fig:rw_pt_denoising", "H", f"pretraining on {_DENOISING}"),
    ("fig:rw_denoising", "H", f"training after it on {_DENOISING}"),
    ("fig:rw_pt_row_mnist", "H", f"pretraining on {_LINES}"),
    ("fig:rw_row_mnist", "H", f"training after it on {_LINES}"),
)
TABLES = (
    ("tab:hp_denoising", "F", f"selected hyperparameters and test error on {_DENOISING}, N = 100"),
    ("tab:hp_mnist", "F", f"selected hyperparameters and test accuracy on {_LINES}, N = 472"),
)


def _numbered(kind: str, entries: Iterable[tuple[str, str, str]]) -> Mapping[str, Place]:
    """The places of all figures or of all tables by their labels."""
    return {
        label: Place(f"Appendix {appendix}, {kind} {number}" if appendix else f"{kind} {number}", about)
        for number, (label, appendix, about) in enumerate(entries, start=1)
    }


PLACES: Mapping[str, Place] = {**SECTIONS, **_numbered("Figure", FIGURES), **_numbered("Table", TABLES)}
"""Every place by its label."""


def places(labels: Iterable[str]) -> list[Place]:
    """The places that labels stand for; a label that the paper does not have is its own place."""
    return [PLACES.get(label, Place(label)) for label in labels]


def names(labels: Iterable[str]) -> str:
    """The numbers of places without what they show, for a narrow column."""
    return ", ".join(place.name for place in places(labels))
