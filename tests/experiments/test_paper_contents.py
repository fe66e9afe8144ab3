"""The paper's figures and tables by their numbers, and the numbers that it prints beside ours."""

import pytest

from multistable.experiments.claims import CLAIMS
from multistable.experiments.experiment import Result
from multistable.experiments.paper import experiments, printed
from multistable.experiments.paper.contents import PLACES, names, places
from multistable.experiments.paper.grids import CELLS, THREE_VERSIONS, WARMED
from multistable.experiments.report import write_report
from multistable.experiments.scales import PAPER
from small_runs import small

ALL = experiments()


def test_every_label_has_a_place_in_the_paper_and_experiments_are_in_its_order():
    used = [label for declared in (*ALL.values(), *CLAIMS.values()) for label in declared.labels]
    assert set(used) <= set(PLACES)
    assert all(claim.labels for claim in CLAIMS.values())
    figures = [
        int(place.name.rpartition(" ")[2]) for experiment in ALL.values() for place in places(experiment.labels[:1])
    ]
    assert figures == sorted(figures)
    not_run = {"fig:small_tmaze", "fig:double_arch", "fig:tmaze"}
    assert {label for label in PLACES if label.startswith(("fig", "tab"))} - set(used) == not_run


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("table:vaa_copybench", "Figure 2"),
        ("fig:denoising_double_warmup", "Figure 21"),
        ("fig:rw_row_mnist", "Appendix H, Figure 38"),
        ("tab:hp_mnist", "Appendix F, Table 2"),
        ("sec:vaa_experiments", "Section 5.3"),
        ("fig:mine", "fig:mine"),
    ],
)
def test_a_label_is_told_as_the_reader_of_the_paper_knows_it(label, name):
    assert names([label]) == name


def test_the_printed_tables_have_a_row_for_each_cell_and_version():
    kinds = {(cell, version) for cell in WARMED for version in THREE_VERSIONS} | {(c, "classic") for c in CELLS[-2:]}
    for table in (printed.DENOISING, printed.LINE_MNIST):
        assert set(table) == kinds
        for (layers, units, rate, batch), mean, deviation in table.values():
            assert (layers in (1, 2, 3), units in (256, 512), rate in (1e-3, 5e-4, 1e-4), batch in (32, 64)) == (
                True,
            ) * 4
            assert 0 <= deviation < 1
            assert 0 < mean < 1
    assert printed.DENOISING["mgu", "classic"] == ((3, 512, 1e-3, 32), 0.3356, 0.5695)
    assert printed.LINE_MNIST["nbrc", "classic"] == ((2, 512, 5e-4, 64), 0.96, 0.0006)


def test_printed_numbers_stand_in_the_same_row_as_ours():
    (bars,) = ALL["warmup-copy"].pictures
    results = [Result(small(version=version), [], {"test_loss": 0.25}, {}) for version in ("classic", "warmup")]
    results.append(Result(small(cell="chrono"), [], {"test_loss": 0.25}, {}))
    header, rows = bars.table(results)
    assert header[-1] == "in the paper"
    assert [row[-1] for row in rows] == ["above 0.5", "below 0.001", ""]
    (course,) = ALL["warmup-course"].pictures
    warmup = {"vaa_star": [[0.5]], "vaa": 0.75}
    assert course.table([Result(small(version="warmup"), [], {}, {}, warmup)])[1] == [["0", "0.500", "0.750", "1"]]


def test_the_page_names_figures_and_has_the_printed_numbers_without_any_run(tmp_path):
    page = write_report([ALL["copy-curves"], ALL["selection-denoising"]], PAPER, tmp_path, "command", {}).read_text()
    assert "<b>Figure 3</b> of the paper: " in page
    assert "<b>Appendix F, Table 1</b> of the paper: " in page
    assert "fig:" not in page
    assert "0.3356 ± 0.5695" in page
    assert "<svg" not in page
