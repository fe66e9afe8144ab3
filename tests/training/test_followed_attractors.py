"""A run records its attractors as a continuation over its networks finds them, and they keep their numbers."""

import json

import pytest
import torch

import multistable as ms
from bistable_units import units
from multistable.cli.bodies import inspect, show
from multistable.training import Callback, DamagedRunError, Model, RunFolder, train
from multistable.training.portraits import DIGITS, WRITTEN, Following, course_of
from multistable.training.seeds import generator
from multistable.training.supervised import SupervisedGroup
from small_runs import StopAt, StopError, small

SIZES = {"cell": "brc", "vaa_batches": 1, "vaa_batch_size": 30, "stabilisation": 500, "learning_rate": 0.1}
FOLLOWED = small(epochs=5, attractors_every=2, attractors_saddles=True, **SIZES)


class Networks(Callback):
    """The networks of the epochs at which attractors are recorded."""

    def __init__(self, folder):
        self.folder, self.networks = folder, []

    def on_epoch(self, configs, metrics):
        if "attractors" in metrics[0]:
            tensors = self.folder.checkpoint(metrics[0]["epoch"]).tensors
            model = Model.of(configs[0])
            parts = {n.removeprefix("weights."): w for n, w in tensors.items() if n.startswith("weights.")}
            model.load_state_dict(parts)
            self.networks.append(model.rnn)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run, and its network at each record."""
    out = tmp_path_factory.mktemp("followed")
    watch = Networks(RunFolder.of(FOLLOWED, out))
    (folder,) = train(FOLLOWED, out, callbacks=[watch])
    return folder, watch.networks


def test_what_is_recorded_is_the_continuation_over_the_networks_of_the_training(run):
    folder, networks = run
    group = SupervisedGroup([FOLLOWED], torch.device("cpu"))
    x = group.learning.take(group.rows.training).inputs[:, 0]
    found = ms.continuation(networks, x, batch_size=30, stabilisation=500, generator=generator(0, "attractors"))
    records = folder.attractors()
    assert [record["epoch"] for record in records] == [0, 2, 4, 5]
    portraits, shares = course_of(records)
    assert torch.equal(shares, found.fractions.round(decimals=DIGITS))
    assert max(found.counts) > 1
    for record, part, drawn in zip(records, found.portraits, portraits, strict=True):
        assert [one["id"] for one in record["attractors"]] == part.ids == drawn.ids
        assert record["moving"] == pytest.approx(1 - float(part.fractions.sum()), abs=1e-6)
        if len(part):
            torch.testing.assert_close(drawn.points, part.points.double(), rtol=1e-5, atol=1e-9)
    told = [ms.Change(i, **change) for i, record in enumerate(records) for change in record["changes"]]
    assert told == found.changes != []
    assert [row["attractors"] for row in folder.metrics() if "attractors" in row] == found.counts
    for record, points in zip(records, found.fixed_points(), strict=True):
        assert len(record["fixed_points"]) == min(len(points), WRITTEN)
        assert sorted(one["unstable"] for one in record["fixed_points"]) == points.unstable.tolist()[:WRITTEN]


def test_the_names_and_results_of_runs_are_those_without(run, tmp_path):
    folder, _ = run
    plain = small(epochs=5, **SIZES)
    assert FOLLOWED.name == plain.name
    (without,) = train(plain, tmp_path)
    assert without.attractors() == []
    assert without.summary()["results"] == folder.summary()["results"]


def test_runs_that_train_together_record_what_they_do_alone(tmp_path):
    configs = [small(epochs=2, seed=seed, attractors_every=1, **SIZES) for seed in range(2)]
    together = train(configs, tmp_path / "together")
    for config, folder in zip(configs, together, strict=True):
        (alone,) = train(config, tmp_path / "alone")
        mine, own = folder.attractors(), alone.attractors()
        assert [[one["id"] for one in record["attractors"]] for record in mine] == [
            [one["id"] for one in record["attractors"]] for record in own
        ]
        assert torch.equal(course_of(mine)[1], course_of(own)[1])


def test_a_file_that_is_lost_or_ahead_is_written_again_when_the_run_goes_on(run, tmp_path):
    expected = (run[0].path / "attractors.json").read_bytes()
    for name, damage in {"lost": lambda path: path.unlink(), "ahead": lambda path: path.write_bytes(expected)}.items():
        with pytest.raises(StopError):
            train(FOLLOWED, tmp_path / name, callbacks=[StopAt("record", 3)])
        folder = RunFolder.of(FOLLOWED, tmp_path / name)
        damage(folder.path / "attractors.json")
        assert train(FOLLOWED, tmp_path / name)[0].attractors() == run[0].attractors()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content["records"][0].pop("epoch"), r"records\[0\].epoch must be 0 or a positive integer"),
        (lambda content: content["records"][1].update(attractors=3), r"records\[1\].attractors must be a list"),
        (lambda content: content["records"][0]["changes"].append({"id": 0}), "changes.appears must be true or false"),
        (lambda content: content["records"][-1]["attractors"][0].update(points=[]), "points must be a list of points"),
    ],
)
def test_a_damaged_file_is_named(run, tmp_path, damage, message):
    content = json.loads((run[0].path / "attractors.json").read_text())
    damage(content)
    (tmp_path / "attractors.json").write_text(json.dumps(content))
    with pytest.raises(DamagedRunError, match=f"attractors.json: .*{message}"):
        RunFolder(tmp_path).attractors()


def attractors_of(slope):
    """Those of a unit that is bistable above a slope of 1."""
    states = torch.linspace(-0.97, 0.97, 20, dtype=torch.float64).unsqueeze(-1)
    return ms.attractors(units(0.0, slope=slope), states=states, inputs="zero", stabilisation=500)


def test_after_states_that_were_not_finite_attractors_are_new_ones():
    following = Following()
    counts = [
        following.add(epoch, found, 1e-4, saddles=True)
        for epoch, found in enumerate([attractors_of(1.5), None, attractors_of(1.5), attractors_of(0.5)])
    ]
    assert counts == [2, None, 2, 1]
    ids = [[one["id"] for one in record["attractors"]] for record in following.records]
    assert ids[:3] == [[0, 1], [], [2, 3]]
    assert ids[3][0] in (2, 3)
    assert following.records[1]["moving"] is None
    assert following.records[1]["changes"] == [{"id": i, "appears": False, "other": None} for i in (0, 1)]
    assert following.records[2]["changes"] == [{"id": i, "appears": True, "other": None} for i in (2, 3)]
    (merged,) = following.records[3]["changes"]
    assert merged == {"id": 5 - ids[3][0], "appears": False, "other": ids[3][0]}
    assert [len(record["fixed_points"]) for record in following.records if "fixed_points" in record] == [3, 3, 1]
    again = Following.of(following.notes(), following.tensors(), ms.RNN("brc", 1, 1).double())
    assert again.unused == following.unused
    assert torch.equal(again.portrait.points, following.portrait.points)


def test_show_tells_what_has_changed(run, capsys):
    show.run([run[0].path])
    told = capsys.readouterr().out
    assert "Attractors" in told
    assert " is new" in told


def test_the_page_of_inspect_has_the_course_of_a_run_that_recorded_it(run, tmp_path):
    folder, _ = run
    inspect.run(folder.path, None, False, None, 100, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<figure>") == 8
    assert "In the course of training" in page
