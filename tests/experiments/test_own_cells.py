"""The paper's experiments with a cell of one's own beside the paper's: run, drawn and told."""

from dataclasses import replace

from multistable.experiments.experiment import Result
from multistable.experiments.paper import experiments
from multistable.experiments.report import verdicts
from multistable.experiments.scales import PAPER, SMOKE
from multistable.tasks.copy_first_input import CopyFirstInput
from small_agents import small_agent
from small_runs import small

OWN = "own_cells:LeakyCell"
ALL = experiments()


def test_every_kind_of_run_is_made_with_ones_own_cell_too():
    of_paper, with_own = (ALL["double-copy"].at(scale) for scale in (SMOKE, SMOKE.also([OWN])))
    assert {run.name for run in of_paper} < {run.name for run in with_own}
    own = [run for run in with_own if run.cell == OWN]
    assert {(run.task, run.version, run.seed) for run in own} == {(run.task, run.version, run.seed) for run in of_paper}
    assert len(own) == len({run.name for run in own}) == len(with_own) - len(of_paper)
    assert SMOKE.also([]) is SMOKE


def test_ones_own_cell_is_in_every_picture_and_table():
    metrics = [{"epoch": epoch, "validation_loss": 1.0, "vaa": 0.5} for epoch in (0, 1)]
    shares = {"initial_fixed_points": 1.0, "initial_cycles": 0.0, "final_fixed_points": 0.5, "final_cycles": 0.0}
    own = [Result(small(cell=OWN, version=v), metrics, {"test_loss": 0.5, **shares}, {}) for v in ("classic", "warmup")]
    for name in ("double-copy", "attractors-copy", "double-curves"):
        (picture,) = ALL[name].pictures
        picture.draw(own)
        assert [row[0] for row in picture.table(own)[1]] == ["LeakyCell", "LeakyCell"], name
    others = ALL["copy-curves"].pictures[-1]
    assert [row[0] for row in others.table(own[:1])[1]] == ["LeakyCell"]
    rows = [{"episode": episode, "return": 1.0, "vaa": 0.5} for episode in (0, 5)]
    agents = [Result(small_agent(cell=OWN), rows, {"first_optimal": 2}, {})]
    for picture in ALL["tmaze-warmup"].pictures:
        picture.draw(agents)
        assert [row[0] for row in picture.table(agents)[1]] == ["LeakyCell"]


def test_a_claim_of_the_paper_is_not_judged_by_ones_own_cell():
    """C3, which nothing but a cell that learns would decide."""
    scale = PAPER.also([OWN])
    learned = [{"epoch": epoch, "validation_loss": 0.1, "vaa": 0.03} for epoch in range(51)]
    runs = [run for run in ALL["copy-curves"].at(scale) if run.cell == OWN]
    source = {run.name: Result(run, learned, {"test_loss": 0.1, "warmup": None}, {}) for run in runs}
    assert len(source) == 5
    assert isinstance(runs[0].task, CopyFirstInput)
    found = verdicts([ALL["copy-curves"]], scale, source)
    assert found["C3"] == verdicts([ALL["copy-curves"]], PAPER, {})["C3"]
    assert replace(found["C3"], checks=[]).verdict == "not enough runs"
