"""Training: one run is what it is, alone or together with others; and warmup is what makes it learn."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import multistable as ms
from multistable.dynamics.warmup import run_warmup
from multistable.dynamics.warmup.goal import Goal
from multistable.tasks import TASKS, CopyFirstInput, Denoising
from multistable.training import Model, RunFolder, load, train
from multistable.training.course import Course
from multistable.training.data import division, sets
from multistable.training.seeds import generator
from multistable.training.trainer import groups
from small_runs import Watcher, small

CPU = torch.device("cpu")
TIMES = ("seconds", "step_seconds")


@pytest.fixture
def short_final_check(monkeypatch):
    """Warmups that end with a measure of few steps: what they find is not the question."""
    monkeypatch.setattr(run_warmup, "FINAL_STABILISATION", 50)


# Which runs go together


def test_runs_that_share_an_architecture_go_together():
    configs = [
        small(),
        small(seed=1),
        small(version="warmup"),
        small(learning_rate=0.1),
        small(version="warmup", target=0.5),
        small(version="double"),
        small(version="double-classic"),
        small(hidden_size=10),
        small(batch_size=8),
        small(seed=1),
    ]
    assert [len(group) for group in groups(configs, 32)] == [5, 2, 1, 1]
    assert [len(group) for group in groups(configs, 2)] == [2, 2, 1, 2, 1, 1]


def test_warmups_of_different_settings_do_not_go_together():
    configs = [small(version="warmup", warmup_steps=steps) for steps in (3, 5)]
    configs.append(small(version="warmup", warmup_sequences="random"))
    configs.append(small(version="warmup", seed=1, warmup_vaa_every=2))
    assert [len(group) for group in groups(configs, 32)] == [1, 1, 1, 1]


# A run is the same alone and together


@pytest.mark.usefixtures("short_final_check")
@pytest.mark.parametrize(("cell", "versions"), [("lstm", ("classic", "warmup")), ("gru", ("double", "double-classic"))])
def test_a_run_alone_and_among_eight_agree(cell, versions, tmp_path):
    common = {"cell": cell, "dtype": "float64", "num_layers": 2}
    configs = [small(**common, version=version, seed=seed) for seed in (0, 1) for version in versions]
    configs += [small(**common, version=versions[0], learning_rate=0.01, seed=seed) for seed in (0, 1, 2)]
    configs += [small(**common, version="double" if versions[0] == "double" else "warmup", target=0.5)]
    assert len(groups(configs, 32)) == 1
    together = train(configs, tmp_path / "together")
    for config, folder in zip(configs[:4], together, strict=False):
        (alone,) = train(config, tmp_path / "alone")
        assert folder.summary()["record"]["together"] == 8
        assert alone.summary()["record"]["together"] == 1
        for a, b in zip(alone.metrics(), folder.metrics(), strict=True):
            for name in ("training_loss", "validation_loss", "vaa"):
                assert (name in a) == (name in b)
                assert a.get(name, 0) == pytest.approx(b.get(name, 0), rel=1e-9)
        assert alone.summary()["results"]["test_loss"] == pytest.approx(
            folder.summary()["results"]["test_loss"], rel=1e-9
        )
        for name, weight in alone.weights().items():
            torch.testing.assert_close(weight, folder.weights()[name], rtol=1e-8, atol=1e-10)


def test_training_leaves_the_global_generator_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    train(small(version="warmup"), tmp_path)
    assert torch.equal(torch.rand(2), expected)


# What a run does, against a plain loop


def test_training_is_what_a_plain_loop_does(tmp_path):
    """One run of a float64 GRU, written down again with PyTorch's own optimiser."""
    config = small(dtype="float64", vaa_every=0, epochs=3)
    (folder,) = train(config, tmp_path)
    data = sets([config], "train", CPU)
    training, validation, _ = division([config], 50, CPU)
    model = Model.of(config)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_at(rows):
        inputs, targets = data.take(rows.unsqueeze(0))
        return (model(inputs[:, 0])[-1] - targets[0]).square().mean()

    losses = [loss_at(validation[0]).item()]
    for epoch in (1, 2, 3):
        order = torch.randperm(40, generator=generator(0, "order", epoch))
        for rows in training[0][order].split(16):
            optimiser.zero_grad()
            loss_at(rows).backward()
            optimiser.step()
        losses.append(loss_at(validation[0]).item())
    rows = folder.metrics()
    assert [row["validation_loss"] for row in rows] == pytest.approx(losses, rel=1e-7)
    assert "vaa" not in rows[0]
    best = int(np.argmin(losses))
    assert folder.summary()["results"]["best_epoch"] == best
    assert folder.summary()["results"]["validation_loss"] == pytest.approx(losses[best], rel=1e-7)


