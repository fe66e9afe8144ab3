"""The callbacks, and the examples with the real packages: ``make test-integrations``."""

import copy
import csv
import io
import runpy
import warnings

import pytest
import torch

import multistable as ms
from paths import ROOT

SHORT = {"algorithm": "paper", "steps": 2, "batch_size": 8, "max_stabilisation": 5}
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore::multistable.WarmupWarning"),
]


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_a_loop_of_ones_own_with_tensorboard_and_wandb(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    watch = example("train_in_your_own_loop")["main"](tmp_path, hidden_size=4, epochs=2, sequences=40, **SHORT)
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    logged = [(event.step, event.value) for event in events.Scalars("vaa")]
    assert [step for step, _ in logged] == [0, 1, 2]
    assert logged[0][1] == pytest.approx(watch.history.vaa)
    assert logged[2][1] == pytest.approx(watch.values["vaa"])
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_lightning(tmp_path):
    trainer = example("train_with_lightning")["main"](tmp_path, hidden_size=4, epochs=2, sequences=40, **SHORT)
    (callback,) = (each for each in trainer.callbacks if type(each).__name__ == "Multistability")
    (metrics,) = tmp_path.glob("**/metrics.csv")
    rows = [row["vaa"] for row in csv.DictReader(metrics.read_text().splitlines()) if row["vaa"]]
    assert len(rows) == 3
    assert float(rows[0]) == pytest.approx(callback.history.vaa)
    assert trainer.callback_metrics["vaa"] == pytest.approx(float(rows[2]))


def test_lightning_goes_on_from_a_checkpoint_without_a_second_warmup(tmp_path):
    import lightning

    names = example("train_with_lightning")
    callback_of = names["Multistability"]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(40, 6, 1), torch.randn(40, 1)), batch_size=10
    )

    def trainer(epochs):
        callback = callback_of(every=1, warmup=SHORT)
        options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "default_root_dir": tmp_path}
        return callback, lightning.Trainer(max_epochs=epochs, callbacks=[callback], **options)

    callback, first = trainer(1)
    first.fit(names["Recall"](4), loader)
    first.save_checkpoint(tmp_path / "one.ckpt")
    assert callback.history is not None
    callback, second = trainer(2)
    second.fit(names["Recall"](4), loader, ckpt_path=tmp_path / "one.ckpt")
    assert callback.history is None
    assert "vaa" in second.callback_metrics


def test_lightning_modules_without_a_forward():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.GRU(1, 4)

        def training_step(self, batch, index):
            return self.rnn(batch)[0].square().mean()

    module, x = Module(), torch.randn(6, 40, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = ms.measure(module, [x], batches=2, forward=lambda module, batch: module.training_step(batch, 0))
    assert torch.equal(ours.batches, ms.measure(module.rnn, x, batches=2).batches)


def test_transformers(tmp_path):
    trainer = example("train_with_transformers")["main"](tmp_path, hidden_size=4, epochs=2, sequences=40, **SHORT)
    (callback,) = (each for each in trainer.callback_handler.callbacks if type(each).__name__ == "Multistability")
    logged = [(entry["epoch"], entry["vaa"]) for entry in trainer.state.log_history if "vaa" in entry]
    assert [epoch for epoch, _ in logged] == [0, 1, 2]
    assert logged[0][1] == pytest.approx(callback.history.vaa)


def test_transformers_data_sets_are_taken_as_they_are():
    names = example("train_with_transformers")
    model, data = names["Classifier"](4), names["FirstToken"](40)
    ours = ms.measure(model, data, batches=2)
    assert torch.equal(ours.batches, ms.measure(model.rnn, model.embedding(data.texts).detach(), batches=2).batches)


@pytest.mark.parametrize("kind", [None, "torch", "numpy"])
def test_data_sets_of_hugging_face_are_taken_as_they_are(kind):
    import datasets

    names = example("train_with_transformers")
    model, texts = names["Classifier"](4), names["FirstToken"](40).texts
    columns = {"input_ids": texts.tolist(), "text": ["some"] * 40, "labels": texts[:, 0].tolist()}
    data = datasets.Dataset.from_dict(columns).with_format(kind)
    expected = ms.measure(model.rnn, model.embedding(texts).detach(), batches=2)
    assert torch.equal(ms.measure(model, data, batches=2).batches, expected.batches)
    arrays = datasets.Dataset.from_dict({"x": model.embedding(texts).tolist(), "labels": [0] * 40}).with_format(kind)
    assert torch.equal(ms.measure(model.rnn, arrays, batches=2).batches, expected.batches)


def test_sb3():
    names = example("warm_up_sb3")
    agent = names["main"](timesteps=128, hidden_size=4, env_steps=300, **SHORT)
    before = copy.deepcopy(agent.policy.state_dict())
    found = names["measure_agent"](agent, env_steps=100, batches=2, batch_size=2)
    assert list(found) == ["lstm_actor", "lstm_critic"]
    assert all(torch.equal(value, before[name]) for name, value in agent.policy.state_dict().items())


def test_sequences_of_sb3_are_the_episodes():
    from sb3_contrib import RecurrentPPO

    from multistable.dynamics.system.models import each_part
    from multistable.integrations.sb3 import episodes, run

    agent = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", seed=0, device="cpu")
    batch = episodes(agent, 60)
    data = each_part(lambda network, data, turn: data, agent.policy, [batch], forward=run)["lstm_actor"]
    starts = torch.cat([batch["episode_starts"], torch.ones(1)]).nonzero().flatten()
    assert data.lengths.tolist() == starts.diff().tolist()
    assert data.before is None


def test_torchrl():
    for history in example("warm_up_torchrl")["main"](hidden_size=4, episodes=30, **SHORT):
        assert len(history) == 2


def test_episodes_of_torchrl_are_sequences():
    from tensordict import TensorDict
    from torchrl.modules import GRUModule, set_recurrent_mode

    from multistable.dynamics.system.models import each_part

    module = GRUModule(input_size=3, hidden_size=4, in_key="x", out_key="y")
    is_init = torch.zeros(5, 8, 1, dtype=torch.bool)
    is_init[:, 0] = is_init[1, 3] = True
    batch = TensorDict({"x": torch.randn(5, 8, 3), "is_init": is_init}, [5, 8])
    keys = set(batch.keys(True))
    with set_recurrent_mode(True):
        data = each_part(lambda network, data, turn: data, module, batch)
    assert sorted(data.lengths.tolist()) == [3, 5, 8, 8, 8, 8]
    assert set(batch.keys(True)) == keys


@pytest.mark.parametrize("cell", ["gru", "lstm", "brc"])
@pytest.mark.parametrize("double", [False, True])
def test_onnx(cell, double):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    rnn, x = ms.RNN(cell, 2, 4, 2, double=double).eval(), torch.randn(5, 3, 2)
    program = torch.onnx.export(rnn, (x,), dynamo=True, verbose=False)
    written = io.BytesIO()
    program.save(written)
    model = onnx.load_from_string(written.getvalue())
    output, *_ = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(output), rnn(x)[0].detach())
