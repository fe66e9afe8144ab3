"""Auxiliary losses: their settings, and runs that are pretrained and trained with them."""

import json

import pytest
import torch
from typer.testing import CliRunner

from multistable.cli import app
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, PermutedSequentialMNIST
from multistable.training import Callback, Model, RunFolder, load, train
from multistable.training.auxiliary import Auxiliary, decoder_of
from multistable.training.data import division, sets
from multistable.training.seeds import generator
from multistable.training.trainer import groups
from small_runs import small

CPU = torch.device("cpu")


def auxiliary(**changes):
    """A run of two epochs of pretraining and two of training that takes a moment."""
    return small(**{"version": "auxiliary", "pretraining_epochs": 2} | changes)


# Settings


def test_the_appendix_gives_the_lengths():
    lengths = {50: 30, 300: 200, 600: 400}
    assert {T: CopyFirstInput(T).paper_stretch for T in lengths} == lengths
    assert [Denoising(200, N).paper_stretch for N in (5, 100)] == [150, 150]
    assert [PermutedLineSequentialMNIST(N).paper_stretch for N in (72, 472)] == [50, 350]
    assert PermutedSequentialMNIST().paper_stretch < 784
    assert CopyFirstInput(1).paper_stretch == 1
    assert auxiliary(task=CopyFirstInput(50)).stretch == 30
    assert auxiliary(stretch_length=2).stretch == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stretch_length": 7}, "stretch_length must leave room for 1 stretch in a sequence of 6 time steps, got 7"),
        ({"auxiliary_loss": "prediction"}, "room for 1 stretch and as much to be predicted in a sequence of 6"),
        ({"anchors": "end"}, "anchors must be one of cut, random, got 'end'"),
        ({"teacher_forcing": 2}, "teacher_forcing must be true or false, got 2"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        auxiliary(**change)


# Runs


def test_training_is_what_a_plain_loop_does(tmp_path):
    """Both phases written down again with PyTorch's own optimisers."""
    config = auxiliary(dtype="float64", vaa_every=0, auxiliary_weight=0.3, stretch_length=2, stretches=2)
    (folder,) = train(config, tmp_path)
    data, (training, validation, _) = sets([config], "train", CPU), division([config], 50, CPU)
    model, decoder = Model.of(config), decoder_of(config)
    assert not torch.equal(model.rnn.layers[0].cell.input_weight, decoder.rnn.layers[0].cell.input_weight)

    def losses(rows):
        inputs, targets = data.take(rows.unsqueeze(0))
        u = inputs[:, 0]
        outputs = model(u)
        errors = []
        for end in (2, 4):
            _, state = model.rnn(u[:end])
            given = torch.cat([torch.zeros_like(u[:1]), u[end - 2 : end - 1]])
            errors.append(decoder.readout(decoder.rnn(given, state)[0]) - u[end - 2 : end])
        return (outputs[-1] - targets[0]).square().mean(), torch.stack(errors).square().mean()

    expected = [losses(validation[0])[1].item()]
    best = []
    for phase, epochs in (("pretraining", (1, 2)), ("training", (3, 4))):
        moved = [*model.rnn.parameters(), *decoder.parameters()]
        moved += list(model.readout.parameters()) if phase == "training" else []
        optimiser = torch.optim.Adam(moved, lr=1e-3)
        for epoch in epochs:
            order = torch.randperm(40, generator=generator(0, "order", epoch))
            for rows in training[0][order].split(16):
                task, reconstruction = losses(rows)
                optimiser.zero_grad()
                (reconstruction if phase == "pretraining" else task + 0.3 * reconstruction).backward()
                optimiser.step()
            task, reconstruction = losses(validation[0])
            expected.append(reconstruction.item())
            best.append((task.item(), epoch))
    rows = folder.metrics()
    assert [row["reconstruction_loss"] for row in rows] == pytest.approx(expected, rel=1e-7)
    assert [row.get("validation_loss") for row in rows[:2]] == [None, None]
    assert [row["validation_loss"] for row in rows[2:]] == pytest.approx([loss for loss, _ in best[1:]], rel=1e-7)
    assert folder.summary()["results"]["best_epoch"] == min(best[1:])[1]


def test_metrics_tell_the_phase_and_vaa_ends_each(tmp_path):
    (folder,) = train(auxiliary(pretraining_epochs=3, epochs=3, vaa_every=2), tmp_path)
    rows = folder.metrics()
    assert [row["phase"] for row in rows] == ["pretraining"] * 4 + ["training"] * 3
    assert [row["epoch"] for row in rows if "vaa" in row] == [0, 2, 3, 4, 6]
    assert ["training_loss" in row for row in rows] == [False] * 4 + [True] * 3
    assert all("training_reconstruction_loss" in row for row in rows[1:])
    cost = folder.summary()["record"]["pretraining"]
    assert cost["steps"] == 3 * 3
    assert cost["seconds"] == pytest.approx(sum(row["step_seconds"] for row in rows[1:4]), abs=1e-3)


def test_the_warmup_tells_its_cost(tmp_path):
    folders = train([small(version="warmup", seed=seed) for seed in (0, 1)], tmp_path)
    for folder in folders:
        course = folder.warmup()
        assert 0 < course["step_seconds"] < course["seconds"] < folder.metrics()[0]["seconds"]
        assert (course["together"], len(course["loss"])) == (2, 3)


def test_the_network_kept_is_one_without_a_decoder(tmp_path):
    config = auxiliary()
    (folder,) = train(config, tmp_path)
    assert folder.weights().keys() == Model.of(config).state_dict().keys()
    inputs, targets = sets([config], "test", CPU).take(torch.arange(20).unsqueeze(0))
    loss = config.task.loss(load(folder.path)(inputs[:, 0]), targets[0])
    assert folder.summary()["results"]["test_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_pretraining_leaves_the_readout_as_it_was(tmp_path):
    config = auxiliary(epochs=1, learning_rate=0.1)

    class Stop(Callback):
        def on_epoch(self, configs, metrics):
            if metrics[0]["epoch"] == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, callbacks=[Stop()])
    kept, initial = RunFolder.of(config, tmp_path).checkpoint(2).tensors, Model.of(config).state_dict()
    assert torch.equal(kept["weights.readout.weight"], initial["readout.weight"])
    weight = "rnn.layers.0.cell.input_weight"
    assert not torch.equal(kept[f"weights.{weight}"], initial[weight])
    assert not torch.equal(kept[f"decoder.{weight}"], decoder_of(config).state_dict()[weight])


def test_a_run_alone_and_among_others_agree(tmp_path):
    common = {"cell": "lstm", "dtype": "float64", "num_layers": 2, "anchors": "random", "stretches": 2}
    configs = [auxiliary(**common, seed=seed, learning_rate=rate) for seed in (0, 1) for rate in (1e-3, 1e-2)]
    assert len(groups(configs, 32)) == 1
    together = train(configs, tmp_path / "together")
    for config, folder in list(zip(configs, together, strict=True))[1:3]:
        (alone,) = train(config, tmp_path / "alone")
        for a, b in zip(alone.metrics(), folder.metrics(), strict=True):
            for name in ("training_reconstruction_loss", "reconstruction_loss", "validation_loss", "vaa"):
                assert a.get(name, 0) == pytest.approx(b.get(name, 0), rel=1e-9)
        for name, weight in alone.weights().items():
            torch.testing.assert_close(weight, folder.weights()[name], rtol=1e-8, atol=1e-10)


def test_random_anchors_are_other_ones_for_each_run_and_epoch(tmp_path):
    (cut,) = train(auxiliary(stretch_length=2), tmp_path)
    (random,) = train(auxiliary(stretch_length=2, anchors="random"), tmp_path)
    assert cut.metrics()[0]["reconstruction_loss"] != random.metrics()[0]["reconstruction_loss"]
    configs = [auxiliary(stretch_length=2, stretches=3, anchors="random", seed=seed) for seed in (0, 1)]
    made = Auxiliary(configs, [decoder_of(config) for config in configs])
    first, second = (made.ends(500, CPU, epoch) for epoch in (1, 2))
    assert first.shape == (2, 3, 500)
    assert set(first.unique().tolist()) == {2, 3, 4, 5, 6}
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_prediction_runs_and_is_another_loss(tmp_path):
    back, ahead = (auxiliary(stretch_length=2, auxiliary_loss=kind) for kind in ("reconstruction", "prediction"))
    folders = train([back, ahead], tmp_path)
    assert folders[0].metrics()[0]["reconstruction_loss"] != folders[1].metrics()[0]["reconstruction_loss"]
    assert folders[1].finished


def test_runs_with_an_auxiliary_loss_go_by_themselves():
    others = [auxiliary(version="classic"), auxiliary(version="warmup")]
    configs = [auxiliary(), auxiliary(seed=1), auxiliary(auxiliary_weight=0.5), *others]
    assert [len(group) for group in groups(configs, 32)] == [2, 1, 2]


def test_without_pretraining_the_first_epoch_is_one_of_training(tmp_path):
    (folder,) = train(auxiliary(pretraining_epochs=0), tmp_path)
    assert [row["phase"] for row in folder.metrics()] == ["training"] * 3
    assert folder.summary()["record"]["pretraining"] == {"seconds": 0, "steps": 0}


# What it is all for


def test_a_small_network_learns_to_reconstruct_short_sequences(tmp_path):
    config = auxiliary(
        task=CopyFirstInput(4),
        stretch_length=4,
        hidden_size=32,
        training_sequences=2000,
        pretraining_epochs=6,
        epochs=1,
        learning_rate=5e-3,
        vaa_every=0,
    )
    (folder,) = train(config, tmp_path)
    losses = [row["reconstruction_loss"] for row in folder.metrics()]
    assert losses[6] < losses[0] / 2


# The command line


def test_the_command_line_trains_and_shows_it(tmp_path):
    options = "--T 6 --hidden 8 --epochs 1 --training-sequences 50 --testing-sequences 20 --batch-size 16 --device cpu"
    settings = [f"--set={s}" for s in ("pretraining_epochs=2", "vaa_batches=1", "vaa_batch_size=4", "stabilisation=50")]
    command = ["train", "copy", "--version", "auxiliary", *options.split(), *settings, "--out", str(tmp_path)]
    trained = CliRunner().invoke(app, command)
    assert trained.exit_code == 0, trained.output
    assert "gru auxiliary (1 run): epoch 1/3 (pretraining): auxiliary reconstruction loss" in trained.output
    assert "epoch 3/3: auxiliary validation loss" in trained.output
    assert "copy-gru-auxiliary-0-" in trained.output
    (folder,) = tmp_path.iterdir()
    shown = CliRunner().invoke(app, ["show", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "2 pretraining" in shown.output
    assert json.loads((folder / "config.json").read_text())["pretraining_epochs"] == 2