def test_the_weights_kept_are_those_of_the_lowest_validation_loss(tmp_path):
    """A learning rate that makes things worse: the first weights are the best."""
    config = small(learning_rate=30.0, dtype="float64")
    (folder,) = train(config, tmp_path)
    assert folder.summary()["results"]["best_epoch"] == 0
    initial = Model.of(config).state_dict()
    assert all(torch.equal(weight, initial[name]) for name, weight in folder.weights().items())


def test_test_scores_are_those_of_the_weights_kept(tmp_path):
    config = small(task=Denoising(12, 5), num_layers=2)
    (folder,) = train(config, tmp_path)
    model = load(folder.path)
    inputs, targets = sets([config], "test", CPU).take(torch.arange(20).unsqueeze(0))
    loss = config.task.loss(model(inputs[:, 0]), targets[0])
    assert folder.summary()["results"]["test_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert folder.summary()["results"]["test_accuracy"] is None


def test_selection_scores_are_those_of_the_weights_kept_on_their_own_part(tmp_path):
    config = small(selection=0.2)
    (folder,) = train(config, tmp_path)
    rows = division([config], 50, CPU).selection
    inputs, targets = sets([config], "train", CPU).take(rows)
    loss = config.task.loss(load(folder.path)(inputs[:, 0]), targets[0])
    assert folder.summary()["results"]["selection_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert "selection_loss" not in train(small(), tmp_path)[0].summary()["results"]


@pytest.mark.usefixtures("short_final_check")
@pytest.mark.parametrize(
    ("algorithm", "steps", "warmed_on"), [("paper", 3, "data"), ("paper", 3, "random"), ("reliable", 15, "data")]
)
def test_vaa_is_measured_on_the_training_sequences_whatever_the_warmup_was_on(algorithm, steps, warmed_on, tmp_path):
    settings = {"warmup_algorithm": algorithm, "warmup_sequences": warmed_on, "warmup_vaa_every": 2}
    config = small(version="warmup", epochs=1, dtype="float64", **settings)
    (folder,) = train(config, tmp_path)
    rows = division([config], 50, CPU).training
    inputs = sets([config], "train", CPU).take(rows).inputs[:, 0]
    noise = torch.randn(inputs.shape, generator=generator(0, "random"), dtype=torch.float64)
    course = folder.warmup()
    model = Model.of(config)
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        history = ms.warmup(
            model.rnn,
            inputs if warmed_on == "data" else noise,
            algorithm=algorithm,
            steps=steps,
            batch_size=8,
            max_stabilisation=10,
            generator=generator(0, "warmup"),
        )
    np.testing.assert_allclose(course["vaa_star"], history.vaa_star.numpy(), rtol=1e-9)
    assert len(course["loss"]) == history.gradient_steps
    sizes = {"batches": 2, "batch_size": 4, "stabilisation": 50}
    measured = folder.metrics()[0]
    value = ms.measure(model.rnn, inputs, generator=generator(0, "vaa", 0), **sizes).vaa
    assert measured["vaa"] == pytest.approx(value)
    assert course["vaa_course"][-1] == [history.gradient_steps, pytest.approx(value)]
    settled = ms.attractors(model.rnn, inputs, generator=generator(0, "vaa", 0), **sizes)
    assert (measured["fixed_points"], measured["cycles"]) == (settled.fixed_points, settled.cycles)


@pytest.mark.usefixtures("short_final_check")
def test_runs_are_warmed_up_to_robust_attractors_where_they_ask_for_them(tmp_path):
    settings = {"warmup_algorithm": "fast", "warmup_steps": 1, "warmup_robust": 0.3, "dtype": "float64"}
    configs = [small(version="warmup", epochs=1, seed=seed, **settings) for seed in (0, 1)]
    for config, folder in zip(configs, train(configs, tmp_path), strict=True):
        rnn = Model.of(config).rnn
        inputs = sets([config], "train", CPU).take(division([config], 50, CPU).training).inputs[:, 0]
        draws = {"batch_size": 8, "generator": generator(config.seed, "warmup")}
        with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
            history = ms.warmup(rnn, inputs, robust=0.3, steps=10, max_stabilisation=10, **draws)
        np.testing.assert_allclose(folder.warmup()["loss"], history.loss.numpy(), rtol=1e-6)
        assert folder.warmup()["outcome"] == history.outcome == "frail"


@pytest.mark.usefixtures("short_final_check")
def test_vaa_on_the_way_of_a_warmup_is_that_of_the_network_after_each_few_steps(tmp_path):
    """Of two runs together, each with its own draws; against measures of each warmed up alone."""
    measure = {"batch_size": 8, "stabilisation": 20}
    sizes = {"vaa_batch_size": 8, "stabilisation": 20, "warmup_steps": 7, "epochs": 1, "dtype": "float64"}
    configs = [small(version="warmup", seed=seed, warmup_vaa_every=3, **sizes) for seed in (0, 1)]
    for config, folder in zip(configs, train(configs, tmp_path), strict=True):
        rnn = Model.of(config).rnn
        inputs = sets([config], "train", CPU).take(division([config], 50, CPU).training).inputs[:, 0]
        values = {}

        def measured(step, rnn=rnn, inputs=inputs, seed=config.seed, values=values):
            draws = generator(seed, "vaa", 0)
            values[step] = ms.measure(rnn, inputs, batches=2, generator=draws, **measure).vaa

        measured(0)
        with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
            ms.warmup(
                rnn,
                inputs,
                algorithm="paper",
                steps=7,
                batch_size=8,
                max_stabilisation=10,
                generator=generator(config.seed, "warmup"),
                on_step=lambda step, measured=measured: measured(step.step),
            )
        course = dict(folder.warmup()["vaa_course"])
        assert course == pytest.approx({step: values[step] for step in (0, 3, 6, 7)})
        assert course[0] != course[7], "values that are all the same would tell nothing"
        assert course[7] == pytest.approx(folder.metrics()[0]["vaa"])


@pytest.mark.usefixtures("short_final_check")
@pytest.mark.parametrize("algorithm", ["paper", "reliable"])
def test_a_run_is_the_same_bit_by_bit_whether_vaa_is_measured_on_the_way_or_not(algorithm, tmp_path):
    settings = {"warmup_algorithm": algorithm, "num_layers": 2}
    plain = [small(version=version, seed=seed, **settings) for version in ("classic", "warmup") for seed in (0, 1)]
    recording = [replace(config, warmup_vaa_every=1) for config in plain]
    for without, within in zip(train(plain, tmp_path / "plain"), train(recording, tmp_path / "recording"), strict=True):
        assert without.path.name == within.path.name
        assert all(torch.equal(weight, within.weights()[name]) for name, weight in without.weights().items())
        assert without.summary()["results"] == within.summary()["results"]
        assert [row | {"seconds": 0} for row in without.metrics()] == [row | {"seconds": 0} for row in within.metrics()]
        plainly, course = without.warmup(), within.warmup()
        if course is not None:
            assert [step for step, _ in course.pop("vaa_course")] == list(range(len(course["loss"]) + 1))
            assert course | dict.fromkeys(TIMES) == plainly | dict.fromkeys(TIMES)


def test_each_member_has_the_vaa_of_its_own_steps():
    """The first has finished after three steps, the second goes on; nothing is measured twice at the end."""
    history = ms.WarmupHistory(Goal.of(0.95, "paper", members=2), 8, 4)
    values = iter([[0.1, 0.2], [0.3, None], [0.5, 0.6], [0.7, 0.8]])
    course = Course(lambda: next(values), every=2, most=6)
    for step in range(1, 7):
        tensors = (torch.full((1, 2), 0.9), torch.zeros(2), torch.ones(2))
        history.record(ms.WarmupStep(step, *tensors), torch.tensor([step <= 3, True]))
        course.after(step)
    history.vaa = [1.0, 1.0]
    first, second = course.ended(history)
    assert first["vaa_course"] == [[0, 0.1], [2, 0.3], [3, 0.7]]
    assert second["vaa_course"] == [[0, 0.2], [2, None], [4, 0.6], [6, 0.8]]
    assert (len(first["loss"]), len(second["loss"])) == (3, 6)


@pytest.mark.parametrize("every", [0, 1])
def test_what_vaa_on_the_way_takes_is_no_cost_of_the_warmup(every, monkeypatch):
    now = 0.0

    def takes(seconds):
        nonlocal now
        now += seconds
        return [0.5]

    monkeypatch.setattr("time.perf_counter", lambda: now)
    history = ms.WarmupHistory(Goal.of(0.95, "paper", members=1), 8, 4)
    course = Course(lambda: takes(100), every, most=3)
    for step in (1, 2, 3):
        takes(2)
        history.record(ms.WarmupStep(step, torch.ones(1, 1), torch.zeros(1), torch.ones(1)))
        course.after(step)
    takes(5)
    history.vaa = [1.0]
    (told,) = course.ended(history)
    assert (told["step_seconds"], told["seconds"], now) == (6, 11, 11 + 400 * every)


def test_vaa_is_measured_every_few_epochs_and_where_states_settle_at_both_ends(tmp_path):
    (folder,) = train(small(epochs=5, vaa_every=2), tmp_path)
    rows, results = folder.metrics(), folder.summary()["results"]
    assert [row["epoch"] for row in rows if "vaa" in row] == [0, 2, 4, 5]
    assert [row["epoch"] for row in rows if "fixed_points" in row] == [0, 5]
    for name in ("fixed_points", "cycles"):
        assert [results[f"initial_{name}"], results[f"final_{name}"]] == [rows[0][name], rows[-1][name]]
    (unmeasured,) = train(small(epochs=3, vaa_every=0), tmp_path)
    assert unmeasured.summary()["results"]["final_fixed_points"] is None


def test_versions_are_what_they_say(tmp_path):
    configs = {
        version: small(version=version, epochs=1) for version in ("classic", "warmup", "double", "double-classic")
    }
    folders = dict(zip(configs, train(configs.values(), tmp_path), strict=True))
    assert [folder.warmup() is not None for folder in folders.values()] == [False, True, True, False]
    doubles = [isinstance(load(folder.path).rnn.layers[0], ms.Double) for folder in folders.values()]
    assert doubles == [False, False, True, True]
    losses = {version: folder.metrics()[0]["validation_loss"] for version, folder in folders.items()}
    assert losses["classic"] != losses["warmup"]
    assert losses["double"] != losses["double-classic"]


def test_accuracy_where_the_task_has_one(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 255, (60, 28, 28), dtype=np.uint8)
    monkeypatch.setattr(
        "multistable.tasks.mnist.load", lambda split, data: (images, np.arange(60, dtype=np.uint8) % 10)
    )
    config = small(task=TASKS["plmnist"](2), training_sequences=None, testing_sequences=None, epochs=1)
    (folder,) = train(config, tmp_path)
    results = folder.summary()["results"]
    assert 0 <= results["test_accuracy"] <= 1
    assert results["test_accuracy"] * 60 == pytest.approx(round(results["test_accuracy"] * 60), abs=1e-4)
    assert all(0 <= row["validation_accuracy"] <= 1 for row in folder.metrics())


# Callbacks


def test_callbacks_hear_of_everything_in_order(tmp_path):
    watcher = Watcher()
    train([small(), small(version="warmup")], tmp_path, callbacks=[watcher])
    steps = [("step", epoch, step) for epoch in (1, 2) for step in (1, 2, 3)]
    assert watcher.calls == [
        ("start", 2, 0, 3),
        *(("warmup", ["warmup"], step) for step in (1, 2, 3)),
        ("epoch", [0, 0]),
        *steps[:3],
        ("epoch", [1, 1]),
        *steps[3:],
        ("epoch", [2, 2]),
        ("end", 2),
    ]


# What it is all for


def test_a_warmed_up_gru_learns_what_a_classic_one_does_not(tmp_path):
    common = {
        "task": CopyFirstInput(30),
        "hidden_size": 32,
        "epochs": 6,
        "training_sequences": 2500,
        "testing_sequences": 500,
        "batch_size": 32,
        "vaa_every": 6,
        "vaa_batches": 2,
        "vaa_batch_size": 16,
        "stabilisation": 1000,
        "warmup_steps": 60,
        "warmup_batch_size": 64,
        "max_stabilisation": 100,
    }
    classic, warmed = train([small(**common, version=v, seed=1) for v in ("classic", "warmup")], tmp_path)
    assert classic.summary()["results"]["test_loss"] > 0.8
    assert warmed.summary()["results"]["test_loss"] < 0.2


def test_folders_come_in_the_order_asked_for_and_each_run_once(tmp_path):
    configs = [small(seed=1), small(seed=0), small(seed=1)]
    folders = train(configs, tmp_path)
    assert [folder.path.name for folder in folders] == [config.name for config in configs]
    assert len(list(tmp_path.iterdir())) == 2
    assert isinstance(folders[0], RunFolder)
